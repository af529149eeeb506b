#!/bin/sh
# SPDX-License-Identifier: MIT
# A scheduler's prolog, run as root before a job: hands the job's GPUs, and no others, to its user:
# the clock files and the one that switches operating points, and in /run/kdvfs, which all users of the
# machine share, a folder and a lock for the clocks and for the point of each GPU. kdvfs then needs no root (it uses amdgpu sysfs; ROCm SMI insists on root).
# GPUs are named by PCI address, which no visibility variable renumbers:
#   KDVFS_JOB_GPUS="0000:c1:00.0 0000:c4:00.0" prolog.sh USER
# Slurm: Prolog=/path/to/prolog.sh, with the addresses from the job's GRES. Bind-mount /run/kdvfs
# into containers. Jobs that use kdvfs must not use --gpu-freq: see README.md.
user=${1:-$SLURM_JOB_USER}
shared=/run/kdvfs
restore=${KDVFS_RESTORE:-kdvfs-restore}
[ -n "$user" ] || { echo "usage: prolog.sh USER" >&2; exit 1; }
mkdir -p "$shared" && chown root "$shared" && chmod 0755 "$shared" || exit 1
for address in $KDVFS_JOB_GPUS; do
    case $address in
    *[!0-9a-f:.]*) echo "prolog.sh: no PCI address: $address" >&2; exit 1 ;;
    esac
    # What a job left behind whose epilog never ran, as when the node's daemon was restarted.
    for name in "$address" "$address-point" "$address-power"; do
        [ ! -e "$shared/$name/record" ] || "$restore" "$address" || exit 1
    done
    # What the epilog goes back to, whatever the job's own records say.
    # Where it fails, as on a board that does not tell its settings, to the driver's default.
    rm -rf "$shared/snapshots/$address" "$shared/snapshots/$address-point" \
        "$shared/snapshots/$address-power"
    "$restore" --snapshot "$address"
    for name in "$address" "$address-point"; do
        rm -rf "${shared:?}/$name"
        mkdir -m 0755 "$shared/$name" || exit 1
        # One lock for all users and containers, only opened for reading. A new one: whoever holds
        # the last one still, as an escaped process of an earlier job, holds nothing.
        rm -f "$shared/$name.lock" && (umask 077 && : >"$shared/$name.lock") || exit 1
        chmod 0400 "$shared/$name.lock" || exit 1
        chown "$user" "$shared/$name" "$shared/$name.lock" || exit 1
    done
    # For processes of the job that share the GPU.
    rm -rf "${shared:?}/$address.votes"
    mkdir -m 0700 "$shared/$address.votes" && chown "$user" "$shared/$address.votes" || exit 1
    for file in power_dpm_force_performance_level pp_od_clk_voltage pp_dpm_sclk \
        app_modes/active_profile; do
        path=/sys/bus/pci/devices/$address/$file
        [ ! -e "$path" ] || chown "$user" "$path" || exit 1
    done
done
