#!/bin/sh
# trace.sh - what --trace writes: JSON, with events of known names in tracks of known names, one after the other.
#
#     trace.sh LAB CHECK_JSON EXPECT.SH
#
# Exit 77 where the lab skips.
set -u
lab=$1 check_json=$2 expect=$3
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/cli.sh"
# tracks FILE: all that is wrong with the order of its events, and how many there are. One event is one line.
tracks() {
    awk '
        function field(name) {
            if (!match($0, "\"" name "\": -?[0-9.]+")) { print "no " name ": " $0; return 0 }
            return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0
        }
        /"thread_name"/ { named[field("pid") " " field("tid")] = 1 }
        /"name": "(phase|track) [0-9]/ { print "no name: " $0 }
        /"ph": "X"/ {
            track = field("pid") " " field("tid"); begin = field("ts"); length_of = field("dur"); ++events
            if (!(track in named)) print "a track without a name: " $0
            # Times are rounded to 0.0001.
            if (begin < 0 || length_of < 0 || (track in end && begin < end[track] - 0.0002)) print "overlaps: " $0
            end[track] = begin + length_of
        }
        END { print events + 0 " events" }' "$1"
}

"$lab" --seqlen 70 --trace "$dir/trace.json" >"$dir/out" 2>"$dir/err"
status=$?
[ $status -ne 77 ] || exit 77
[ $status -eq 0 ] || { fail "exit code $status"; cat "$dir/out" "$dir/err"; }
"$check_json" "$dir/trace.json" traceEvents otherData unit shape kernels phases dropped || failures=$((failures + 1))
result=$(tracks "$dir/trace.json")
case $result in
0\ events | *[!0-9]*\ events) fail "$result" ;;
esac
# The same that the program says.
said=$(awk '/ phases in .*trace\.json/ { sum += $2 } END { print sum + 0 " events" }' "$dir/out")
[ "$said" = "$result" ] || fail "it says $said, and the file has $result"

# Refused before anything runs, and with other runs.
for option in --sweep --profile --sanitize --train; do try 2 - 'trace' "$lab" --trace "$dir/no.json" "$option"; done
try 2 - 'same file' "$lab" --trace "$dir/same.json" --json "$dir/same.json"
try 2 - '/no/such/folder/trace.json of --trace cannot be written' "$lab" --trace /no/such/folder/trace.json
"$lab" --trace /no/such/folder/trace.json >"$dir/out" 2>/dev/null
[ ! -s "$dir/out" ] || fail "a run begins before its --trace is refused"
[ ! -e "$dir/no.json" ] || fail "a refused run has left a file"
# A report beside it, and nothing to trace.
try 0 - - "$lab" --seqlen 33 --json "$dir/report.json" --trace "$dir/trace.json"
"$check_json" "$dir/report.json" kernels || failures=$((failures + 1))
try 0 - - "$lab" --seqlen-q 0 --seqlen-k 9 --trace "$dir/empty.json"
"$check_json" "$dir/empty.json" traceEvents otherData || failures=$((failures + 1))

finish
