#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks for words that plain technical English has a better one for, in identifiers and messages of what users get, and
in headings of README and docs/. Of their sentences, less than 3 % may have more than 30 words.

words.py ROOT [--self-test]
"""
import re
import sys
from pathlib import Path

BETTER = {
    "told": "resolved, reported", "tell": "report", "tells": "reports", "too_short_to_tell": "unresolved",
    "heard": "acknowledged", "foreign": "external", "stumble": "mismatch", "stumbled": "mismatch", "seat": "thread_slot",
    "conduct": "set_outer_request", "comes_late": "is_retired", "take_in": "ingest", "let_go": "release",
    "go_alone": "fall_back", "mistrust": "reject", "bury": "reap", "owes": "pending_restore", "owed": "pending_restore",
    "teller": "StatusWriter", "rehearsal": "CrossValidation", "credit": "shrinkage", "wish": "Constraint",
    "gathering": "Allgather", "call_roll": "check_ranks", "spoken": "sent", "sandwich": "robust_covariance",
    "bent": "leverage", "drawn_in": "winsorized", "believe": "apply_prior", "straighten": "align_clock",
    "stitch": "concatenate", "surprise": "negative_log_likelihood", "calm": "limit_switches", "play_once": "simulate",
    "spills_to": "overflow_pool", "mend": "fix", "mended": "fixed", "elided": "skipped as redundant",
    "elision": "skipped as redundant", "thin": "sparsify", "stamp": "timestamp", "jump": "resync",
}
# pace, course, known and taken have usual meanings, too.


def words_of(text):
    """The words of an identifier or a message, and neighbours joined: `too_short_to_tell` has all of its parts."""
    for name in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text):
        split = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
        yield from split
        for length in (2, 3, 4):
            for at in range(len(split) - length + 1):
                yield "_".join(split[at:at + length])


def code_of(file):
    text = re.sub(r".*// earlier name.*", "", file.read_text())
    if file.suffix == ".py":
        text = re.sub(r'"""[\s\S]*?"""', lambda doc: "\n" * doc[0].count("\n"), text)
        text = re.sub(r"(^|\s)#.*", "", text)
    else:
        text = re.sub(r"/\*[\s\S]*?\*/", lambda comment: "\n" * comment[0].count("\n"), text)
        text = re.sub(r"//(?![^\"]*\"[^\"]*$).*", "", text)
    return enumerate(text.splitlines(), 1)


def headings_of(file):
    fenced = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("#"):
            yield number, line


def faults(root):
    for folder in ("include", "tools", "python/kdvfs", "examples"):
        for file in sorted((root / folder).rglob("*")):
            if file.name == "byte_text.hpp":  # what a model is trained on
                continue
            if file.suffix in (".hpp", ".cpp", ".h", ".c", ".cu", ".py"):
                yield from faults_in(file, code_of(file), root)
    for file in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        yield from faults_in(file, headings_of(file), root)


def faults_in(file, lines, root):
    for number, line in lines:
        for word in dict.fromkeys(words_of(line)):
            if word in BETTER:
                yield f"{file.relative_to(root)}:{number}: '{word}': say {BETTER[word]}: {line.strip()}"


def sentences_of(file):
    """The sentences outside code, of paragraphs, list items and cells of tables. A piece of code is one word."""
    text = re.sub(r"```.*?```|^    [^\n]*$", "\n\n", file.read_text(), flags=re.S | re.M)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|#+) )|\||^#.*$", text, flags=re.M)
    for block in blocks:
        block = re.sub(r"`[^`]*`", "CODE", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split())))
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z0-9*\"(])|(?<=[.!?])\s+", block):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) >= 3:
                yield len(words), sentence


def main():
    root = Path(sys.argv[1])
    if "--self-test" in sys.argv:
        wrong = {"int too_short_to_tell = 0;": "tell", 'throw "the owner is not told";': "told", "class StatusTeller;": "teller"}
        for line, word in wrong.items():
            assert word in words_of(line), line
        for line in ("intelligence", "a timestamp", "thinner"):
            assert not set(words_of(line)) & set(BETTER), line
    found = list(faults(root))
    print("\n".join(found))
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    sentences = [sentence for page in pages for sentence in sentences_of(page)]
    long = [text for words, text in sentences if words > 30]
    if len(long) >= 0.03 * len(sentences):
        print("\n".join(long))
    print(f"{len(found)} words to replace; {len(long)} of {len(sentences)} sentences have more than 30 words")
    return 1 if found or len(long) >= 0.03 * len(sentences) else 0


if __name__ == "__main__":
    sys.exit(main())
