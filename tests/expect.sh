#!/bin/sh
# expect.sh - runs a command and demands an exit code, and words, of it.
#
#     expect.sh CODE OUT ERR COMMAND [ARGUMENT...]
#
# OUT and ERR are extended regular expressions for standard output and standard error; '-' means no demand. Where CODE
# is 2 (a refusal) standard error must be one line: one sentence that says what is wrong. Exit 0 or 1.
set -u
code=$1 out=$2 err=$3
shift 3

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
"$@" >"$scratch/out" 2>"$scratch/err" </dev/null
got=$?

complain() {
    printf '%s\n  command: %s\n  exit code: %d\n' "$1" "$command" "$got"
    sed 's/^/  stdout: /' "$scratch/out" | head -n 40
    sed 's/^/  stderr: /' "$scratch/err" | head -n 40
    exit 1
}
command="$*"

[ "$got" -eq "$code" ] || complain "expected exit code $code"
[ "$out" = - ] || grep -Eq -e "$out" "$scratch/out" || complain "standard output lacks: $out"
[ "$err" = - ] || grep -Eq -e "$err" "$scratch/err" || complain "standard error lacks: $err"
if [ "$code" -eq 2 ]; then
    lines=$(wc -l <"$scratch/err")
    [ "$lines" -eq 1 ] || complain "a refusal is one line on standard error, not $lines"
fi
exit 0
