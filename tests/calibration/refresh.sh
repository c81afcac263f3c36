#!/bin/sh
# shellcheck disable=SC2154  # $metrics comes from ncu.sh
# refresh.sh BUILD [FOLDER [GROUP...]]: writes the CSVs of the calibration anew, from Nsight Compute's counters of every kernel:
# h200.csv of the group `memory`, h200_copies.csv of the group `copies` (default: both). On the machine with the GPU:
#
#     cmake -S . -B build/gpu -G Ninja -DBACKEND=gpu && ninja -C build/gpu calibration
#     tests/calibration/refresh.sh build/gpu
#
# The CSVs go to FOLDER (default: here); FOLDER/logs gets ncu's tables and the memory instructions of the compiled kernels
# (sass.txt), which show what nvcc merged or left out. Commit the CSVs only.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: refresh.sh BUILD [FOLDER [GROUP...]]" >&2; exit 2; }
build=$1
folder=${2:-$here}
work=$folder/logs
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- memory copies
# shellcheck disable=SC1091  # it is beside this script, wherever that is called from
. "$here/ncu.sh"

find_ncu
find_compiler "$build"
program=$build/tests/calibration/calibration
[ -x "$program" ] || stop "there is no $program; build the target calibration first"
mkdir -p "$work"
dump_sass "$program" "$work/sass.txt"

for group; do
    list=$work/$group-metrics.txt
    case $group in
    memory) csv=h200.csv; cat "$here/metrics.txt" ;;
    copies) csv=h200_copies.csv; cat "$here/metrics.txt" "$here/metrics_copies.txt" ;;
    *) stop "there is no group '$group'; there are: memory, copies" ;;
    esac >"$list"
    choose_metrics "$program" "$group"
    run_ncu "$work/$group-ncu.csv" "$work/$group-names.txt" "$metrics" "$program" "$group" || {
        cat "$work/$group-names.txt.err" >&2
        grep '^==' "$work/$group-ncu.csv" | tail -n 20 >&2 || true
        stop "ncu failed; its messages are above and in $work"
    }
    {
        print_source refresh.sh
        echo "kernel,counter,value"
        awk -v mode=names -f "$here/convert.awk" "$list" "$work/$group-names.txt" "$work/$group-ncu.csv"
    } >"$work/$csv"
    mv "$work/$csv" "$folder/$csv"
    echo "$folder/$csv: $(grep -c '^[a-z].*[0-9]$' "$folder/$csv") counters of $(grep -c . "$work/$group-names.txt") launches"
done
