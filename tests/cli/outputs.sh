#!/bin/sh
# outputs.sh - what a lab writes: --save and --load, --json, seeds, layouts.
#
#     outputs.sh LAB CHECK_JSON EXPECT.SH
set -u
lab=$1 check_json=$2 expect=$3
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/cli.sh"
run() { try 0 - - "$lab" "$@"; }
outputs_of() { (cd "$dir/$1" && ls o_*.npy lse_*.npy); } # one each a kernel

shape='--batch 2 --heads 2 --kv-heads 2 --seqlen-q 19 --seqlen-k 37 --dim 16 --causal'
# shellcheck disable=SC2086 # the shape is split at spaces on purpose
{
    # The same seed, the same bits: inputs and every kernel's outputs. Another seed, other inputs.
    run $shape --seed 3 --save "$dir/one"
    run $shape --seed 3 --save "$dir/again"
    run $shape --seed 4 --save "$dir/other"
    kernels=$(outputs_of one)
    [ -n "$kernels" ] || fail "--save wrote no o_KERNEL.npy"
    same one again q.npy k.npy v.npy o.npy lse.npy $kernels
    for name in q k v o; do
        cmp -s "$dir/one/$name.npy" "$dir/other/$name.npy" && fail "$name.npy is the same for seeds 3 and 4"
    done

    # A saved folder loaded again is the same problem.
    run $shape --load "$dir/one" --save "$dir/loaded"
    same one loaded q.npy k.npy v.npy o.npy lse.npy $kernels
    # Without o and lse the reference computes them; without a shape on the command line the files give it.
    mkdir "$dir/bare"
    cp "$dir/one/q.npy" "$dir/one/k.npy" "$dir/one/v.npy" "$dir/bare/"
    run --causal --load "$dir/bare" --save "$dir/recomputed"
    same one recomputed q.npy k.npy v.npy o.npy lse.npy $kernels

    # --outputs: the same results without the answers, of inputs that come without them.
    run --causal --load "$dir/bare" --outputs "$dir/only"
    same one only $kernels
    for name in q o lse; do [ ! -e "$dir/only/$name.npy" ] || fail "--outputs wrote $name.npy"; done
    try 2 - '--outputs only runs' "$lab" --outputs "$dir/only" --save "$dir/only"

    # Strides change where numbers lie, not one bit of what they are.
    run $shape --seed 3 --layout bshd --save "$dir/bshd"
    run $shape --seed 3 --layout bshd,bhsd,bshd,bhsd --save "$dir/mixed"
    run $shape --seed 3 --layout bhsd,bshd,bhsd,bshd --save "$dir/mixed2"
    for layout in bshd mixed mixed2; do same one $layout q.npy k.npy v.npy o.npy lse.npy $kernels; done

    # An o.npy that belongs to other inputs is not believed.
    mkdir "$dir/wrong"
    cp "$dir/one/q.npy" "$dir/one/k.npy" "$dir/one/v.npy" "$dir/one/lse.npy" "$dir/wrong/"
    cp "$dir/other/o.npy" "$dir/wrong/o.npy"
    try 2 - 'o\.npy' "$lab" --causal --load "$dir/wrong"

    # --json, also for a case whose LSE is -inf and for one with NaN, which JSON cannot spell.
    run $shape --json "$dir/report.json"
    "$check_json" "$dir/report.json" kernels || failures=$((failures + 1))
    run --seqlen-q 9 --seqlen-k 0 --json "$dir/empty.json"
    "$check_json" "$dir/empty.json" kernels || failures=$((failures + 1))
    run --seqlen 9 --inputs nan --json "$dir/nan.json"
    "$check_json" "$dir/nan.json" kernels || failures=$((failures + 1))

    # Results that nobody can read are no success.
    if [ -w /dev/full ]; then
        "$lab" --seqlen 5 --dim 8 >/dev/full 2>"$dir/full.txt"
        [ $? -eq 2 ] || fail "a full standard output was not exit code 2"
        grep -q "standard output" "$dir/full.txt" || fail "a full standard output was not named"
    fi
}

finish
