# ncu.sh - what refresh.sh, lab_counters.sh and discover.sh share; to be sourced, with $here set to this folder, $work to one
# for logs and $list to the file that names the metrics, as metrics.txt does.
# shellcheck shell=sh disable=SC2154

stop() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Sets ncu to Nsight Compute's command.
find_ncu() {
    ncu=$(command -v ncu || true)
    for path in /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu; do
        if [ -z "$ncu" ] && [ -x "$path" ]; then ncu=$path; fi
    done
    [ -n "$ncu" ] || stop "there is no ncu here; install Nsight Compute (package nsight-compute) or put it on PATH"
    command -v nvidia-smi >/dev/null || stop "there is no nvidia-smi here, so no GPU; run this on the machine with the GPU"
}

# Sets compiler to the nvcc that the build folder $1 was made with.
find_compiler() {
    compiler=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$1/CMakeCache.txt" 2>/dev/null | head -n 1)
    [ -x "$compiler" ] || stop "$1 is not a build folder of the gpu backend; see the first lines of this script"
}

# Prints the lines that say where the numbers are from. Its arguments: which script.
print_source() {
    echo "# What Nsight Compute counted; written by tests/calibration/$1, never by hand."
    echo "# date: $(date -u +%Y-%m-%d)"
    echo "# GPU: $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"
    echo "# driver: $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"
    echo "# CUDA: $("$compiler" --version | sed -n 's/.*release.* V//p')"
    echo "# ncu: $("$ncu" --version | sed -n 's/^Version //p')"
    echo "# metrics: $metrics"
}

# run_ncu CSV OUTPUT METRICS PROGRAM ARGUMENT...: ncu's table in CSV, what the program printed in OUTPUT. With $limit: only
# that many launches.
run_ncu() {
    table=$1 printed=$2 wanted=$3
    shift 3
    rm -f "$table"
    # shellcheck disable=SC2086  # $limit is nothing or two words
    LC_ALL=C "$ncu" --clock-control none ${limit:+--launch-count $limit} --csv --page raw --print-units base \
        --print-kernel-base function --metrics "$wanted" --log-file "$table" "$@" >"$printed" 2>"$printed.err" </dev/null
}

# Joins lines with commas.
join() { tr '\n' ',' | sed 's/,$//'; }

metrics_of() {
    awk -v kinds="$1" '
        (NF == 3 || NF == 4) && $1 !~ /^#/ && index(kinds, $3) {
            n = split($2, part, /[+-]/)
            for (i = 1; i <= n; i++) if (!(part[i] in seen)) { print part[i]; seen[part[i]] = 1 }
        }' "$list"
}

# probe METRICS PROGRAM...: prints those that ncu has a value of, from one launch.
probe() {
    wanted_here=$1
    shift
    limit=1
    run_ncu "$work/probe.csv" "$work/probe.out" "$wanted_here" "$@" || true
    limit=''
    [ ! -s "$work/probe.csv" ] || awk -v mode=probe -f "$here/convert.awk" "$list" "$work/probe.csv"
}

# choose_metrics PROGRAM...: sets metrics to all that this ncu has on this GPU. If one is missing, each is tried alone, and
# all that ncu offers go to a log. Stops if a counter to be compared cannot be had.
choose_metrics() {
    all=$(metrics_of 'compared atomic')
    metrics=$(probe "$(echo "$all" | join)" "$@" | join)
    if [ "$metrics" != "$(echo "$all" | join)" ]; then
        echo "ncu lacks some metrics; its message is in $work/first-probe.*, all that it has in $work/query-metrics.log" >&2
        for file in csv out out.err; do cp "$work/probe.$file" "$work/first-probe.$file" 2>/dev/null || true; done
        {
            "$ncu" --query-metrics --query-metrics-mode base ||
            "$ncu" --query-metrics
        } 2>&1 | grep -E 'mem_global|mem_shared|shared_(ld|st|atom|load|store)|global_(ld|st|red|atom|load|store)|^=' \
            >"$work/query-metrics.log" || true
        had=,
        metrics=$(awk '(NF == 3 || NF == 4) && $1 !~ /^#/ { print $1 "," $2 }' "$list" | while IFS=, read -r counter metric; do
            case $had in *,$counter,*) continue ;; esac  # an alternative is not needed
            parts=$(echo "$metric" | sed 's/[+-]/,/g')
            if [ -n "$(probe "$parts" "$@")" ]; then
                echo "$parts"
                had="$had$counter,"
            else
                { echo "== $metric"; cat "$work/probe.csv" "$work/probe.out.err" 2>/dev/null; } >>"$work/missing-metrics.log"
            fi
        done | join)
        [ -n "$metrics" ] || stop "ncu collects nothing here; its messages are in $work/missing-metrics.log"
    fi
    missing=$(echo "$metrics" | tr ',' '\n' | awk '
        NR == FNR { have[$1] = 1; next }
        NF < 3 || NF > 4 || $1 ~ /^#/ || $3 == "atomic" { next }
        {
            known[$1] = 1
            n = split($2, part, /[+-]/)
            for (i = 1; i <= n; i++) if (!(part[i] in have)) next
            found[$1] = 1
        }
        END { for (counter in known) if (!(counter in found)) print counter }' - "$list" | sort | join)
    [ -z "$missing" ] || stop "this ncu has no metric for $missing; see $work/query-metrics.log and correct metrics.txt"
}

# dump_sass PROGRAM OUTPUT: the instructions that access memory, kernel by kernel, where there is a cuobjdump.
dump_sass() {
    cuobjdump=$(command -v cuobjdump || echo "$(dirname "$compiler")/cuobjdump")
    [ -x "$cuobjdump" ] || { echo "there is no cuobjdump here: no SASS in $2" >&2; return 0; }
    "$cuobjdump" --dump-sass "$1" | grep -E 'Function :|[^A-Z](LD|ST|LDG|STG|LDS|STS|LDSM|STSM|LDGSTS|UBLKCP|UBLKRED|UTMA[A-Z]*|HGMMA|ATOM|ATOMG|ATOMS|RED|REDG)[. ]' |
        sed 's/ */ /; s/\/\* 0x[0-9a-f]* \*\///' >"$2" || true
}
