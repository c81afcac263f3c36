#!/bin/sh
# compare_labs.sh H200_LABS.csv EXCEPTIONS FOLDER: compare.sh for the kernels of the labs in FOLDER, the build folder: whether
# --profile on the cpu backend says what Nsight Compute counted. The labs, their kernels and the shape are those of the CSV,
# which lab_counters.sh writes. A kernel's name here is lab:option/function, as in lab01_naive:tiled/softmax_rows; of its
# launches the first stands for all. Bank conflicts are the wavefronts above the ideal. Exit code as compare.sh's.
#
# Each difference must be explained, but 90 % equal are enough: these are few counters, and one access that nvcc changes shows
# in all kernels that share its function.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 3 ] || { echo "usage: compare_labs.sh H200_LABS.csv EXCEPTIONS FOLDER" >&2; exit 2; }
expected=$1
exceptions=$2
folder=$3
[ -r "$expected" ] || { echo "compare_labs.sh: cannot read $expected" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shape=$(sed -n 's/^# shape: //p' "$expected")
[ -n "$shape" ] || { echo "compare_labs.sh: $expected does not say '# shape: '" >&2; exit 2; }

awk -F, '
    /^lab,/ { print "kernel,counter,value"; next }
    /^lab[0-9]/ && NF == 5 { print $1 "/" $2 "," $4 "," $5; next }
    { print }' "$expected" >"$work/expected.csv"

pairs=$(sed -n 's/^\(lab[0-9][^,]*\),.*/\1/p' "$expected" | sort -u)
for pair in $pairs; do
    lab=${pair%:*}
    [ -x "$folder/$lab" ] || { echo "compare_labs.sh: there is no $folder/$lab; build it first" >&2; exit 1; }
    # shellcheck disable=SC2086  # the shape is options
    "$folder/$lab" --kernel "${pair#*:}" $shape --profile --json "$work/profile.json" >"$work/said" || {
        cat "$work/said" >&2
        echo "compare_labs.sh: $lab --kernel ${pair#*:} failed" >&2
        exit 1
    }
    # One launch a line (common/profile.c).
    awk -v pair="$pair" '
        function member(name,    at, rest) {
            at = index($0, "\"" name "\": ")
            if (!at) { print "compare_labs.sh: no " name " in: " $0 | "cat >&2"; failed = 1; exit 1 }
            rest = substr($0, at + length(name) + 4)
            sub(/[,}].*/, "", rest)
            gsub(/"/, "", rest)
            return rest
        }
        function row(counter, value) { print pair "/" kernel "," counter "," value }
        /^{"launch": / {
            kernel = member("function")
            if (kernel in seen) next
            seen[kernel] = 1
            split("load store", ours); split("read write", theirs)
            for (i = 1; i <= 2; i++) {
                row("global_" ours[i] "_requests", member("global_" theirs[i] "_requests"))
                row("global_" ours[i] "_sectors", member("global_" theirs[i] "_sectors"))
                row("shared_" ours[i] "_requests", member("shared_" theirs[i] "_requests"))
                wavefronts = member("shared_" theirs[i] "_wavefronts")
                row("shared_" ours[i] "_wavefronts", wavefronts)
                row("shared_" ours[i] "_conflicts", wavefronts - member("shared_" theirs[i] "_ideal"))
            }
        }
        END { exit failed }' "$work/profile.json" >>"$work/counted.csv"
done
"$here/compare.sh" "$work/expected.csv" "$exceptions" cat "$work/counted.csv"
