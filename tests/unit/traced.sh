#!/bin/sh
# traced.sh - --trace with a kernel whose phases can be counted beforehand (traced.cu).
#
#     traced.sh LAB UNMARKED CHECK_JSON EXPECT.SH cpu|gpu        UNMARKED: the lab compiled without marks
#
# Exit 77 where the lab skips.
set -u
lab=$1 unmarked=$2 check_json=$3 expect=$4 backend=$5
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
"$lab" --seqlen 8 >/dev/null 2>&1
[ $? -ne 77 ] || exit 77
# events FILE PATTERN: how many of its events match
events() { grep '"ph": "X"' "$1" | grep -c -e "$2"; }
# has COUNT PATTERN: in the last trace
has() {
    count=$(events "$dir/trace.json" "$2")
    [ "$count" -eq "$1" ] || fail "$count events, and not $1, match $2"
}

# 40 keys are 3 tiles: the producer has two phases for each, a consumer three, and at last it stores.
try 0 'traced: 52 phases in .*trace.json$' - "$lab" --trace "$dir/trace.json"
try 0 'plain is not traced: it marks no phases' - "$lab" --trace "$dir/trace.json"
"$check_json" "$dir/trace.json" traceEvents displayTimeUnit otherData || failures=$((failures + 1))
has 52 '"kernel": "traced"'
for block in 0 1; do
    has 3 "\"load\", \"ph\": \"X\", \"pid\": $block, \"tid\": 0"
    has 3 "\"wait empty\", \"ph\": \"X\", \"pid\": $block, \"tid\": 0"
    for consumer in 1 2; do
        has 10 "\"pid\": $block, \"tid\": $consumer"
        has 3 "\"softmax, O\", \"ph\": \"X\", \"pid\": $block, \"tid\": $consumer"
        has 1 "\"store\", \"ph\": \"X\", \"pid\": $block, \"tid\": $consumer"
    done
done
# One block, and it is the only one; a head of one block and another of one.
try 0 'traced: 26 phases' - "$lab" --heads 1 --seqlen-q 2 --seqlen-k 40 --trace "$dir/trace.json"
try 0 'traced: 52 phases' - "$lab" --heads 2 --seqlen-q 2 --seqlen-k 40 --trace "$dir/trace.json"

# 563 tiles are more than there is room for: 1126 marks of the producer, 1690 of each consumer.
try 0 'traced: 3069 phases in .*, and 1437 more that found no place' - "$lab" --heads 1 --seqlen-q 2 --seqlen-k 9000 \
    --trace "$dir/trace.json"
"$check_json" "$dir/trace.json" dropped || failures=$((failures + 1))
grep -q '"phases": 3069, "dropped": 1437' "$dir/trace.json" || fail "the file does not say how many were dropped"
for track in 0 1 2; do has 1023 "\"pid\": 0, \"tid\": $track"; done

# The simulated device's time does not depend on the order of threads.
if [ "$backend" = cpu ]; then
    for schedule in 0 1 7 123456789; do
        try 0 - - "$lab" --schedule $schedule --trace "$dir/$schedule.json"
        cmp "$dir/0.json" "$dir/$schedule.json" || fail "another timeline under --schedule $schedule"
    done
fi

# Kernels that cannot be traced, and such whose traced launches leave no timeline.
try 2 - 'among those of --kernel is none' "$lab" --kernel plain --trace "$dir/no.json"
LAB00_TRACED_ALL=1
export LAB00_TRACED_ALL
try 1 'unmarked is not right: kernel unmarked: its traced launch marked no phase' - "$lab" --kernel unmarked --trace "$dir/no.json"
try 1 'unended is not right: kernel unended, block 0, producer: the track begins and does not end' - "$lab" --kernel unended \
    --trace "$dir/no.json"
try 1 'wrong is not right: its traced launch: O\[' - "$lab" --kernel wrong --trace "$dir/no.json"
"$check_json" "$dir/no.json" traceEvents otherData || failures=$((failures + 1))
try 0 'wrong .* right' - "$lab" --kernel wrong
try 0 'narrow: 52 phases' - "$lab" --kernel narrow --dim 32 --trace "$dir/no.json"
try 2 - 'no kernel at --dim 40: it can only be traced up to --dim 32' "$lab" --kernel narrow --dim 40 --trace "$dir/no.json"
try 0 'narrow is not traced: it can only be traced up to --dim 32' - "$lab" --kernel narrow --kernel traced --dim 40 \
    --trace "$dir/no.json"
unset LAB00_TRACED_ALL

# A launch that is not traced does what it does without marks in its source: the same accesses, line by line, and FLOPs.
if [ "$backend" = cpu ]; then
    for program in "$lab" "$unmarked"; do
        try 0 - - "$program" --profile --kernel plain --json "$dir/${program##*/}.json"
        sed 's/0x[0-9a-f]*//g' "$dir/${program##*/}.json" >"$dir/${program##*/}.txt"
    done
    grep -q 'traced.cu:' "$dir/${lab##*/}.txt" || fail "the profile has no lines of traced.cu"
    cmp "$dir/${lab##*/}.txt" "$dir/${unmarked##*/}.txt" || fail "marks that are not wanted leave something behind"
fi

finish
