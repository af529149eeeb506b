#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lists the classes of include/ and tools/ that have more than 25 functions or 15 data members, but
those that a paragraph of CONTRIBUTING.md names, by class or by file.

class_sizes.py ROOT [--count | --check]

--check also lists names of that paragraph that no such class has, and fails where it lists any.

Overloads count once; constructors count, destructors, operators and what is defaulted or deleted do
not. A reading of text: good for the order of magnitude, not for a proof.
"""
import re
import sys
from pathlib import Path

MOST_FUNCTIONS = 25
MOST_MEMBERS = 15
NOT_COUNTED = r"(using|friend|static_assert|enum|class|struct|union|typedef|#)"
CLASS = r"\b(?:class|struct)\s+(?:\[\[[^\]]*\]\]\s*)?(\w+)(?:\s+final)?\s*(?::[^;{]*)?\{"


def without_templates(text):
    for _ in range(4):
        text = re.sub(r"<[^<>]*>", "", text)
    return text


def declared(statement):
    """The name of the function that a member declaration declares, or how many data members."""
    text = re.sub(r"\b(public|private|protected)\s*:", "", statement)
    text = " ".join(re.sub(r"\[\[[^\]]*\]\]", "", text).split())
    text = re.sub(r"^template <[^{]*?> ", "", text)
    if not text or re.match(NOT_COUNTED, text) or text.endswith(("default", "delete")):
        return None, 0
    head = without_templates(text.split("{")[0].split(" = ")[0])
    if "(" in head:
        name = re.search(r"(operator[^(]*|~?\w+)\s*\(", head)
        plain = name and not name.group(1).startswith(("~", "operator"))
        return (name.group(1) if plain else None), 0
    return None, 0 if text.startswith("static constexpr") else 1 + head.count(",")


def members_of(text, begin):
    """Functions and data members of the class whose body begins there."""
    functions, members, depth, statement, at = set(), 0, 1, "", begin
    while at < len(text) and depth > 0:
        c = text[at]
        depth += (c == "{") - (c == "}")
        ends = depth == 1 and (c == ";" or (c == "}" and not re.match(r"\s*[;,{]", text[at + 1:])))
        if depth == 1 or (depth == 2 and c == "{"):
            statement += c
        if ends:
            function, count = declared(statement.rstrip(";"))
            functions |= {function} - {None}
            members += count
            statement = ""
        at += 1
    return len(functions), members


def explained(root):
    text = (root / "CONTRIBUTING.md").read_text()
    paragraph = re.search(r"Meant so are:.*?\n(?=\n|\[)", text, re.S)
    return set(re.findall(r"`([\w/.]+)`", paragraph.group(0)))


def large_classes(root):
    for folder in ("include", "tools"):
        for file in sorted((root / folder).rglob("*.?pp")):
            text = re.sub(r'"(\\.|[^"\\])*"', '""', re.sub(r"//.*", "", file.read_text()))
            for found in re.finditer(CLASS, text):
                functions, members = members_of(text, found.end())
                if functions > MOST_FUNCTIONS or members > MOST_MEMBERS:
                    yield functions, members, found.group(1), str(file.relative_to(root))


def explains(name, row):
    return row[3].endswith("/" + name) if name.endswith(".hpp") else row[2] == name


if __name__ == "__main__":
    root = Path(sys.argv[1])
    large = sorted(large_classes(root), key=lambda row: row[:2], reverse=True)
    meant = explained(root)
    rows = [row for row in large if not any(explains(name, row) for name in meant)]
    if "--count" in sys.argv:
        print(len(rows))
        sys.exit()
    for row in rows:
        print("%3d functions, %3d members: %s (%s)" % row)
    if "--check" in sys.argv:
        small = [name for name in sorted(meant) if not any(explains(name, row) for row in large)]
        for name in small:
            print(f"CONTRIBUTING.md explains the size of {name}, which is not large")
        print(f"{len(large)} large classes, {len(rows)} of them without a reason")
        sys.exit(1 if rows or small else 0)
