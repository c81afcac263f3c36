#!/bin/sh
# bad_source.sh SIMT_REWRITE FOLDER: each source in FOLDER is refused with its line and a reason, and exit code 2.
rewrite=$1 folder=$2 failed=0 out=$(mktemp)
expect() {
    message=$("$rewrite" "$folder/$1.cu" "$out" 2>&1)
    status=$?
    case $message in *"$1.cu:$2: error: "*"$3"*) [ $status -eq 2 ] && return ;; esac
    echo "$1.cu: exit $status, wanted 2 and line $2 with '$3'; it said: $message"
    failed=1
}
expect initial_value 2 "cannot have an initial value"
expect open_launch 3 "<<< without >>>"
expect no_arguments 3 "needs its arguments in parentheses"
expect sized_dynamic 1 "dynamic shared memory; write it as"
expect open_comment 1 "this comment never ends"
expect open_bracket 1 "never closed"
"$rewrite" "$folder/absent.cu" "$out" 2>/dev/null
[ $? -eq 2 ] || { echo "a missing file was not refused"; failed=1; }
"$rewrite" "$folder/initial_value.cu" 2>/dev/null
[ $? -eq 2 ] || { echo "a missing argument was not refused"; failed=1; }
rm -f "$out"
[ $failed -eq 0 ] && echo "bad sources: all refused"
exit $failed
