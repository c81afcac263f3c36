#!/bin/sh
# gradients.sh - the command line of a lab with backward kernels: what it writes and reads, counts and trains.
#
#     gradients.sh LAB CHECK_JSON EXPECT.SH KERNEL        KERNEL: one of the lab's, bit-equal from run to run
set -u
lab=$1 check_json=$2 expect=$3 kernel=$4
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/cli.sh"
run() { try 0 - - "$lab" "$@"; }
inputs='q.npy k.npy v.npy do.npy' answers='o.npy lse.npy dq.npy dk.npy dv.npy'
results="dq_$kernel.npy dk_$kernel.npy dv_$kernel.npy"

shape='--batch 2 --heads 2 --kv-heads 2 --seqlen-q 19 --seqlen-k 37 --dim 16 --causal'
# shellcheck disable=SC2086 # lists are split at spaces on purpose
{
    # The same seed, the same bits; another layout, too. Another seed, another dO.
    run $shape --seed 3 --kernel "$kernel" --save "$dir/one"
    run $shape --seed 3 --kernel "$kernel" --layout bshd,bhsd,bshd,bhsd --save "$dir/mixed"
    run $shape --seed 4 --kernel "$kernel" --save "$dir/other"
    same one mixed $inputs $answers $results
    cmp -s "$dir/one/do.npy" "$dir/other/do.npy" && fail "do.npy is the same for seeds 3 and 4"
    # A saved folder loaded again is the same problem, and its answers are believed if they are right.
    try 0 'dK is checked against the dk.npy of the folder' - "$lab" $shape --load "$dir/one" --kernel "$kernel" \
        --save "$dir/loaded"
    same one loaded $inputs $answers $results
    cp "$dir/other/dk.npy" "$dir/loaded/dk.npy"
    try 2 - 'dk\.npy is not the answer to q, k, v, do' "$lab" $shape --load "$dir/loaded" --kernel "$kernel"
    # Without the answers they are computed; without do.npy it is made of the seed.
    mkdir "$dir/bare"
    for name in $inputs; do cp "$dir/one/$name" "$dir/bare/"; done
    run $shape --load "$dir/bare" --kernel "$kernel" --save "$dir/computed"
    same one computed $inputs $answers $results
    rm "$dir/bare/do.npy"
    run $shape --load "$dir/bare" --kernel "$kernel" --save "$dir/made"
    cmp -s "$dir/one/do.npy" "$dir/made/do.npy" && fail "a do.npy that is not there was read"
    cp "$dir/one/k.npy" "$dir/bare/do.npy"
    try 2 - 'do\.npy.*disagree' "$lab" $shape --load "$dir/bare"

    run $shape --kernel "$kernel" --json "$dir/report.json"
    "$check_json" "$dir/report.json" kernels o lse dq dk dv workspace_bytes || failures=$((failures + 1))
    run --seqlen-q 0 --seqlen-k 9 --json "$dir/empty.json"
    "$check_json" "$dir/empty.json" dq dk dv || failures=$((failures + 1))
}
try 0 'one-row' - "$lab" --help
try 0 'backward pass' - "$lab" --list
run --inputs one-row --heads 4 --kv-heads 2 --seqlen 33 --causal
run --repeat 3 --seqlen 33

# Training.
try 0 "$kernel: at most [0-9.e-]*, and the loss falls: right" - "$lab" --train 12 --seqlen 20 --kernel "$kernel"
try 0 '^ +12 ' - "$lab" --train=12 --seqlen 17 --causal --heads 2 --kv-heads 1 --seed 2 --kernel "$kernel"
try 0 '[-]-train, of labs with gradients' - "$lab" --help
try 2 - 'leave out --load' "$lab" --train --load "$dir/one"
try 2 - 'leave out --batch' "$lab" --train 5 --batch 2
try 2 - 'choose a smaller --seqlen' "$lab" --train --seqlen 100000 --heads 8 --kernel "$kernel"
try 2 - 'dim|head_dim' "$lab" --train --dim 1000

finish
