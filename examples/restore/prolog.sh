#!/bin/sh
# SPDX-License-Identifier: MIT
# A scheduler's prolog, run as root before a job: hands the clock files of the job's GPUs, and no
# others, to its user. kdvfs then needs no root (it uses amdgpu sysfs; ROCm SMI insists on root).
# GPUs are named by PCI address, which no visibility variable renumbers:
#   KDVFS_JOB_GPUS="0000:c1:00.0 0000:c4:00.0" prolog.sh USER
# Slurm: Prolog=/path/to/prolog.sh, with the addresses from the job's GRES.
user=${1:-$SLURM_JOB_USER}
[ -n "$user" ] || { echo "usage: prolog.sh USER" >&2; exit 1; }
for address in $KDVFS_JOB_GPUS; do
    case $address in
    *[!0-9a-f:.]*) echo "prolog.sh: no PCI address: $address" >&2; exit 1 ;;
    esac
    for file in power_dpm_force_performance_level pp_od_clk_voltage; do
        chown "$user" "/sys/bus/pci/devices/$address/$file" || exit 1
    done
done
