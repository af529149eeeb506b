#!/bin/sh
# SPDX-License-Identifier: MIT
# sh wheel.sh SOURCE LIBRARY WORK PYTHON: builds the wheel, installs it into a fresh environment
# without network, and measures a simulated GPU there.
set -eu
source=$1 library=$2 work=$3 python=$4
rm -rf "$work"
wheel=$("$python" "$source/python/make_wheel.py" "$library" "$work")
"$python" -m venv "$work/venv" || { echo "skipped: this Python cannot make environments"; exit 77; }
"$work/venv/bin/pip" install --quiet --no-index --no-deps --disable-pip-version-check "$wheel"
cd "$work"  # not beside the source
env -u PYTHONPATH -u KDVFS_LIBRARY "$work/venv/bin/python" - <<'PY'
import kdvfs
import kdvfs.callbacks

assert "site-packages" in kdvfs.__file__, kdvfs.__file__
with kdvfs.open_simulated("h100", meter_every=1) as gpu:
    for _ in kdvfs.callbacks.iterations(gpu, range(5)):
        with gpu.scope("gemm"):
            gpu.launch(matrix_flops=4e13)
        gpu.synchronize()
    row, = gpu.report()["rows"]
    assert row["calls"] == 5, row
print("kdvfs", kdvfs.version(), "from", kdvfs.__file__)
PY
