# SPDX-License-Identifier: MIT
"""python3 release_files.py SOURCE: what the repository's host and its strangers read is in order.

Workflows and issue templates are well-formed and name what exists; every place that names the version
agrees; every relative link of every Markdown file leads somewhere. Prints each fault; exit status 1.
"""

import pathlib
import re
import sys

try:
    import yaml
except ImportError:
    print("skipped: no yaml module (python3-yaml)")
    sys.exit(77)


class Faults(list):
    def expect(self, condition, where, what):
        if not condition:
            self.append(f"{where}: {what}")


def expressions(value):
    """The texts between ${{ and }} in a value and in all that it holds."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [found for each in value for found in expressions(each)]
    return re.findall(r"\$\{\{\s*(.*?)\s*\}\}", str(value))


def check_step(step, where, source, matrix, faults):
    faults.expect(("uses" in step) != ("run" in step), where, "a step has either `uses` or `run`")
    unknown = set(step) - {"name", "id", "if", "uses", "run", "with", "env", "working-directory", "shell"}
    faults.expect(not unknown, where, f"unknown keys {sorted(unknown)}")
    if "uses" in step:
        faults.expect(re.fullmatch(r"[\w-]+/[\w./-]+@v?\d[\w.]*", step["uses"]), where,
                      f"an action needs a version: {step['uses']}")
    command = step.get("run", "")
    for script, job in re.findall(r"\bsh (\S+\.sh)(?: (\S.*))?", command):
        faults.expect((source / script).is_file(), where, f"no script {script}")
        jobs = [job.strip()] if job else []
        if job and job.startswith("${{"):
            key = re.search(r"matrix\.(\w+)", job).group(1)
            jobs = [row.get(key) for row in matrix]
        known = re.findall(r"^    ([\w| ]+)\)$", (source / script).read_text(), re.M)
        known = {word for line in known for word in re.split(r"[| ]+", line)}
        for name in jobs:
            faults.expect(name in known, where, f"{script} has no job {name}")


def matrix_rows(strategy):
    """The rows of a matrix, each a dictionary."""
    matrix = dict(strategy.get("matrix", {}))
    rows = [{}]
    included = matrix.pop("include", [])
    for key, values in matrix.items():
        rows = [{**row, key: value} for row in rows for value in values]
    if included:
        rows = included if not matrix else rows + included
    return rows


def check_workflow(path, source, faults):
    where = path.name
    flow = yaml.safe_load(path.read_text())
    triggers = flow.get("on", flow.get(True))  # YAML 1.1 reads `on` as a truth value
    faults.expect(triggers, where, "no trigger")
    faults.expect("contents" in flow.get("permissions", {}), where, "no least permissions")
    for name, job in flow.get("jobs", {}).items():
        place = f"{where}: {name}"
        for key in ("runs-on", "steps", "timeout-minutes"):
            faults.expect(key in job, place, f"no `{key}`")
        rows = matrix_rows(job.get("strategy", {}))
        keys = [set(row) for row in rows]
        faults.expect(all(each == keys[0] for each in keys), place, "rows of the matrix have other keys")
        for found in expressions(job):
            matched = re.fullmatch(r"matrix\.([\w-]+)", found)
            faults.expect(matched or re.fullmatch(r"(github|env|runner)\.[\w.]+", found), place,
                          f"unknown expression {found}")
            if matched:
                faults.expect(matched.group(1) in keys[0], place, f"the matrix has no {matched.group(1)}")
        for need in [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", []):
            faults.expect(need in flow["jobs"], place, f"needs {need}, which is no job")
        for number, step in enumerate(job.get("steps", []), 1):
            check_step(step, f"{place}: step {number}", source, rows, faults)


def check_template(path, faults):
    form = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        faults.expect("blank_issues_enabled" in form, path.name, "no blank_issues_enabled")
        return
    for key in ("name", "description", "body"):
        faults.expect(form.get(key), path.name, f"no {key}")
    seen = set()
    for field in form.get("body", []):
        kind, identity = field.get("type"), field.get("id")
        faults.expect(kind in ("textarea", "input", "dropdown", "checkboxes", "markdown"), path.name,
                      f"unknown type {kind}")
        attributes = field.get("attributes", {})
        faults.expect(attributes.get("value" if kind == "markdown" else "label"), path.name,
                      f"{identity} has no label")
        faults.expect(kind == "markdown" or (identity and identity not in seen), path.name,
                      f"id {identity} is missing or used twice")
        seen.add(identity)
        if kind == "dropdown":
            options = attributes.get("options", [])
            faults.expect(options and all(isinstance(each, str) for each in options), path.name,
                          f"{identity}: options must be texts (quote yes and no)")


def check_versions(source, faults):
    header = (source / "include/kdvfs/version.hpp").read_text()
    version = ".".join(re.search(rf"KDVFS_VERSION_{part} (\d+)", header).group(1)
                       for part in ("MAJOR", "MINOR", "PATCH"))
    citation = yaml.safe_load((source / "CITATION.cff").read_text())
    for key in ("cff-version", "title", "message", "authors", "license"):
        faults.expect(citation.get(key), "CITATION.cff", f"no {key}")
    project = (source / "python/pyproject.toml").read_text()
    named = {
        "CITATION.cff": str(citation.get("version")),
        "python/pyproject.toml": re.search(r'^version = "(.*)"', project, re.M).group(1),
    }
    for where, text in named.items():
        faults.expect(text == version, where, f"version {text}, but version.hpp has {version}")
    for where in ("include/kdvfs/kdvfs.h", "python/kdvfs/__init__.py"):
        for text in re.findall(r'"(\d+\.\d+\.\d+)"', (source / where).read_text()):
            faults.expect(text == version, where, f'says "{text}", but version.hpp has {version}')


def check_links(source, faults):
    for path in sorted(source.rglob("*.md")):
        inside = path.relative_to(source)
        if inside.parts[0] in ("build", ".git", "shared"):
            continue
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:|#", target):
                continue
            faults.expect((path.parent / target.split("#")[0]).exists(), str(inside),
                          f"link to {target}, which is not there")


def main():
    source = pathlib.Path(sys.argv[1])
    faults = Faults()
    for name in ("README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"):
        faults.expect((source / name).is_file(), name, "missing")
    flows = sorted((source / ".github/workflows").glob("*.yml"))
    templates = sorted((source / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    faults.expect(len(flows) >= 2 and len(templates) >= 2, ".github", "no workflows or issue templates")
    for path in flows:
        check_workflow(path, source, faults)
    for path in templates:
        check_template(path, faults)
    check_versions(source, faults)
    check_links(source, faults)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
