#!/bin/sh
# theorem2.sh LAB: Theorem 2 of FlashAttention, measured. Bytes of global memory that the kernel fa1_padded of lab 03 asks for,
# as its --profile counts them, for three lengths N and three pairs of M (numbers of fp32 in shared memory) and d (head_dim).
#
#     standard attention    8 N^2 + 8 N d    = Theta(N^2 + N d): S and P, written and read (lab 01)
#     FlashAttention        Theta(N^2 d^2 / M): its part in N^2 is q N^2 with q = (40 + 64 / d) d^2 / M
#
# q comes out of two lengths, F(2 N) - 2 F(N) = 2 q N^2, where all terms in N cancel. Required: q is the same at all N, so the
# ratio to standard attention does not depend on N; and q is that number, so the ratio falls as M / d^2. Exit 0 or 1.
set -u
lab=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0

# bytes N: read and written, of one head with N queries and N keys
bytes() {
    LAB_SHARED_BYTES=$((M * 4)) "$lab" --kernel fa1_padded --profile --json "$dir/json" --heads 1 --dim "$d" --seqlen "$1" \
        >"$dir/out" 2>&1 || { cat "$dir/out" >&2; return 1; }
    sed -n '/^{"launch"/s/.*"global_read_bytes": \([0-9]*\).*"global_write_bytes": \([0-9]*\).*/\1 \2/p' "$dir/json" |
        { read -r read written && echo $((read + written)); }
}

# Shared memory, and twice that; then twice the head_dim, too. Lengths: 1, 2 and 4 tiles of keys.
for pair in 2048,8 4096,8 4096,16; do
    M=${pair%,*} d=${pair#*,}
    tile=$((M / (4 * d)))
    one=$(bytes $tile) && two=$(bytes $((2 * tile))) && four=$(bytes $((4 * tile))) || exit 1
    q_short=$(((two - 2 * one) * 1000 / (2 * tile * tile)))  # thousandths of a byte
    q_long=$(((four - 2 * two) * 1000 / (8 * tile * tile)))
    want=$(((40 * d + 64) * d * 1000 / M))
    echo "M=$M d=$d: $one, $two and $four bytes at N=$tile, $((2 * tile)), $((4 * tile)); q=$q_short and $q_long, want $want (1/1000" \
        "B); standard/flash tends to $((8000 * 1000 / want))/1000"
    [ "$q_short" = "$q_long" ] && [ "$q_long" = "$want" ] || failures=$((failures + 1))
done
[ "$failures" -eq 0 ] || echo "theorem2.sh: $failures of 3 pairs are not as Theorem 2 says"
[ "$failures" -eq 0 ]
