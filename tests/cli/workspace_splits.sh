#!/bin/sh
# workspace_splits.sh - the memory that lab 08's kernels ask for beside inputs and outputs: for each row of each part D sums, m and
# l in fp32, D being 64 or 128; nothing where there is one part. A second launch keeps none that it took itself.
#
#     workspace_splits.sh LAB
set -u
lab=$1
report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT
failures=0
# look KERNEL BYTES OPTION...
look() {
    kernel=$1 bytes=$2
    shift 2
    "$lab" --kernel "$kernel" "$@" --json "$report" >/dev/null
    code=$?
    [ "$code" -ne 77 ] || exit 77 # no GPU
    [ "$code" -eq 0 ] || failures=$((failures + 1))
    grep -q "^{\"kernel\": \"$kernel\", .*\"ran\": true.*\"workspace_bytes\": $bytes, .*\"growth_bytes\": 0[,}]" "$report" && return
    echo "$kernel $*: should ask for $bytes bytes, and keep none"
    grep "^{\"kernel\"" "$report"
    failures=$((failures + 1))
}
row64=$((4 * 66)) row128=$((4 * 130))
for kernel in split one_launch; do
    look "$kernel" 0 --seqlen-q 1 --seqlen-k 500 --heads 6 --kv-heads 2 --dim 64 --splits 1
    look "$kernel" $((2 * 3 * 16 * row64)) --seqlen-q 1 --seqlen-k 500 --heads 6 --kv-heads 2 --dim 40 --splits 3
    look "$kernel" $((2 * 4 * 16 * row128)) --seqlen-q 1 --seqlen-k 500 --heads 6 --kv-heads 2 --dim 72 --splits 128 # 4 tiles
    look "$kernel" $((2 * 2 * 2 * 32 * row64)) --batch 2 --seqlen-q 6 --seqlen-k 500 --heads 6 --kv-heads 2 --dim 64 --splits 2
    look "$kernel" $((2 * 2 * 2 * 64 * row64)) --batch 2 --seqlen-q 11 --seqlen-k 500 --heads 6 --kv-heads 2 --dim 64 --splits 2
done
look balanced $((2 * 4 * 2 * 16 * row64)) --seqlen-q 1 --seqlen-k 500 --heads 6 --kv-heads 2 --dim 64 --splits 4 # two slots for each of 8 blocks
[ "$failures" -eq 0 ]
