#!/bin/sh
# masks.sh LAB: what lab 05 saves, as its --profile counts it. Exit 0 or 1.
#
#     triangle  with a causal mask `skipped` does (1 + 1/n) / 2 of the products of `masked`, n = N / 128 tiles: it falls to 1/2
#     window    what a window of W keys asks for grows with N * W, and not with N^2
#     packed    sequences in one launch move and multiply what each of them does alone, and not a byte for padding
#
# The lab runs once for each kernel and shape, however many numbers are taken of it.
set -u
lab=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0
fail() { echo "masks.sh: $*"; failures=$((failures + 1)); }

# count KERNEL MEMBER OPTION...: that number of its launch. The bytes that tensors are read in are all copies (cp_async_bytes);
# global_read_bytes has cu_seqlens, too.
count() {
    kernel=$1 member=$2
    shift 2
    json="$dir/$kernel $*.json"
    if [ ! -e "$json" ]; then
        "$lab" --kernel "$kernel" --profile --json "$json" --dim 64 "$@" >"$dir/out" 2>&1 || { cat "$dir/out" >&2; return 1; }
    fi
    number=$(sed -n '/^{"launch"/s/.*"'"$member"'": \([0-9][0-9]*\)[,}].*/\1/p' "$json")
    case $number in '' | *[!0-9]*) echo "$kernel $*: not one $member" >&2; return 1 ;; esac
    echo "$number"
}

before=1000
for n in 2 3 6; do
    N=$((n * 128))
    all=$(count masked tensor_flops --causal --heads 1 --seqlen $N) || exit 1
    some=$(count skipped tensor_flops --causal --heads 1 --seqlen $N) || exit 1
    ratio=$((some * 1000 / all))
    echo "triangle: N=$N: $some of $all FLOPs on tensor cores, $ratio/1000"
    [ "$all" = $((4 * N * N * 64)) ] || fail "masked multiplies $all at N=$N, not 4 N^2 d"
    [ $((some * 2 * n)) = $((all * (n + 1))) ] || fail "skipped does not do (1 + 1/$n) / 2 of that"
    case $((ratio < before && ratio > 500)) in 1) ;; *) fail "the ratio does not fall towards 1/2" ;; esac
    before=$ratio
done

# A block's queries see its own 128 keys and W before them.
for W in 64 128; do
    for N in 256 384 768; do
        bytes=$(count skipped cp_async_bytes --causal --window $W --heads 1 --seqlen $N) || exit 1
        keys=$((N + W * (N / 128 - 1)))
        echo "window of $W: N=$N: $bytes bytes read"
        [ "$bytes" = $((2 * 64 * N + 4 * 64 * keys)) ] || fail "these are not Q and $keys keys"
    done
done

lengths=70,0,130,1,300
for mask in --causal --full; do
    for member in cp_async_bytes global_write_bytes tensor_flops; do
        together=$(count packed $member $mask --heads 2 --seqlens $lengths) || exit 1
        sum=0
        for N in $(echo $lengths | tr , ' '); do
            [ "$N" -gt 0 ] || continue
            alone=$(count packed $member $mask --heads 2 --seqlen "$N") || exit 1
            sum=$((sum + alone))
        done
        echo "packed $lengths $mask: $member $together, of its sequences $sum"
        [ "$together" = $sum ] || fail "they differ"
    done
done
[ $failures -eq 0 ]
