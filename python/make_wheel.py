#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a wheel of the Python package with libkdvfs_c in it, without network and without pip.

    python3 python/make_wheel.py LIBRARY FOLDER

LIBRARY is libkdvfs_c.so as the build made it; the wheel goes to FOLDER and serves every Python from
3.9 on this kind of machine, with the glibc that its name says or a newer one. It prints the wheel's path.
"""

import base64
import hashlib
import pathlib
import re
import sys
import sysconfig
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parent


def platform_of(library: bytes) -> str:
    """The platform tag: Linux with the newest glibc of which `library` wants a symbol (PEP 600)."""
    minors = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library)]
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return platform.replace("linux_", f"manylinux_2_{max(minors)}_", 1) if minors else platform


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    library, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    project = (SOURCE / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"', project, re.M).group(1)
    summary = re.search(r'^description = "(.*)"', project, re.M).group(1)
    platform = platform_of(library.read_bytes())
    info = f"kdvfs-{version}.dist-info"
    files = {f"kdvfs/{path.name}": path.read_bytes()
             for path in sorted((SOURCE / "kdvfs").iterdir()) if path.is_file()}
    files["kdvfs/libkdvfs_c.so.1"] = library.read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: kdvfs\nVersion: {version}\nSummary: {summary}\n"
        f"License: MIT\nRequires-Python: >=3.9\n"
        f"Description-Content-Type: text/markdown\n\n{(SOURCE / 'README.md').read_text()}"
    ).encode()
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: kdvfs\nRoot-Is-Purelib: false\n"
        f"Tag: py3-none-{platform}\n"
    ).encode()
    record = f"{info}/RECORD"
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = ("".join(lines) + f"{record},,\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"kdvfs-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    print(wheel)


if __name__ == "__main__":
    main()
