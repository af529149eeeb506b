#!/bin/sh
# SPDX-License-Identifier: MIT
# A scheduler's epilog, run as root when a job is over, whatever became of it: puts back the clocks
# that a killed container left changed, then takes the job's GPUs, and no others, back from its
# user. GPUs as for prolog.sh:
#   KDVFS_JOB_GPUS="0000:c1:00.0 0000:c4:00.0" epilog.sh
# Slurm: Epilog=/path/to/epilog.sh. Where clocks could not be put back it fails, and Slurm drains
# the node.
shared=/run/kdvfs
restore=${KDVFS_RESTORE:-kdvfs-restore}

# give_back ADDRESS: fails where its clocks are not back, or their files still the user's.
give_back() {
    "$restore" "$1"
    owed=$?
    kept=0
    for file in power_dpm_force_performance_level pp_od_clk_voltage pp_dpm_sclk \
        app_modes/active_profile; do
        path=/sys/bus/pci/devices/$1/$file
        [ ! -e "$path" ] || { chown root "$path" && chmod 0644 "$path"; } || kept=1
    done
    # A process of the job that escaped may hold the lock still, but has lost the clock files.
    [ $owed -eq 0 ] || { "$restore" --suspended "$1" && owed=0; }
    rm -rf "${shared:?}/$1.votes"
    for name in "$1" "$1-point"; do
        if [ -e "$shared/$name" ]; then
            chown root "$shared/$name" && chmod 0755 "$shared/$name"
            [ $owed -ne 0 ] || rm -rf "${shared:?}/$name"  # else it is left for whoever looks into it
        fi
        [ ! -e "$shared/$name.lock" ] ||
            { chown root "$shared/$name.lock" && chmod 0600 "$shared/$name.lock"; }
    done
    [ $owed -ne 0 ] || rm -rf "$shared/snapshots/$1" "$shared/snapshots/$1-point" \
        "$shared/snapshots/$1-power"
    [ $owed -eq 0 ] && [ $kept -eq 0 ]
}

status=0
for address in $KDVFS_JOB_GPUS; do
    case $address in
    *[!0-9a-f:.]*) echo "epilog.sh: no PCI address: $address" >&2; status=1 ;;
    *) give_back "$address" || status=1 ;;
    esac
done
exit $status
