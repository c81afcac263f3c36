#!/bin/sh
# submissions.sh - grades a class of bad submissions, and demands of each what submissions.txt says. Then that an interrupted
# run goes on, and gives the same scores.csv.
#
#     submissions.sh ROOT TOOLS MUTATE [NAME...]        NAME: only these entries
set -u
root=$1 tools=$2 mutate=$3
shift 3
table=$root/grade/tests/submissions.txt
top=$(mktemp -d) || exit 1
trap 'rm -rf "$top"' EXIT
chmod 755 "$top"
failures=0
fail() { failures=$((failures + 1)); printf '%s\n' "$*"; }

# value NAME KEY: the values of a key of an entry, one a line
value() {
    awk -v name="$1" -v key="$2" '
        $1 == "wrong" { here = $2 == name }
        here && $1 == key { sub(/^[a-z]+ +/, ""); print }' "$table"
}

cp -R "$root/grade/hidden_sample" "$top/hidden"
chmod 700 "$top/hidden"
sed "s|@HIDDEN@|$top/hidden|g" "$table" >"$top/table"
names=${*:-$(awk '$1 == "wrong" { print $2 }' "$table")}
for name in $names; do
    file=$(value "$name" file)
    mkdir -p "$top/class/$name/${file%/*}"
    "$mutate" "$top/table" "$name" "$root" "$top/class/$name/$file" || fail "$name: mutate failed"
    ! grep -q 'this wrong kernel cannot be made' "$top/class/$name/$file" || fail "$name: $(cat "$top/class/$name/$file")"
done
if [ $# -eq 0 ]; then
    mkdir -p "$top/class/empty_file/lab01_naive" "$top/class/nothing_in_it" "$top/class/link/lab01_naive"
    : >"$top/class/empty_file/lab01_naive/lab01_naive.cu"
    ln -s "$root/lab01_naive/lab01_naive.cu" "$top/class/link/lab01_naive/lab01_naive.cu"
fi

grade() { "$tools/grade/grade" --root "$root" --tools "$tools" --hidden "$top/hidden" --jobs 2 --seconds 2 "$@"; }
labs='--lab 1 --lab 2 --lab 5'
# shellcheck disable=SC2086  # a list of plain words
grade --all "$top/class" --out "$top/out" $labs >"$top/said" 2>"$top/log"
code=$?
expected=1  # the submissions that cannot be graded are among them
[ $# -eq 0 ] || expected=0
[ $code -eq $expected ] || { fail "grading all ended with exit code $code, not $expected"; cat "$top/log"; }

# tests NAME PATTERN: the lines of grade.json of the tests whose name matches
tests() { sed -n 's/^{"test": "\([^"]*\)", /\1 /p' "$top/out/$1/grade.json" | grep -E "^($2)"; }

# Where submissions run as the grader's own user and see its files, one can read what the grader can: grade/README.md says so.
if [ "$(id -u)" -ne 0 ] && grep -q 'cannot be kept apart by files' "$top/log"; then
    echo 'reads_the_truth: left out, submissions are not kept apart by files here'
    names=$(printf '%s\n' "$names" | grep -v -x reads_the_truth)
fi

for name in $names; do
    report=$top/out/$name/grade.json
    value "$name" loses >"$top/loses"
    while read -r pattern; do
        lines=$(tests "$name" "$pattern" | grep -v '"kind": "speed"')
        [ -n "$lines" ] || fail "$name: there is no test $pattern"
        ! printf '%s\n' "$lines" | grep -q -v '"points": 0,' || fail "$name: gets points in" "$(printf '%s\n' "$lines" | grep -v '"points": 0,')"
    done <"$top/loses"
    value "$name" keeps >"$top/keeps"
    while read -r pattern; do
        lines=$(tests "$name" "$pattern" | grep -v '"kind": "speed"')
        [ -n "$lines" ] || fail "$name: there is no test $pattern"
        ! printf '%s\n' "$lines" | grep -q -v '"status": "passed"' || fail "$name: loses" "$(printf '%s\n' "$lines" | grep -v '"status": "passed"')"
    done <"$top/keeps"
    value "$name" says >"$top/says"
    while read -r words; do
        grep -E -q -e "$words" "$report" || fail "$name: the report does not say \"$words\" but $(grep '"status": "failed"' "$report" | head -n 4)"
    done <"$top/says"
    value "$name" remark >"$top/remark"
    while read -r words; do
        grep -E -q -e "$words" "$top/out/$name/remarks.txt" || fail "$name: there is no remark \"$words\""
    done <"$top/remark"
done

if [ $# -eq 0 ]; then
    grep -q 'does not compile' "$top/out/empty_file/report.md" || fail "an empty file is not said not to compile"
    grep -q '^nothing_in_it,0,.*there is no source of a lab' "$top/out/scores.csv" || fail "a submission without labs is not named"
    grep -q '^link,0,.*cannot be read' "$top/out/scores.csv" || fail "a link is not named"
    grep -q 'nothing_in_it, lab01_naive: there is no source' "$top/log" || fail "a submission without labs is not named on standard error"
    # Interrupted: some results are missing, one is cut short. What is there is not graded again.
    cp "$top/out/scores.csv" "$top/whole.csv"
    rm "$top/out/crash"/*.result "$top/out/scores.csv"
    head -n 7 "$top/out/writes_nan/lab02_online_softmax.result" >"$top/part"
    cp "$top/part" "$top/out/writes_nan/lab02_online_softmax.result"
    touch "$top/mark"
    # shellcheck disable=SC2086
    grade --all "$top/class" --out "$top/out" $labs >/dev/null 2>&1
    cmp "$top/whole.csv" "$top/out/scores.csv" || fail "scores.csv is another after an interruption"
    again=$(find "$top/out" -name '*.result' -newer "$top/mark" | wc -l)
    [ "$again" -eq 4 ] || fail "after the interruption $again labs were graded, not the 4 that were missing"
fi
[ $failures -eq 0 ] || exit 1
echo "all as they should be: $(printf '%s\n' "$names" | wc -w) submissions"
