#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks for `detail::` where users read: in installed programs, examples and the Python package, and
in what public headers declare outside `detail` namespaces, function bodies and private sections; and
for a defaulted <=> without a == beside it, which nvcc 13 does not emit.

public_face.py ROOT [--self-test]
"""
import re
import sys
from pathlib import Path


def without_comments(line):
    return re.sub(r"//.*", "", line)


def in_programs(root):
    for folder in ("tools", "examples", "python"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".hpp", ".cpp", ".h", ".c", ".cu", ".py"):
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                if "detail::" in without_comments(line):
                    yield f"{file.relative_to(root)}:{number}: {line.strip()}"


def declared(text):
    """The declarations in `text` that users see, as (number, line). What is indented deeper than a
    member, is in a function's body, or follows `private:` or `protected:` is left out."""
    hidden = False  # in a detail namespace
    public = True
    head = body = False  # of a free function
    for number, line in enumerate(text.splitlines(), 1):
        line = without_comments(line).rstrip()
        if hidden:
            hidden = not line.startswith("}")
            continue
        if re.match(r"(inline )?namespace (\w|:| )*detail\b.*\{$", line):
            hidden = True
            continue
        if body:
            body = not line.startswith("}")
            continue
        if re.match(r"\s*(private|protected):", line):
            public = False
            continue
        if re.match(r"\s*public:", line) or line.startswith("}"):
            public = True
            continue
        kept = r"(class|struct|union|enum|namespace|using|template|concept|extern)\b"
        starts = re.match(rf"(?!{kept})[A-Za-z\[]", line)
        if starts or head:
            yield number, re.sub(r"\{.*\}$", "", line)
            head = not line.endswith((";", "{", "}"))
            body = line.endswith("{")
            continue
        if not public or re.match(r"\s{8,}", line) or line.startswith("#"):
            continue
        # the head of a one-line member function, not its body
        yield number, re.sub(r"\{.*\}$", "", line)


def in_headers(root):
    base = root / "include" / "kdvfs"
    for file in sorted(base.rglob("*.hpp")):
        if "detail" in file.relative_to(base).parts:
            continue
        for number, line in declared(file.read_text()):
            line = re.sub(r" (:|=) .*", "", line)  # a base class, a value: neither is called
            if "detail::" in line and not re.match(r"\s*(using|static_assert)\b", line):
                yield f"{file.relative_to(root)}:{number}: {line.strip()}"


def lone_orders(text):
    """The numbers of lines in `text` that default a <=> and have no == above or below them."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        beside = lines[max(0, number - 3):number + 2]
        if "operator<=>" in line and not any("operator==" in other for other in beside):
            yield number


def orders(root):
    for file in sorted((root / "include").rglob("*.hpp")):
        for number in lone_orders(file.read_text()):
            yield f"{file.relative_to(root)}:{number}: write the == beside <=>, for nvcc"


def self_test():
    assert [*lone_orders("a\nauto operator<=>(A, A) = default;\n")] == [2]
    assert not [*lone_orders("bool operator==(A, A) = default;\nauto operator<=>(A, A) = default;\n")]
    seen = lambda text: [line for _, line in declared(text) if "detail::" in line]
    assert seen("class A {\npublic:\n    detail::B get() const;\n};\n")
    assert seen("inline detail::B make(int a) {\n    return {};\n}\n")
    assert not seen("class A {\nprivate:\n    detail::B b_;\n};\n")
    assert not seen("inline B make() {\n    return detail::make();\n}\n")
    assert not seen("namespace detail {\ndetail::B b();\n}  // namespace detail\n")


if __name__ == "__main__":
    self_test()
    root = Path(sys.argv[1])
    found = [*in_programs(root), *in_headers(root), *orders(root)]
    print("\n".join(found))
    print(f"detail:: where users read, and orders that nvcc does not emit: {len(found)}")
    sys.exit(1 if found else 0)
