#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python3 manual.py KDVFS FOLDER: man pages and shell completions, from what `KDVFS --help` says.

Writes FOLDER/man/man1/kdvfs.1, kdvfs-SUBCOMMAND.1, FOLDER/bash/kdvfs, FOLDER/zsh/_kdvfs, FOLDER/fish/kdvfs.fish.
"""

import pathlib
import re
import subprocess
import sys


class Option:
    """One line of a help text: its spellings ("-o", "--output"), its value's description, what it does."""

    def __init__(self, head, words):
        self.names = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", head.split(" ")[0])
        self.positional = head.split(" ")[0] if not self.names else ""
        rest = head[len(head.split(" ")[0]):].strip()
        self.takes_value = bool(rest) and not rest.startswith("Excludes")
        self.value = rest
        choices = re.search(r"\{([^}]*)\}", rest)
        self.choices = choices.group(1).split(",") if choices else []
        self.words = words


class Help:
    """A help text of CLI11, taken apart."""

    def __init__(self, text):
        lines = text.splitlines()
        self.summary = lines[0]
        self.positionals, self.options, self.subcommands, self.footer = [], [], [], []
        self.usage = ""
        section = None
        for line in lines[1:]:
            if line.startswith("Usage:"):
                self.usage = line
            elif re.fullmatch(r"(Positionals|Options|Subcommands):", line):
                section = getattr(self, line[:-1].lower())
            elif section is not None and re.match(r"  \S", line):
                head, _, words = re.match(r"  (\S+(?: \S+)*)(\s{2,}|$)(.*)", line).groups()
                section.append(Option(head, words))
            elif section and line.startswith("   "):
                section[-1].words += " " + line.strip()
            elif line.strip():
                section = None
                self.footer.append(line)
        for each in self.options + self.positionals + self.subcommands:
            each.words = each.words.strip()


def read(command, *arguments):
    run = subprocess.run([command, *arguments, "--help"], capture_output=True, text=True, check=True)
    return Help(run.stdout)


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def page(name, help_, version, see):
    title = name.upper().replace(" ", "-")
    lines = [f'.TH "{title}" 1 "" "{version}" "kdvfs"', ".ad l", ".SH NAME",
             roff(f"{name.replace(' ', '-')} - {help_.summary[:1].lower()}{help_.summary[1:].rstrip('.')}"),
             ".SH SYNOPSIS", f".B {name}"]
    if help_.subcommands:
        lines.append(".I SUBCOMMAND")
    lines.append("[OPTIONS]")
    for each in help_.positionals:
        program = each.positional == "command"
        lines.append(roff("-- PROGRAM [ARGUMENT...]" if program else each.positional.upper()))
    for head, entries in (("ARGUMENTS", help_.positionals), ("OPTIONS", help_.options), ("SUBCOMMANDS", help_.subcommands)):
        if entries:
            lines.append(f".SH {head}")
        for each in entries:
            term = ", ".join(each.names) or each.positional
            if each.takes_value and each.names:
                term += f" {each.value}"
            lines += [".TP", f".B {roff(term)}", roff(each.words)]
    if help_.footer:
        lines += [".SH NOTES", *(roff(line) for line in help_.footer)]
    if see:
        lines += [".SH SEE ALSO", ", ".join(f".BR {each} (1)" if i == 0 else f"{each}(1)" for i, each in enumerate(see))]
    return "\n".join(lines) + "\n"


def flags(help_):
    return [name for option in help_.options for name in option.names]


def bash(main, subs):
    cases = "\n".join(
        f'        {name}) words="{" ".join(flags(help_))}" ;;' for name, help_ in subs.items())
    values = "\n".join(
        f'        {name}:{flag}) words="{" ".join(option.choices)}" ;;'
        for name, help_ in subs.items() for option in help_.options if option.choices for flag in option.names)
    return f"""# bash completion of kdvfs, made by tools/cli/manual.py
_kdvfs() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} words="" i
    for ((i = 1; i < COMP_CWORD; ++i)); do
        [ "${{COMP_WORDS[i]}}" != -- ] || {{ COMPREPLY=($(compgen -c -f -- "$current")); return; }}
    done
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{' '.join([*subs, *flags(main)])}" -- "$current"))
        return
    fi
    case ${{COMP_WORDS[1]}}:$before in
{values}
    esac
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case $current in
        -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
        *) COMPREPLY=($(compgen -f -- "$current")) ;;
    esac
}}
complete -o filenames -F _kdvfs kdvfs
"""


def quoted(text):
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", ";")


def zsh(subs):
    lines = ["#compdef kdvfs", "# zsh completion of kdvfs, made by tools/cli/manual.py", "local -a commands",
             "commands=("]
    lines += [f"    '{name}:{quoted(help_.summary)}'" for name, help_ in subs.items()]
    lines += [")", "if (( CURRENT == 2 )); then _describe command commands; return; fi", "shift words; (( CURRENT-- ))",
              "case $words[1] in"]
    for name, help_ in subs.items():
        arguments = []
        for option in help_.options:
            for flag in option.names:
                value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
                arguments.append(f"'{flag}[{quoted(option.words)}]{value if option.takes_value else ''}'")
        lines.append(f"    {name}) _arguments {' '.join(arguments)} '*:file:_files' ;;")
    return "\n".join([*lines, "esac"]) + "\n"


def fish(subs):
    lines = ["# fish completion of kdvfs, made by tools/cli/manual.py"]
    for name, help_ in subs.items():
        words = help_.summary.replace("'", "\\'")
        lines.append(f"complete -c kdvfs -n __fish_use_subcommand -a {name} -d '{words}'")
        for option in help_.options:
            for flag in option.names:
                kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                value = (" -r" + (f" -a '{' '.join(option.choices)}'" if option.choices else "")) if option.takes_value else ""
                words = option.words.replace("\\", "\\\\").replace("'", "\\'")
                lines.append(f"complete -c kdvfs -n '__fish_seen_subcommand_from {name}' {kind}{value} -d '{words}'")
    return "\n".join(lines) + "\n"


def main():
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    top = read(command)
    subs = {each.positional: read(command, each.positional) for each in top.subcommands}
    pages = {"kdvfs": page("kdvfs", top, version, [f"kdvfs-{name}" for name in subs])}
    pages.update({f"kdvfs-{name}": page(f"kdvfs {name}", help_, version, ["kdvfs"]) for name, help_ in subs.items()})
    files = {f"man/man1/{name}.1": text for name, text in pages.items()}
    files.update({"bash/kdvfs": bash(top, subs), "zsh/_kdvfs": zsh(subs), "fish/kdvfs.fish": fish(subs)})
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
