#!/bin/sh
# compare.sh [--least PERCENT] H200.csv EXCEPTIONS PROGRAM ARGUMENT...: whether the simulated device counted what Nsight
# Compute did. The program prints kernel,counter,value, H200.csv has the same lines from the GPU. EXCEPTIONS has the counters
# that differ and why: kernel,counter,cpu,ncu,reason. A line of it stands only as long as both values are those that it states
# ('-': not counted). What fails is printed in that same format. Counters that are 0 on both sides are left out of the sum, or
# most would be such. At least 95 % must be equal, or PERCENT. Exit code 1 unless all is well.
#
# Atomics: nvcc makes RED of one whose old value nobody uses, else ATOM, and ncu counts the two apart. The simulated device
# cannot see that use. So global_red_* plus global_atom_* of the GPU is held to global_atomic_*, and shared_atom_* to
# shared_atomic_*.
set -eu
least=95
if [ "${1:-}" = --least ]; then
    least=${2:-}
    shift $(($# < 2 ? $# : 2))
fi
case $least in '' | *[!0-9]*) set -- ;; esac
[ $# -ge 3 ] || { echo "usage: compare.sh [--least PERCENT] H200.csv EXCEPTIONS PROGRAM ARGUMENT..." >&2; exit 2; }
expected=$1
exceptions=$2
shift 2
for file in "$expected" "$exceptions"; do
    [ -r "$file" ] || { echo "compare.sh: cannot read $file" >&2; exit 2; }
done
counted=$(mktemp)
trap 'rm -f "$counted"' EXIT
"$@" >"$counted" || { echo "compare.sh: $1 failed with exit code $?" >&2; exit 1; }
awk -F, -v least="$least" '
    function complain(message) { print message; failures++ }
    function note(table, value,    key) {
        if (NF != 3 || $3 !~ /^-?[0-9]+$/) return complain(FILENAME ":" FNR ": not kernel,counter,value: " $0)
        key = $1 "," $2
        if (key in table) complain(FILENAME ":" FNR ": twice: " key)
        table[key] = $3
        if (!(key in all)) { all[key] = 1; order[++n] = key }
    }
    FNR == 1 { file++ }
    /^#/ || /^$/ || /^kernel,counter,/ { next }
    file == 1 { note(cpu); in_cpu[$1] = 1; next }
    file == 2 && /,(global|shared)_(red|atom)_/ {
        if (($1 "," $2) in gpu_atomic) complain(FILENAME ":" FNR ": twice: " $1 "," $2)
        gpu_atomic[$1 "," $2] = 1
        sub(/_(red|atom)_/, "_atomic_", $2)
        other = ($1 "," $2) in gpu ? gpu[$1 "," $2] : 0
        delete gpu[$1 "," $2]
        $3 += other
    }
    file == 2 { note(gpu); in_gpu[$1] = 1; next }
    {
        key = $1 "," $2
        reason = $0
        sub(/^[^,]*,[^,]*,[^,]*,[^,]*,? */, "", reason)
        if (NF < 5 || length(reason) < 10) complain(FILENAME ":" FNR ": not kernel,counter,cpu,ncu,reason: " $0)
        else if (key in stated_cpu) complain(FILENAME ":" FNR ": twice: " key)
        else if (!(key in all)) complain(FILENAME ":" FNR ": no such counter: " key)
        else if ($3 == $4) complain(FILENAME ":" FNR ": the two values are equal: " key)
        stated_cpu[key] = $3
        stated_gpu[key] = $4
    }
    END {
        for (i = 1; i <= n; i++) {
            key = order[i]
            kernel = key
            sub(/,.*/, "", kernel)
            if (!(kernel in in_gpu) || !(kernel in in_cpu)) {
                if (!(kernel in told)) {
                    if (kernel in in_cpu) complain("kernel " kernel " is not in the CSV of the GPU: run refresh.sh there")
                    else complain("kernel " kernel " is in the CSV of the GPU, but the program has none: run refresh.sh there")
                }
                told[kernel] = 1
                continue
            }
            here = key in cpu ? cpu[key] : "-"
            there = key in gpu ? gpu[key] : "-"
            if (here == "0" && there == "0" && !(key in stated_cpu)) continue
            counters++
            if (key in stated_cpu) {
                if (stated_cpu[key] == here && stated_gpu[key] == there) explained++
                else complain(key "," here "," there ", but the exceptions say " stated_cpu[key] "," stated_gpu[key])
            } else if (here == there) equal++
            else complain(key "," here "," there ",")
        }
        printf "%d counters, %d equal, %d explained\n", counters, equal, explained
        if (!counters) complain("nothing was compared")
        else if (100 * equal < least * counters) complain("fewer than " least " % of the counters are equal")
        if (failures) printf "%d failures; above, as kernel,counter,cpu,ncu,\n", failures
        exit failures ? 1 : 0
    }' "$counted" "$expected" "$exceptions"
