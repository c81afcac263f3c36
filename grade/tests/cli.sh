#!/bin/sh
# cli.sh - the grader's command line and tables: what is wrong is said in one sentence, with exit code 2; and its reports are
# what other programs read.
#
#     cli.sh ROOT TOOLS EXPECT.SH CHECK_JSON
set -u
root=$1 tools=$2 expect=$3 check_json=$4
top=$(mktemp -d) || exit 1
trap 'rm -rf "$top"' EXIT
failures=0
fail() { failures=$((failures + 1)); printf '%s\n' "$*"; }
refuses() {
    words=$1
    shift
    "$expect" 2 - "$words" "$tools/grade/grade" --root "$root" --tools "$tools" --out "$top/out" "$@" || failures=$((failures + 1))
}
mkdir "$top/class" "$top/class/a" "$top/none"
refuses 'There is nothing to grade'
refuses 'no option --lap. Did you mean --lab' --lap 1 "$root"
refuses '--lab needs a value' "$root" --lab
refuses 'two submissions' "$root" "$top"
refuses 'two things to grade' "$root" --all "$top"
refuses '--json is of one submission' --all "$top" --json f
refuses '--jobs needs a number from 1 to 500' "$root" --jobs 0
refuses '--seconds needs a number' "$root" --seconds much
refuses '--out is given twice' "$root" --out x
refuses 'no lab of that name' "$root" --lab 9
refuses 'cannot be found' "$top/nowhere"
refuses 'has no folders' --all "$top/none"
refuses '--hidden,.*cannot be found' "$root" --hidden "$top/nowhere"
refuses 'points.csv cannot be read' "$root" --hidden "$top/none"
"$expect" 2 - 'start the grader as ./lab grade' "$tools/grade/grade" "$root" || failures=$((failures + 1))

# Tables with one fault each.
table() {
    mkdir -p "$top/hidden"
    printf 'test,lab,kernel,kind,judged,points,case\n%s\n' "$1" >"$top/hidden/points.csv"
    refuses "points.csv, line 2: $2" "$root" --hidden "$top/hidden"
}
table 'a,lab01_naive,naive' 'it has fewer than 7 columns'
table 'a,lab01_naive,naive,quick,forward,1,n7' 'the kind "quick"'
table 'a,lab01_naive,naive,correct,forward,none,n7' '"none" are no points'
table 'a,lab01_naive,naive,correct,forward,-1,n7' '.-1. are no points: a number above 0'
table 'a,lab01_naive,naive,correct,forward,1,n7x' 'there is no case "n7x"'
table 'a,lab01_naive,na/ive,correct,forward,1,n7' '"na/ive" is no kernel'
table 'lab01.naive.n7,lab01_naive,naive,correct,forward,1,n7' 'there are two tests named'

# Every test of the tables is of a lab and a case that there is, and its reports are well formed.
mkdir "$top/empty" && : >"$top/empty/lab01_naive.cu"
"$tools/grade/grade" --root "$root" --tools "$tools" --hidden "$root/grade/hidden_sample" --out "$top/out" --lab lab01_naive --json "$top/json" \
    --junit "$top/xml" --gradescope "$top/results" "$top/empty/lab01_naive.cu" >"$top/said" 2>"$top/log" || fail "exit code $?: $(cat "$top/log")"
"$check_json" "$top/json" submission labs points possible || fail "--json is no JSON"
"$check_json" "$top/results" tests score output visibility stdout_visibility || fail "--gradescope is no JSON"
if ! grep -q '^<?xml' "$top/xml" || [ "$(grep -c '<testcase' "$top/xml")" -ne "$(grep -c '<system-out>' "$top/xml")" ]; then
    fail "--junit: $(head -n 3 "$top/xml")"
fi
grep -q 'does not compile' "$top/said" || fail "an empty file: $(cat "$top/said")"
sed -n 's/^[a-z][^,]*,\(lab[0-9][^,]*\),.*/\1/p' "$root/tests/points.csv" "$root/grade/hidden_sample/points.csv" | sort -u | while read -r lab; do
    [ -f "$root/$lab/$lab.cu" ] || echo "points.csv names $lab, which is no lab"
done >"$top/labs"
[ ! -s "$top/labs" ] || fail "$(cat "$top/labs")"
# Two graders in one folder: the second is told of the first.
if command -v flock >/dev/null 2>&1; then
    held=$top/out/.lock
    [ -e "$held" ] || fail "no lock in the folder of --out"
    said=$(flock -n "$held" "$tools/grade/grade" --root "$root" --tools "$tools" --out "$top/out" --lab lab01_naive "$top/empty" 2>&1)
    status=$?
    case $status:$said in
        2:*'Another ./lab grade is at work in '*) ;;
        *) fail "a second grader in one folder: exit code $status, $said" ;;
    esac
fi
[ $failures -eq 0 ]
