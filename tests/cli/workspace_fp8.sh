#!/bin/sh
# workspace_fp8.sh - the memory that lab 07's fp8 kernels ask for beside inputs and outputs: Q, K and V in e4m3, a byte an
# element, head_dim filled up to 64 or 128 and V's keys to blocks of 128; 16 bytes for each block of 128 queries and of 128 keys; a
# counter. Each piece begins at a multiple of 256 bytes. A second launch keeps nothing that it took itself.
#
#     workspace_fp8.sh LAB
set -u
lab=$1
report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT
failures=0
pieces() {
    sum=0
    for piece; do sum=$((sum + (piece + 255) / 256 * 256)); done
    echo "$sum"
}
# look HEADS KV_HEADS QUERIES KEYS COLUMNS OPTION...: heads of all batches
look() {
    heads=$1 kv_heads=$2 queries=$3 keys=$4 columns=$5
    shift 5
    "$lab" "$@" --json "$report" >/dev/null
    code=$?
    [ "$code" -ne 77 ] || exit 77 # no GPU
    [ "$code" -eq 0 ] || failures=$((failures + 1))
    q_blocks=$(((queries + 127) / 128)) k_blocks=$(((keys + 127) / 128))
    expected=$(pieces $((heads * queries * columns)) $((kv_heads * keys * columns)) $((kv_heads * k_blocks * 128 * columns)) \
        $((heads * q_blocks * 16)) $((kv_heads * k_blocks * 16)) 4)
    for kernel in fp8 rotated unpromoted; do
        grep -q "^{\"kernel\": \"$kernel\", .*\"ran\": true.*\"workspace_bytes\": $expected, .*\"growth_bytes\": 0[,}]" "$report" && continue
        echo "$*: $kernel should ask for $expected bytes, and keep none"
        grep "^{\"kernel\": \"$kernel\"" "$report"
        failures=$((failures + 1))
    done
}
look 2 2 65 65 64 --heads 2 --seqlen 65 --dim 64
look 8 4 30 130 128 --batch 2 --heads 4 --kv-heads 2 --seqlen-q 30 --seqlen-k 130 --dim 72 --causal
[ "$failures" -eq 0 ]
