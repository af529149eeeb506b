#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the built programs in a root of Debian 11 (glibc 2.31), the oldest that can be had.
#   old_root.sh FOLDER KDVFS RESTORE ATTACH C_LIBRARY SWITCH_LATENCY
# Needs root, debootstrap and a mirror of Debian: exit status 77 without.
set -eu
root=$1
shift
[ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null || exit 77
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
if [ ! -x "$root/bin/sh" ]; then
    debootstrap --variant=minbase bullseye "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 || exit 77
fi
mkdir -p "$root/kdvfs"
for file; do
    cp -L "$file" "$root/kdvfs/"
done
cat >"$root/kdvfs/try.sh" <<'END'
set -eu
ldd --version | head -n 1
/kdvfs/kdvfs --version
printf "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j\\ng,a,auto,auto,1,100\\ng,a,900,auto,1,80\\n" >/kdvfs/sweep.csv
/kdvfs/kdvfs plan /kdvfs/sweep.csv --max-slowdown 1%
/kdvfs/kdvfs-restore --help >/dev/null
/kdvfs/kdvfs measure-latency --program /kdvfs/switch-latency --device sim:mi210 --repeat 3 --clocks 500,1700 -o /kdvfs/latency.csv
KDVFS_ATTACH_FOLDER=/tmp LD_PRELOAD=/kdvfs/libkdvfs_attach.so true
LD_PRELOAD=/kdvfs/libkdvfs_c.so true
END
chroot "$root" sh /kdvfs/try.sh
