#!/bin/sh
# workspace.sh - the memory that lab 06's kernels ask for beside inputs and outputs: with dQ in fp32 (columns in sixteens) and
# vectors of one fp32 number for each query, `separate` has one vector, `fused` dQ and one, `fused_deterministic` dQ, two, and
# one number. `stored` has a vector and two matrices of 16-bit scores. A second launch keeps none that it took itself.
#
#     workspace.sh LAB
set -u
lab=$1
report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT
failures=0
# look QUERIES KEYS DIM OPTION...: queries of all heads and batches, keys of one
look() {
    queries=$1 keys=$2 dim=$3
    shift 3
    "$lab" "$@" --json "$report" >/dev/null
    code=$?
    [ "$code" -ne 77 ] || exit 77 # no GPU
    [ "$code" -eq 0 ] || failures=$((failures + 1))
    vector=$((queries * 4))
    dq=$((queries * ((dim + 15) / 16 * 16) * 4))
    for expected in "stored $((vector + 2 * queries * keys * 2))" "separate $vector" "fused $((dq + vector))" \
        "fused_deterministic $((dq + 2 * vector + 4))"; do
        kernel=${expected% *}
        grep -q "^{\"kernel\": \"$kernel\", .*\"ran\": true.*\"workspace_bytes\": ${expected#* }, .*\"growth_bytes\": 0[,}]" "$report" && continue
        echo "$*: $kernel should ask for ${expected#* } bytes, and keep none"
        grep "^{\"kernel\": \"$kernel\"" "$report"
        failures=$((failures + 1))
    done
}
look 130 65 64 --heads 2 --seqlen 65 --dim 64
look 120 130 72 --heads 4 --kv-heads 2 --seqlen-q 30 --seqlen-k 130 --dim 72 --causal
[ "$failures" -eq 0 ]
