#!/bin/sh
# SPDX-License-Identifier: MIT
# `kdvfs run --save` on a real NVIDIA GPU whose clocks cannot be set: the driver's library is put
# behind one that refuses every setting (refusing_nvml.c), whatever rights the user has. In under
# two minutes, of a PyTorch training. It loads and reads the GPU and never changes its clocks,
# power limit or modes.
#   sh bench/nvidia_round/self_tuning.sh OUTPUT_FOLDER
# Results in OUTPUT_FOLDER: report.txt, ledger.csv, ledger.txt (what `kdvfs ledger` says of it),
# refused.txt (what was asked for and refused), train.txt.
#   KDVFS_COMMAND  the command `kdvfs` (default: kdvfs)
#   PYTHON         with PyTorch (default: python3)
#   NVML           the driver's library (default: the loader's libnvidia-ml.so.1)
#   KDVFS_STEPS    of the training (default 700)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?output folder}
mkdir -p "$out"
out=$(cd "$out" && pwd)
command=${KDVFS_COMMAND:-kdvfs}
python=${PYTHON:-python3}
nvml=${NVML:-$(ldconfig -p | sed -n 's/.*libnvidia-ml\.so\.1 (.*x86-64) => //p' | head -n 1)}
[ -f "$nvml" ] || { echo "no libnvidia-ml.so.1 here; name it in NVML" >&2; exit 2; }

shim=$(mktemp -d)
trap 'rm -rf "$shim"' EXIT
# The copy has a name of its own, as two libraries of one name are one to the loader.
sed 's/libnvidia-ml\.so\.1/libnvidia-mk.so.1/g' "$nvml" >"$shim/libnvidia-mk.so.1"
${CC:-cc} -shared -fPIC -w -Wl,--no-as-needed -Wl,-soname,libnvidia-ml.so.1 -Wl,-rpath,"$shim" \
    "$here/refusing_nvml.c" "$shim/libnvidia-mk.so.1" -o "$shim/libnvidia-ml.so.1"

# 4 is the refusal (NVML_ERROR_NO_PERMISSION); the driver's own library would not be initialized, 1.
LD_LIBRARY_PATH=$shim "$python" -c 'import ctypes, sys
sys.exit(ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceResetGpuLockedClocks(None) != 4)' ||
    { echo "nothing would be refused here" >&2; exit 2; }

: >"$out/refused.txt"
rm -f "$out/ledger.csv"
status=0
REFUSED_LOG=$out/refused.txt LD_LIBRARY_PATH=$shim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
    timeout 300 "$command" run --save --ledger "$out/ledger.csv" --report "$out/report.txt" -- \
    "$python" "$here/../attach_round/train.py" --steps "${KDVFS_STEPS:-700}" \
    >"$out/train.txt" 2>&1 || status=$?
echo "exit status $status; refused: $(sort "$out/refused.txt" | uniq -c | tr '\n' ' ')"
tail -n 5 "$out/train.txt"
[ -f "$out/report.txt" ] && cat "$out/report.txt"
"$command" ledger "$out/ledger.csv" 2>&1 | tee "$out/ledger.txt"
exit $status
