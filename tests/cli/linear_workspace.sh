#!/bin/sh
# linear_workspace.sh - the memory that a lab's kernels ask for beside inputs and outputs grows with the tokens and not with
# their square, and by less than inputs and outputs do. A second launch keeps none that it took itself.
#
#     linear_workspace.sh LAB
set -u
lab=$1
report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT
# look TOKENS: a line "kernel workspace memory" for each kernel that ran, in all 0 bytes of growth
look() {
    "$lab" --full --heads 1 --dim 64 --seqlen "$1" --json "$report" >/dev/null
    code=$?
    [ "$code" -ne 77 ] || exit 77 # no GPU
    [ "$code" -eq 0 ] || echo "seqlen $1: exit $code"
    sed -n 's/^{"kernel": "\([^"]*\)".*"ran": true.*"workspace_bytes": \([0-9]*\), "memory_bytes": \([0-9]*\), "growth_bytes": 0[,}].*/\1 \2 \3/p' \
        "$report"
}
first=$(look 128) && second=$(look 256) && third=$(look 384)
code=$?
[ "$code" -ne 77 ] || exit 77
all=$(grep -c '^{"kernel": .*"ran": true' "$report")
printf '%s\n' "$first" "$second" "$third" | awk -v all="$all" '
    NF != 3 { print; bad = 1; next }
    { n = ++count[$1]; workspace[$1, n] = $2; memory[$1, n] = $3 }
    END {
        for (kernel in count) {
            kernels++
            grown = workspace[kernel, 2] - workspace[kernel, 1]
            all_grown = memory[kernel, 2] - memory[kernel, 1]
            if (count[kernel] == 3 && workspace[kernel, 1] > 0 && workspace[kernel, 3] - workspace[kernel, 2] == grown &&
                2 * grown < all_grown) continue
            print kernel ": workspace " workspace[kernel, 1] ", " workspace[kernel, 2] " and " workspace[kernel, 3] \
                " bytes at 128, 256 and 384 tokens"
            bad = 1
        }
        if (!kernels || kernels != all) { print kernels + 0 " of " all " kernels ran and kept no memory"; bad = 1 }
        exit bad
    }'
