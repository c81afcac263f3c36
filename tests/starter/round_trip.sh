#!/bin/sh
# round_trip.sh - the starter of a lab and what was cut out of it are the lab, to the byte; and of its tasks there are two to
# four, each with a line in tasks.txt.
#
#     round_trip.sh LAB_MARKERS LAB.cu TASKS.TXT
set -u
markers=$1 lab=$2 table=$3
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"

"$markers" list "$lab" >"$dir/list" && "$markers" starter "$lab" "$dir/starter.cu" &&
    "$markers" solutions "$lab" "$dir/solutions.txt" &&
    "$markers" insert "$dir/starter.cu" "$dir/solutions.txt" "$dir/solved.cu" || exit 1
cmp "$lab" "$dir/solved.cu" || fail "starter + solutions is another file than the lab"
grep -n 'SOLUTION\|// STUB' "$dir/starter.cu" && fail "these lines of the starter are the instructor's"

tasks=$(sed 's/ .*//' "$dir/list")
count=$(wc -l <"$dir/list")
case $count in
    2 | 3 | 4) ;;
    *) fail "there are $count tasks, not two to four" ;;
esac
name=$(basename "$lab" .cu)
in_table=$(sed -n "s/^$name  *\([^ ]*\) .*/\1/p" "$table")
[ "$(echo "$tasks" | sort)" = "$(echo "$in_table" | sort)" ] ||
    fail "the lab's tasks are $tasks, and those of tasks.txt $in_table"

# One task after the other: with all solutions but one, the starter of that one.
for task in $tasks; do
    "$markers" starter --only "$task" "$lab" "$dir/only.cu" || exit 1
    [ "$(grep -c '// TODO ' "$dir/only.cu")" = 1 ] || fail "starter --only $task leaves out more or less than $task"
    "$markers" insert "$dir/only.cu" "$dir/solutions.txt" "$dir/solved.cu" || exit 1
    cmp "$lab" "$dir/solved.cu" || fail "starter --only $task + solutions is another file than the lab"
    # The pieces alone: what stands in the starter instead of a task is not in the solution of it.
    "$markers" list "$dir/starter.cu" | grep -q "^$task " || fail "the starter has no task $task"
done
finish
