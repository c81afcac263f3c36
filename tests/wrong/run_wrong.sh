#!/bin/sh
# run_wrong.sh - runs a wrong kernel over the probe cases and demands that it is found out.
#
#     run_wrong.sh CASES TRUTH ENOUGH KERNEL WORDS LAB [ARGUMENT...]
#
# CASES: a file with a line "name options..." for each case; the name - is of one without files to --load. TRUTH: the folder with a folder for each case. WORDS: an
# extended regular expression that the verdict of at least one failing case must match. It stops when ENOUGH cases have
# found the kernel out. Passes (exit 0) only if
#   - at least one case fails: exit 1, and says WORDS;
#   - every case exits 0 or 1: a crash, a usage error or a skip is not a verdict;
#   - at least one case was run.
# A program that exits 3 is no wrong kernel but mutate's explanation why there is none, and fails the test with it. One that
# exits 77 on its first case is not for this GPU, or there is none: then it is skipped (exit 77).
set -u
cases=$1 truth=$2 enough=$3 kernel=$4 words=$5
shift 5

run=0 caught='' found=0 uncaught=0 complaints=0
while read -r name options; do
    run=$((run + 1))
    # Options are split at spaces on purpose; none of them holds one.
    # shellcheck disable=SC2086
    if [ "$name" = - ]; then
        said=$("$@" $options --kernel "$kernel" 2>&1 </dev/null)
    else
        said=$("$@" $options --load "$truth/$name" --kernel "$kernel" 2>&1 </dev/null)
    fi
    code=$?
    case $code in
    0) uncaught=$((uncaught + 1)) ;;
    1)
        if printf '%s\n' "$said" | grep -Eq -e "$words"; then
            caught="$caught $name"
            found=$((found + 1))
            [ "$found" -lt "$enough" ] || break
        else
            other="$said"
        fi
        ;;
    3)
        printf '%s\n' "$said"
        exit 1
        ;;
    77)
        if [ "$run" -eq 1 ]; then
            printf '%s\n' "$said"
            exit 77
        fi
        complaints=$((complaints + 1))
        printf 'case %s: skipped, and %s before it were not\n' "$name" "$((run - 1))"
        ;;
    *)
        complaints=$((complaints + 1))
        printf 'case %s: exit %d is neither "right" (0) nor "wrong" (1):\n%s\n' "$name" "$code" "$said"
        ;;
    esac
done <"$cases"

if [ "$run" -eq 0 ]; then
    echo "no case was run"
    exit 1
fi
if [ -z "$caught" ]; then
    complaints=$((complaints + 1))
    echo "the wrong kernel was not found out: $uncaught of $run cases passed it, none failed it saying \"$words\""
    if [ -n "${other:-}" ]; then printf 'but one said:\n%s\n' "$other"; fi
fi
if [ "$complaints" -gt 0 ]; then exit 1; fi
echo "found out by$caught ($run cases run)"
