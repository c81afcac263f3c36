#!/bin/sh
# no_workspace.sh - the kernels of a lab need no memory beside inputs and outputs: none is asked for (but 4 bytes, which a
# persistent kernel takes to count its tiles), and a second launch keeps none that it took itself.
#
#     no_workspace.sh LAB [OPTION...]
set -u
lab=$1
shift
report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT
failures=0
# look OPTION...: every kernel that ran must say so in its line of the report
look() {
    "$lab" "$@" --json "$report" >/dev/null
    code=$?
    [ "$code" -ne 77 ] || exit 77 # no GPU
    [ "$code" -eq 0 ] || failures=$((failures + 1))
    ran=$(grep -c '^{"kernel": .*"ran": true' "$report")
    without=$(grep '^{"kernel": .*"ran": true' "$report" | grep -c '"workspace_bytes": [04], .*"growth_bytes": 0[,}]')
    if [ "$ran" -eq 0 ] || [ "$ran" -ne "$without" ]; then
        echo "$*: $without of $ran kernels need no memory beside inputs and outputs"
        grep -o '"kernel": "[^"]*"\|"workspace_bytes": [0-9]*\|"growth_bytes": [-0-9]*' "$report"
        failures=$((failures + 1))
    fi
}
look "$@" --heads 2 --seqlen 65 --dim 64
look "$@" --heads 4 --kv-heads 2 --seqlen-q 30 --seqlen-k 130 --dim 128 --causal
[ "$failures" -eq 0 ]
