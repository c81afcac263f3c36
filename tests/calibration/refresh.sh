#!/bin/sh
# shellcheck disable=SC2154  # $metrics comes from ncu.sh
# refresh.sh BUILD [FOLDER]: writes h200.csv anew, from Nsight Compute's counters of every kernel of the calibration. On the
# machine with the GPU:
#
#     cmake -S . -B build/gpu -G Ninja -DBACKEND=gpu && ninja -C build/gpu calibration
#     tests/calibration/refresh.sh build/gpu
#
# The CSV goes to FOLDER (default: here); FOLDER/logs gets ncu's table and the memory instructions of the compiled kernels
# (sass.txt), which show what nvcc merged or left out. Commit the CSV only.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case $# in 1 | 2) ;; *) echo "usage: refresh.sh BUILD [FOLDER]" >&2; exit 2 ;; esac
build=$1
folder=${2:-$here}
work=$folder/logs
# shellcheck disable=SC1091  # it is beside this script, wherever that is called from
. "$here/ncu.sh"

find_ncu
find_compiler "$build"
program=$build/tests/calibration/calibration
[ -x "$program" ] || stop "there is no $program; build the target calibration first"
mkdir -p "$work"

choose_metrics "$program"
dump_sass "$program" "$work/sass.txt"
run_ncu "$work/ncu.csv" "$work/names.txt" "$metrics" "$program" || {
    cat "$work/names.txt.err" >&2
    grep '^==' "$work/ncu.csv" | tail -n 20 >&2 || true
    stop "ncu failed; its messages are above and in $work"
}
{
    print_source refresh.sh
    echo "kernel,counter,value"
    awk -v mode=names -f "$here/convert.awk" "$here/metrics.txt" "$work/names.txt" "$work/ncu.csv"
} >"$work/h200.csv"
mv "$work/h200.csv" "$folder/h200.csv"
echo "$folder/h200.csv: $(grep -c '^[a-z].*[0-9]$' "$folder/h200.csv") counters of $(grep -c . "$work/names.txt") launches"
