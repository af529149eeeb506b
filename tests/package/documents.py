# SPDX-License-Identifier: MIT
"""Code blocks and commands of the documents are run, compiled or checked.

python3 documents.py unit SOURCE FRAMES OUTPUT    the C++ blocks in their frames, as one translation unit
python3 documents.py check SOURCE KDVFS FOLDER    all else, in a new folder; exit status 1 with each fault
python3 documents.py broken SOURCE KDVFS FOLDER PAGE NUMBER    PAGE has so many faults: the check finds them

- C++: a block stands in a file of examples/ as printed, or has a frame and is compiled in it.
- Python: a block runs on the simulated GPU, with a double of torch where it imports torch; where it prints,
  the next `text` block or the page has what it prints.
- CMake: a block is parsed; its targets and components exist.
- Shell: a block is parsed by bash. Each `kdvfs` command in it runs, with --dry-run where it sets clocks: none
  is a mistake of usage, and those of RUN must be done. Presets, targets, scripts and components exist.
- docs/README.md names each page of docs/.
- A name `kdvfs.word` is in the Python package, and a name `kdvfs::word` in the headers.
- In text: `kdvfs ...` in backquotes is a command in the same way; a KDVFS_... variable is read by the code.

A shell block is one of `sh`, or an indented one that begins with a command.
"""

import importlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

COMMANDS = ("kdvfs", "kdvfs-restore", "cmake", "ctest", "cpack", "sh", "bash", "python3", "pip", "export", "srun",
            "torchrun", "mpirun", "docker", "git", "sudo", "build/", "apt-get", "echo", "cd", "salloc", "sbatch")
LANGUAGES = {"cpp", "python", "cmake", "sh", "text", "json", "yaml"}
# Commands that a machine without a GPU can do. Others must be no mistake of usage.
RUN = re.compile(r"kdvfs (batch-size|measure-sensor|recommend|plan-pool|diff|plan |power-limit --device sim|"
                 r"node-power --device|report|--version|sweep)")
SETS_CLOCKS = ("tune", "measure-latency", "power-limit", "restore", "validate")
USAGE = re.compile(r"no argument|is required|there is none of this name|no subcommand|excludes|requires|"
                   r"kdvfs [\w-]+ --help|such as|did you mean")
PLACEHOLDERS = {"PROGRAM": "./train", "ARGUMENTS": "", "FILE": "profile.csv", "FOLDER": "kdvfs_tune"}


class Block:
    def __init__(self, page, line, language, text):
        self.page, self.line, self.language, self.text = page, line, language, text

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages(source):
    found = [source / "README.md", source / "CONTRIBUTING.md", source / "SECURITY.md", source / "python/README.md",
             source / "examples/README.md", source / "tools/restore/README.md"]
    return [page for page in found if page.is_file()] + sorted((source / "docs").glob("*.md"))


def is_command(line):
    words = re.sub(r"^([A-Z_]+=\S* +)*", "", line).split()
    output = len(words) > 1 and words[1].endswith(":")
    return words != [] and not output and (words[0] in COMMANDS or words[0].startswith("build/"))


def blocks_of(page, name):
    """The fenced blocks, and indented ones that begin with a command."""
    lines = page.read_text().split("\n")
    found, at = [], 0
    while at < len(lines):
        line = lines[at]
        begin = at + 1
        if line.startswith("```"):
            while lines[begin] != "```":
                begin += 1
            found.append(Block(name, at + 2, line[3:], "\n".join(lines[at + 1:begin])))
            at = begin + 1
        elif line.startswith("    ") and (at == 0 or lines[at - 1] == "") and is_command(line.strip()):
            while begin < len(lines) and lines[begin].startswith("    "):
                begin += 1
            found.append(Block(name, at + 1, "sh", "\n".join(each[4:] for each in lines[at:begin])))
            at = begin
        else:
            at += 1
    return found


def all_blocks(source, chosen=None):
    return [block for page in chosen or pages(source) for block in blocks_of(page, str(page.relative_to(source)))]


def quoted(block, source):
    """The block stands in a file of examples/ as printed, or is a program that readme.cmake compiles."""
    if block.page == "docs/first_program.md" and "int main()" in block.text:
        return True
    return any(block.text in path.read_text() for kind in ("cpp", "hpp", "c") for path in
               sorted((source / "examples").rglob("*." + kind)))


def write_unit(source, frames, output):
    """Host code: launches with <<<>>> become calls; files of the user's own are in the frame."""
    text = frames.read_text()
    counts, includes, faults = {}, [], []
    for block in all_blocks(source):
        if block.language != "cpp":
            continue
        counts[block.page] = number = counts.get(block.page, 0) + 1
        mark = re.compile(rf"^ *// block: {re.escape(block.page)} {number}$", re.M)
        if quoted(block, source):
            continue
        if len(mark.findall(text)) != 1:
            faults.append(f"{block}: the C++ block {number} has no frame in {frames.name}: add one")
            continue
        includes += re.findall(r"^#include <.*", block.text, re.M)
        body = re.sub(r"^#include .*", "", block.text, flags=re.M)
        body = re.sub(r"(\w+)<<<.*?>>>\(", r"\1(", body)
        at = text[:mark.search(text).start()].count("\n") + 2
        body = f'#line {block.line} "{source / block.page}"\n{body}\n#line {at} "{frames}"'
        text = mark.sub(lambda _: body, text)
    faults += [f"{frames.name}: no such block:{left}" for left in re.findall(r"// block:(.*)", text)]
    if faults:
        sys.exit("\n".join(faults))
    output.write_text("\n".join(dict.fromkeys(includes)) + "\n" + text)


class Check:
    def __init__(self, source, kdvfs, folder):
        self.source, self.kdvfs, self.folder = source, kdvfs, folder
        self.package = importlib.import_module("kdvfs")
        self.faults, self.ran = [], {"python": 0, "commands": 0, "quotes": 0, "cmake": 0, "variables": 0, "names": 0}
        headers = " ".join(path.read_text() for path in (source / "include").rglob("*.hpp"))
        self.words = set(re.findall(r"\w+", headers)) | {"compiled", "compiled_static"}
        self.helps = {}
        rules = [path for path in source.rglob("CMakeLists.txt") if "build" not in path.parts]
        rules += sorted((source / "cmake").glob("*.cmake"))
        self.rules = "\n".join(path.read_text() for path in rules)
        presets = json.loads((source / "CMakePresets.json").read_text())
        self.presets = {each["name"] for kind in presets.values() if isinstance(kind, list) for each in kind}

    def expect(self, condition, where, what):
        if not condition:
            self.faults.append(f"{where}: {what}")

    def environment(self):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("KDVFS_")}
        kept.update({
            "KDVFS_LIBRARY": os.environ["KDVFS_LIBRARY"], "PYTHONPATH": os.environ["PYTHONPATH"],
            "PYTHONDONTWRITEBYTECODE": "1", "KDVFS_NVML": str(self.folder / "absent.so"), "HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"), "XDG_DATA_HOME": str(self.folder / "data"),
            "PATH": f"{self.folder}:{os.environ['PATH']}",
        })
        return kept

    def run(self, command, shell=True, **more):
        try:
            return subprocess.run(command, shell=shell, executable="/bin/bash" if shell else None, cwd=self.folder,
                                  env=self.environment(), capture_output=True, text=True, timeout=60,
                                  stdin=subprocess.DEVNULL, **more)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "took longer than 60 s")

    def prepare(self):
        """What commands of the documents find in their folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "kdvfs").symlink_to(self.kdvfs)
        for name in ("train", "simulation", "absent"):
            (self.folder / name).write_text("#!/bin/sh\nexit 0\n")
            (self.folder / name).chmod(0o755)
        (self.folder / "train.py").write_text("")
        fixtures = self.source / "tests/package/document_files"
        for path in sorted(fixtures.glob("*")):
            shutil.copy(path, self.folder)
        made = self.run([sys.executable, "make.py"], shell=False)
        if made.returncode:
            sys.exit(f"cannot make the files that commands read: {made.stdout}{made.stderr}")

    def block(self, block, following):
        self.expect(block.language in LANGUAGES, block,
                    f'a block has the language "{block.language}": use one of {", ".join(sorted(LANGUAGES))}')
        check = {"python": self.python, "sh": self.shell, "cmake": self.cmake, "json": self.json}
        if block.language in check:
            check[block.language](block, following)

    def json(self, block, _):
        try:
            json.loads(block.text)
        except ValueError as error:
            self.expect(False, block, f"no JSON: {error}")

    def python(self, block, following):
        script = self.folder / "block.py"
        script.write_text("import doubles\n" + block.text)
        done = self.run([sys.executable, str(script)], shell=False)
        self.ran["python"] += 1
        self.expect(done.returncode == 0, block, f"the Python block fails:\n{done.stderr}")
        printed = done.stdout.strip()
        page = (self.source / block.page).read_text()
        if following is not None and following.language == "text":
            self.expect(printed == following.text.strip(), following, f"the block before prints:\n{printed}")
        else:
            self.expect(printed in page, block, f"prints what the page does not show:\n{printed}")

    def cmake(self, block, _):
        script = self.folder / "block.cmake"
        # Parsed as a whole and never executed.
        script.write_text(f"if(FALSE)\n{block.text}\nendif()\n")
        done = self.run(["cmake", "-P", str(script)], shell=False)
        self.ran["cmake"] += 1
        self.expect(done.returncode == 0, block, f"the CMake block is not parsed:\n{done.stderr}")
        for component in re.findall(r"COMPONENTS ([\w ]+)", block.text):
            for name in component.split():
                self.expect(name in ("rocm", "nvidia", "measure", "tune", "mpi", "compiled"), block,
                            f"kdvfs has no component {name}")

    def shell(self, block, _):
        done = self.run(["bash", "-n", "-c", block.text], shell=False)
        self.expect(done.returncode == 0, block, f"bash cannot parse this:\n{done.stderr}")
        if done.returncode:
            return
        text = re.sub(r"\\\n", " ", block.text)
        number = block.line
        for line in text.split("\n"):
            self.line(f"{block.page}:{number}", line)
            number += 1

    def line(self, where, line):
        words = shlex.split(line, comments=True)
        for first, second in zip(words, words[1:]):
            if first == "--preset":
                self.expect(second in self.presets, where, f"there is no preset {second}")
            if first == "--component":
                self.expect(re.search(rf"COMPONENT {second}\b", self.rules), where, f"no component {second}")
        if "--target" in words and "cmake" in words:
            for name in words[words.index("--target") + 1:]:
                self.expect(name.startswith("-") or name == "&&" or self.is_target(name), where,
                            f"there is no target {name}")
                if name == "&&":
                    break
        for name in words:
            inside = re.fullmatch(r"(?:\./)?((?:cmake|examples|tools|python|bench|docs|tests)/[\w./-]+)", name)
            if inside:
                self.expect((self.source / inside.group(1)).exists(), where, f"there is no {name}")
        scripts = re.search(r"\bsh cmake/bootstrap.sh (\w+)", line)
        if scripts:
            text = (self.source / "cmake/bootstrap.sh").read_text()
            self.expect(re.search(rf"bootstrap.sh {scripts.group(1)}\b", text), where,
                        f"bootstrap.sh has no job {scripts.group(1)}")
        if re.search(r"(^|[\s(])kdvfs [a-z-]", line):
            self.command(where, line)

    def is_target(self, name):
        own = re.search(rf"\b(add_(executable|library|custom_target)|kdvfs_\w+)\(\s*{re.escape(name)}\b", self.rules)
        return own or f"ladder/{name.split('/')[-1]}.cpp" in self.listed_examples()

    def listed_examples(self):
        return {f"ladder/{path.name}" for path in (self.source / "examples/ladder").glob("*.cpp")}

    def command(self, where, line):
        """A line with `kdvfs` in it, perhaps behind srun or torchrun, runs as far as it can here."""
        text = re.sub(r"^(.*?[\s(])??kdvfs (?=[a-z-])", "kdvfs ", re.sub(r"\s+#.*", "", line))
        for name, meant in PLACEHOLDERS.items():
            text = re.sub(rf"\b{name}\b", meant, text)
        text = re.sub(r"build/\S*/", "./", text)
        words = text.split()
        name = words[1] if len(words) > 1 else ""
        own = words[:words.index("--")] if "--" in words else words
        sets = name in SETS_CLOCKS and "sim:" not in text
        sets = sets or name == "run" and ({"--plan", "--sweep", "--pipeline"} & set(own))
        if sets and "--dry-run" not in own:
            text = text.replace(f"kdvfs {name}", f"kdvfs {name} --dry-run", 1)
        if "--" in words:  # the program is the user's: here one that does nothing
            text = text[:text.index(" -- ")] + " -- ./train"
        if "--metrics" in own:
            text = re.sub(r"--metrics \S+", "--metrics 0", text)
        if name == "measure-sensor" and "sim:" not in text:  # a minute, where there is a GPU
            text += " --device sim:mi210 --seconds 10 -o sensor.csv"
        if name == "top" and "--once" not in own and "--json" not in own:
            text += " --once"
        done = self.run(text)
        self.ran["commands"] += 1
        said = (done.stdout + done.stderr).strip()[-600:]
        if RUN.match(text):
            self.expect(done.returncode == 0, where, f"{text}\nends with {done.returncode}: {said}")
        else:
            self.expect(done.returncode in (0, 1, 2, 3, 4, 5) and not USAGE.search(done.stderr), where,
                        f"{text}\nends with {done.returncode}: {said}")

    def quote(self, where, quote):
        """Part of a command in a sentence: the subcommand and its options exist."""
        words = quote.split(" -- ")[0].split()
        name = words[1] if not words[1].startswith("-") else ""
        if name == "SUBCOMMAND":
            return
        if name not in self.helps:
            done = self.run(f"kdvfs {name} --help")
            self.helps[name] = done.stdout
            self.expect(done.returncode == 0, where, f"there is no `kdvfs {name}`")
        self.ran["quotes"] += 1
        for option in re.findall(r"(?<!\S)--[a-z-]+", " ".join(words)):
            self.expect(re.search(rf"{option}\b(?!-)", self.helps[name]), where, f"`kdvfs {name}` has no {option}")

    def text(self, page, code):
        name = str(page.relative_to(self.source))
        prose = re.sub(r"^```.*?^```$", lambda whole: "\n" * whole.group().count("\n"), page.read_text(),
                       flags=re.M | re.S)
        for number, line in enumerate(prose.split("\n"), 1):
            for quote in re.findall(r"`(?:srun )?(kdvfs [^`]+)`", line):
                self.quote(f"{name}:{number}", quote)
        for name_of in sorted(set(re.findall(r"\bkdvfs\.([A-Za-z]\w*(?:\.[a-z]\w*)*)", page.read_text()))):
            at, is_file = self.package, name_of.split(".")[0] in ("h", "hpp", "f90", "json", "rules")
            for word in [] if is_file else name_of.split("."):
                at = getattr(at, word, None)
            self.ran["names"] += 1
            self.expect(is_file or at is not None, name, f"the Python package has no kdvfs.{name_of}")
        for name_of in sorted(set(re.findall(r"\bkdvfs::([\w:]*\w)", page.read_text()))):
            self.ran["names"] += 1
            self.expect(name_of.split("::")[-1] in self.words, name, f"no header or target has kdvfs::{name_of}")
        for variable in sorted(set(re.findall(r"\bKDVFS_[A-Z][A-Z_]*[A-Z]\b", page.read_text()))):
            self.ran["variables"] += 1
            self.expect(variable in code, name, f"nothing reads {variable}")

    def all(self, chosen):
        self.prepare()
        blocks = all_blocks(self.source, chosen)
        for block, following in zip(blocks, blocks[1:] + [None]):
            self.block(block, following if following and following.page == block.page else None)
        kinds = ("hpp", "cpp", "h", "py", "txt", "cmake", "in", "sh")
        code = " ".join(path.read_text(errors="replace") for folder in ("include", "tools", "python", "cmake", "tests",
                        "bench", "examples") for kind in kinds for path in (self.source / folder).rglob("*." + kind)
                        if path != pathlib.Path(__file__))
        code += (self.source / "CMakeLists.txt").read_text()
        code = set(re.findall(r"KDVFS_\w+", code))
        for page in chosen:
            self.text(page, code)
        index = (self.source / "docs/README.md").read_text()
        for page in chosen:
            linked = page.parent.name != "docs" or page.name == "README.md" or f"({page.name}" in index
            self.expect(linked, page.name, "docs/README.md has no task for this page")
        print("\n".join(self.faults))
        print(", ".join(f"{count} {kind}" for kind, count in self.ran.items()))


def main():
    mode, paths = sys.argv[1], [pathlib.Path(each).resolve() for each in sys.argv[2:6]]
    if mode == "unit":
        write_unit(*paths)
        return 0
    check = Check(*paths[:3])
    check.all(pages(paths[0]) if mode == "check" else [paths[3]])
    return len(check.faults) != (0 if mode == "check" else int(sys.argv[6]))


if __name__ == "__main__":
    sys.exit(main())
