#!/bin/sh
# growing.sh - --generate with a lab of one right decode kernel and several wrong ones (growing.cu).
#
#     growing.sh LAB APPENDING EXPECT.SH cpu|gpu        APPENDING: the lab compiled with an append that loses a V
#
# Exit 77 where the lab skips.
set -u
lab=$1 appending=$2 expect=$3 backend=$4
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
"$lab" --generate 1 >/dev/null 2>&1
[ $? -ne 77 ] || exit 77

steps='--generate 4 --layers 2'  # --seqlen: generate_shape
# shellcheck disable=SC2086 # options are split at spaces on purpose
{
    # An append and a launch in each layer, and the end of the step.
    try 0 '^  right .* right +5 ' - "$lab" $steps --kernel right
    try 0 '^2 layers, 4 steps' - "$lab" $steps --kernel right
    try 0 '^  right .* right +13 ' - "$lab" --generate 2 --layers 6 --seqlens 0,3,1 --kernel right
    try 0 ' right ' - "$lab" --generate --kernel right

    # In the first step this length is right, and later it is not.
    try 1 'layer 0: (O|LSE)\[sequence 0, head [0-9], row [1-9] of 4' - "$lab" $steps --kernel length_of_first_step
    try 0 ' right ' - "$lab" --generate 1 --kernel length_of_first_step
    # With one key that is all there is, one too few is none.
    try 1 'layer 0: O\[sequence 0, head [0-9], row 0 of 4' - "$lab" $steps --seqlen 0 --kernel a_key_too_few
    try 1 'layer 0: ' - "$lab" $steps --kernel a_key_too_few
    # Rows that hold no key yet are NaN; the simulated device stops a kernel that reads them.
    if [ "$backend" = cpu ]; then
        try 1 - 'unwritten memory: .* of K ' "$lab" $steps --kernel all_rows
    else
        try 1 'layer 0: O\[sequence 0, head [0-9], row 0 of 4.*nan' - "$lab" $steps --kernel all_rows
    fi
    try 0 ' right ' - "$lab" --generate 1 --kernel all_rows
    # The steps that are checked are right, and those that are timed are not the same to the bit.
    try 1 'layer 0: the graph, launched again, gives other bits' - "$lab" $steps --kernel other_bits_later
    # Not the kernel, but what was appended: the cache shows it, and so does O.
    try 1 'layer 0: O\[sequence 0, head [0-9], row 1 of 4' - "$appending" $steps --kernel right
    try 0 ' right ' - "$appending" --generate 1 --kernel right

    try 2 - 'Kernel stiff does not support --generate' "$lab" $steps --kernel stiff
    try 1 'stiff +does not run: it does not support --generate' - "$lab" $steps
    try 2 - 'leave out --bench' "$lab" $steps --bench
    try 2 - 'leave out --seqlen-q' "$lab" $steps --seqlen-q 1
    try 2 - 'batch is 0' "$lab" --generate --batch 0
    try 2 - 'layers is for --generate' "$lab" --layers 3
    try 2 - 'more than 2.31 - 1' "$lab" --generate 2000000000 --batch 2
    try 2 - 'host memory' "$lab" --generate 4 --layers 2000000000
    try 2 - 'whole number from 1|1 or more|at least 1' "$lab" --generate 0
}

finish
