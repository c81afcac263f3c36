#!/bin/sh
# zero_values.sh - a block of 128 keys whose V is zero, among blocks of small V. A kernel that quantises blocks chooses a scale for
# it, and that must not matter. Writes such a V into a file of inputs, and has the lab load it.
#
#     zero_values.sh LAB
set -u
lab=$1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
# run OPTION...: the lab on one shape. Its output is shown if it fails.
run() {
    "$lab" --heads 1 --seqlen-q 64 --seqlen-k 300 --dim 64 --full "$@" >"$scratch/log" 2>&1
    code=$?
    [ "$code" -eq 0 ] || cat "$scratch/log"
    return "$code"
}
run --save "$scratch/own" || exit
rm "$scratch"/own/o*.npy "$scratch"/own/lse*.npy # of another V
# A header of 128 bytes, then 300 rows of 64 numbers in fp16: of 128 bytes, too.
bytes=$(wc -c <"$scratch/own/v.npy")
[ "$bytes" -eq $((128 + 300 * 128)) ] || { echo "v.npy has $bytes bytes" && exit 1; }
# fill BYTE FIRST ROWS: rows of V, keys FIRST and so on
fill() {
    head -c $((128 * $3)) /dev/zero | tr '\000' "$1" | dd of="$scratch/own/v.npy" bs=128 seek=$((1 + $2)) conv=notrunc 2>/dev/null
}
fill '\004' 0 300 # 0x0404 is 6.1e-5
fill '\000' 128 128
run --load "$scratch/own"
