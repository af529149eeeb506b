#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes libraries to link against that offer no symbol newer than a given glibc.

    stub_libraries.py OUTPUT --compiler CC [--newest 2.28]

The symbols and versions are those of this machine's libc.so.6 and libm.so.6 (which keep every old
version), as `objdump -T` lists them. What is linked with `-L OUTPUT` before the system's folders then
runs on every glibc from NEWEST on: the linker cannot choose a newer version. The stubs have no code and
are never loaded: their names (SONAME) are those of the real libraries. libpthread, libdl and librt were
libraries of their own up to glibc 2.33; their stubs are empty and make a program load the real ones.
"""
import argparse
import itertools
import re
import subprocess
import sys
from pathlib import Path


def version_key(version):
    return [int(part) for part in version.split("_")[1].split(".")]


def symbols_of(library, newest):
    """{name: ([versions, oldest first], type, size, address, weak)} of what `library` defines up to `newest`."""
    output = subprocess.run(["objdump", "-T", library], check=True, capture_output=True,
                            text=True).stdout
    found = {}
    pattern = re.compile(r"^([0-9a-f]+) (.{7}) (\S+)\s+([0-9a-f]+)\s+\(?(GLIBC_[0-9.]+)\)?\s+(\S+)$")
    for line in output.splitlines():
        match = pattern.match(line)
        if not match or match[3] in ("*UND*", "*ABS*") or version_key(match[5]) > newest:
            continue
        kind = "object" if "O" in match[2][-1:] else "function"
        if match[3] == ".tbss" or match[3] == ".tdata":
            kind = "tls_object"
        symbol = found.setdefault(match[6], ([], kind, int(match[4], 16), match[1],
                                              match[2][1] == "w"))
        symbol[0].append(match[5])
    for symbol in found.values():
        symbol[0].sort(key=version_key)
    return found


def write_stub(folder, compiler, name, soname, symbols):
    assembly = [".text"]
    versions = set()
    sections = {"function": ".text", "object": '.section .bss,"aw",@nobits',
                "tls_object": '.section .tbss,"awT",@nobits'}
    # What has one address stays together: a program that has a copy of environ, which is weak,
    # exports __environ there, too.
    def place(item):
        return item[1][1], item[1][3]

    for (kind, _), group in itertools.groupby(sorted(symbols.items(), key=place), place):
        assembly += [sections[kind], ".balign 32"]
        reserved = 1
        for symbol, (defined, _, size, _, weak) in group:
            newest = defined[-1]  # what a link to the library of that time would have taken
            versions.add(newest)
            local = f"kdvfs_stub_{symbol}"
            assembly += [f".{'weak' if weak else 'globl'} {local}", f".type {local}, @{kind}",
                         f".size {local}, {max(size, 1)}", f"{local}:",
                         f".symver {local}, {symbol}@@{newest}, remove"]
            reserved = max(reserved, size)
        assembly.append(f".zero {1 if kind == 'function' else reserved}")
    source = folder / f"{name}.s"
    source.write_text("\n".join(assembly) + '\n.section .note.GNU-stack,"",@progbits\n')
    script = folder / f"{name}.map"
    script.write_text("".join(f"{version} {{ }};\n"
                              for version in sorted(versions, key=version_key)) or
                      "GLIBC_2.2.5 { };\n")
    library = folder / soname
    subprocess.run([compiler, "-shared", "-nostdlib", f"-Wl,-soname,{soname}",
                    f"-Wl,--version-script={script}", "-o", library, source], check=True)
    return library


def path_of(compiler, file):
    path = subprocess.run([compiler, f"-print-file-name={file}"], check=True, capture_output=True,
                          text=True).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"{compiler} does not find {file}: install the C library's development files")
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--newest", default="2.28")
    options = parser.parse_args()
    newest = version_key("GLIBC_" + options.newest)
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    libc = write_stub(folder, options.compiler, "c", "libc.so.6",
                      symbols_of(path_of(options.compiler, "libc.so.6"), newest))
    libm = write_stub(folder, options.compiler, "m", "libm.so.6",
                      symbols_of(path_of(options.compiler, "libm.so.6"), newest))
    empty = {name: write_stub(folder, options.compiler, name, soname, {})
             for name, soname in (("pthread", "libpthread.so.0"), ("dl", "libdl.so.2"),
                                  ("rt", "librt.so.1"))}
    # As the system's libc.so: the shared library, the part that is always static, the loader.
    rest = " ".join(f"{path}" for path in empty.values())
    (folder / "libc.so").write_text(
        f"GROUP ( {libc} {path_of(options.compiler, 'libc_nonshared.a')} {rest} "
        f"AS_NEEDED ( {path_of(options.compiler, 'ld-linux-x86-64.so.2')} ) )\n")
    (folder / "libm.so").write_text(f"GROUP ( {libm} )\n")


if __name__ == "__main__":
    main()
