#!/bin/sh
# shellcheck disable=SC2154  # $metrics comes from ncu.sh
# lab_counters.sh BUILD [FOLDER]: writes h200_labs.csv anew, from Nsight Compute's counters of the kernels of labs 01 and 02:
# one head, 512 queries and keys, head dimension 64. On the machine with the GPU:
#
#     cmake -S . -B build/gpu -G Ninja -DBACKEND=gpu && ninja -C build/gpu lab01_naive lab02_online_softmax
#     tests/calibration/lab_counters.sh build/gpu
#
# A lab launches its kernels several times, to check and to time them; the first launch of each stands for all. A row says
# which option --kernel the lab ran with. The CSV goes to FOLDER (default: here), logs to FOLDER/logs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case $# in 1 | 2) ;; *) echo "usage: lab_counters.sh BUILD [FOLDER]" >&2; exit 2 ;; esac
build=$1
folder=${2:-$here}
work=$folder/logs
list=$here/metrics.txt
# shellcheck disable=SC1091  # it is beside this script, wherever that is called from
. "$here/ncu.sh"

find_ncu
find_compiler "$build"
for lab in lab01_naive lab02_online_softmax; do
    [ -x "$build/$lab" ] || stop "there is no $build/$lab; build it first"
done
mkdir -p "$work"

shape='--batch 1 --heads 1 --seqlen 512 --dim 64'
# shellcheck disable=SC2086  # options are plain words
choose_metrics "$build/lab01_naive" --kernel naive $shape
: >"$work/labs.csv"
for pair in lab01_naive:naive lab01_naive:tiled lab02_online_softmax:safe lab02_online_softmax:online \
    lab02_online_softmax:fused; do
    lab=${pair%:*}
    kernel=${pair#*:}
    # shellcheck disable=SC2086
    run_ncu "$work/$lab-$kernel.csv" "$work/$lab-$kernel.out" "$metrics" "$build/$lab" --kernel "$kernel" $shape || {
        tail -n 20 "$work/$lab-$kernel.out" "$work/$lab-$kernel.out.err" >&2
        stop "ncu or $lab failed; what they said is above and in $work"
    }
    awk -v mode=labs -v prefix="$pair" -f "$here/convert.awk" "$list" "$work/$lab-$kernel.csv" >>"$work/labs.csv"
    dump_sass "$build/$lab" "$work/$lab-sass.txt"
done
{
    print_source lab_counters.sh
    echo "# shape: $shape"
    echo "lab,function,launch,counter,value"
    cat "$work/labs.csv"
} >"$folder/h200_labs.csv"
rm "$work/labs.csv"
echo "$folder/h200_labs.csv: $(grep -c '^lab[0-9]' "$folder/h200_labs.csv") counters"
