#!/bin/sh
# bad_source.sh FOLDER SIMT_REWRITE...: each source in FOLDER is refused with its line and a reason, and exit code 2.
# SIMT_REWRITE may be several words: an emulator, its options and the program.
folder=$1 failed=0 out=$(mktemp)
shift
expect() {
    name=$1 line=$2 words=$3
    shift 3
    message=$("$@" "$folder/$name.cu" "$out" 2>&1)
    status=$?
    case $message in *"$name.cu:$line: error: "*"$words"*) [ $status -eq 2 ] && return ;; esac
    echo "$name.cu: exit $status, wanted 2 and line $line with '$words'; it said: $message"
    failed=1
}
expect initial_value 2 "cannot have an initial value" "$@"
expect open_launch 3 "<<< without >>>" "$@"
expect no_arguments 3 "needs its arguments in parentheses" "$@"
expect sized_dynamic 2 "dynamic shared memory; write it as" "$@"
expect open_comment 1 "this comment never ends" "$@"
expect file_scope_dynamic 2 "move this declaration of dynamic shared memory into the kernel" "$@"
expect open_bracket 1 "never closed" "$@"
"$@" "$folder/absent.cu" "$out" 2>/dev/null
[ $? -eq 2 ] || { echo "a missing file was not refused"; failed=1; }
"$@" "$folder/initial_value.cu" 2>/dev/null
[ $? -eq 2 ] || { echo "a missing argument was not refused"; failed=1; }
rm -f "$out"
[ $failed -eq 0 ] && echo "bad sources: all refused"
exit $failed
