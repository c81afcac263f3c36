#!/bin/sh
# shellcheck disable=SC2154  # $ncu and $compiler come from ncu.sh
# discover.sh BUILD FOLDER [SECONDS]: what Nsight Compute can count about the asynchronous copies, ldmatrix and wgmma, to find
# out which metric is which. On the machine with the GPU:
#
#     cmake -S . -B build/gpu -G Ninja -DBACKEND=gpu && ninja -C build/gpu calibration
#     tests/calibration/discover.sh build/gpu /tmp/discovered
#
# FOLDER gets all names of metrics (metrics.log.gz), the value of each one that looks like ours in each kernel of the group
# `copies` (discovered.csv: kernel,metric,value, without zeros; asked.txt lists what was asked for), ncu's tables
# (tables.tar.gz), and the memory instructions of the compiled kernels (sass.txt). All runs of ncu together take at most
# SECONDS (default 70); one that fails is said and left out.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case $# in 2 | 3) ;; *) echo "usage: discover.sh BUILD FOLDER [SECONDS]" >&2; exit 2 ;; esac
build=$1
folder=$2
deadline=$(($(date +%s) + ${3:-70}))
work=$folder/logs
list=$here/metrics.txt
# shellcheck disable=SC1091  # it is beside this script, wherever that is called from
. "$here/ncu.sh"

# run_group NAME: the metrics in NAME.txt, in $limit seconds at most.
run_group() {
    timeout "$limit" "$ncu" --clock-control none --csv --page raw --print-units base --print-kernel-base function \
        --metrics "$(join <"$work/$1.txt")" --log-file "$work/$1.csv" "$program" copies >"$work/$1.out" 2>&1 </dev/null
}

find_ncu
find_compiler "$build"
program=$build/tests/calibration/calibration
[ -x "$program" ] || stop "there is no $program; build the target calibration first"
mkdir -p "$work"
dump_sass "$program" "$folder/sass.txt"
"$program" copies >"$work/names.txt" || echo "discover.sh: the program itself fails" >&2

"$ncu" --query-metrics --chip gh100 >"$work/metrics.log" 2>&1 || "$ncu" --query-metrics >"$work/metrics.log" 2>&1 || true
gzip -c "$work/metrics.log" >"$folder/metrics.log.gz"
awk '$1 ~ /^[a-z0-9_]+__[a-z0-9_]+$/ && $2 !~ /^(Ratio|Throughput)$/ { print $1 }' "$work/metrics.log" |
    sort -u >"$work/counters.txt"

# Groups of metrics, likeliest first: name, seconds, how many at most, pattern.
groups='
known 40 45 ^(l1tex__(t_(requests|sectors)_pipe_lsu_mem_global_op_(ld|st)|data_(pipe_lsu_wavefronts|bank_conflicts_pipe_lsu)_mem_shared(_op_(ld|st|ldgsts|ldsm|stsm)[a-z_]*)?|m_[a-z0-9_]*_sectors_mem_global_op_(tma|ldgsts|ublk|bulk)[a-z_]*|t_(requests|sectors)_pipe_lsu_mem_global_op_ldgsts(_cache_access|_cache_bypass)?)|smsp__inst_executed_op_(shared_ld|shared_st|ldgsts|ldsm|stsm|ldgsts_cache_(access|bypass)|[a-z]*(tma|blk)[a-z_]*))$
sass 25 40 ^smsp__sass_(l1tex_[a-z0-9_]*|inst_executed_op_[a-z0-9_]*|data_bytes_mem_[a-z0-9_]*)(ldgsts|ldsm|stsm|tma|utm|ublk|bulk|gmma)[a-z_]*$
l1tex 30 50 ^l1tex__(data_(pipe_lsu_wavefronts[a-z_]*|bank_reads|bank_writes)|[a-z0-9_]*(ldgsts|tma|bulk|async|gmma)[a-z0-9_]*|m_(xbar2l1tex_read|l1tex2xbar_write)_sectors[a-z_]*)$
other 25 50 ^(lts__t_(requests|sectors)_srcunit_tex(_op_(read|write|red))?|(lts|sm|smsp|idc)__[a-z0-9_]*(tma|gmma|bulk|async)[a-z0-9_]*|sm__(inst_executed_pipe_(tensor|uniform)|ops_path_tensor_src_fp16)[a-z0-9_]*)$
'
: >"$folder/asked.txt"
: >"$folder/discovered.csv"
echo "$groups" | while read -r group limit most pattern; do
    [ -n "$group" ] || continue
    started=$(date +%s)
    [ "$limit" -le $((deadline - started)) ] || limit=$((deadline - started))
    [ "$limit" -gt 3 ] || { echo "discover.sh: no time left for $group" >&2; continue; }
    # What was asked for already, hit rates and other parts of a whole are left out.
    sed 's/\.sum$//' "$folder/asked.txt" >"$work/asked.tmp"
    grep -E "$pattern" "$work/counters.txt" | grep -vE 'lookup|surface|texture|_local|pred_o|aperture|remote|evict' |
        grep -vxFf "$work/asked.tmp" | head -n "$most" | sed 's/$/.sum/' >"$work/$group.txt" || true
    [ -s "$work/$group.txt" ] || { echo "discover.sh: no metric of the group $group" >&2; continue; }
    run_group "$group" || {
        echo "discover.sh: the run for $group failed (exit code $?): $(grep -h '^==ERR' "$work/$group".* | head -n 3)" >&2
        # Without those that ncu named in its complaint, once more.
        grep -h '^==' "$work/$group".* | grep -oE '[a-z0-9]+__[a-z0-9_]+' | sort -u >"$work/refused.txt" || true
        if [ -s "$work/refused.txt" ] && [ $(($(date +%s) - started)) -lt 10 ]; then
            grep -vFf "$work/refused.txt" "$work/$group.txt" >"$work/again.txt" || true
            mv "$work/again.txt" "$work/$group.txt"
            run_group "$group" || echo "discover.sh: and failed again (exit code $?)" >&2
        fi
    }
    cat "$work/$group.txt" >>"$folder/asked.txt"
    echo "$group: $(grep -c . "$work/$group.txt") metrics, $(($(date +%s) - started)) s"
    [ ! -s "$work/$group.csv" ] ||
        awk -v mode=all -f "$here/convert.awk" "$list" "$work/names.txt" "$work/$group.csv" \
            >>"$folder/discovered.csv" || true
done
tar -C "$folder" -czf "$folder/tables.tar.gz" logs
echo "$folder/discovered.csv: $(cut -d, -f2 "$folder/discovered.csv" | sort -u | grep -c .) metrics that are not always 0"
