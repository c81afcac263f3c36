#!/bin/sh
# gdb_session.sh   the README's gdb session, for real: stops lab01 in one CUDA thread of one block and demands that gdb
# shows its threadIdx, its blockIdx and its own value of `element`, and that `step` from a line that loads goes to the next
# line of the kernel, not into the simulated device (common/simt/simt.gdb sees to that). Needs gdb. Exit 0 or 1.
set -u
cd "$(dirname "$0")/../.." || exit 1
./lab run 01 --debug -- --seqlen 16 --kernel naive || exit 1

line=$(grep -n 'float sum = 0.0f;' lab01_naive/lab01_naive.cu | head -n 1 | cut -d : -f 1)
[ -n "$line" ] || { echo "lab01_naive.cu has no line 'float sum = 0.0f;' to stop at"; exit 1; }
# in_thread COMMAND...: gdb, stopped at that line in thread 5 of block 1, obeys; sets session to all that it says.
in_thread() {
    for command; do
        shift
        set -- "$@" -ex "$command"
    done
    session=$(gdb -q -batch -nx -x common/simt/simt.gdb -ex 'set breakpoint pending off' -ex 'set debuginfod enabled off' \
        -ex "break lab01_naive.cu:$line if threadIdx.x == 5 && blockIdx.x == 1" -ex run "$@" \
        --args build/debug/lab01_naive --seqlen 64 --kernel naive 2>&1)
}
# shows PATTERN...: the session has lines that match these, or the test fails.
shows() {
    for expected; do
        printf '%s\n' "$session" | grep -q -e "$expected" && continue
        printf '%s\n' "$session"
        echo "the session above lacks: $expected"
        exit 1
    done
}

in_thread 'print threadIdx' 'print blockIdx' 'print element' next next 'print sum'
shows "lab01_naive.cu:$line" '= {x = 5, y = 0, z = 0}' '= {x = 1, y = 0, z = 0}' '= 261$' 'sum += '

# The loop over head_dim loads two halves in each round, and calls __half2float.
in_thread step step 'info source' 'print element'
shows 'sum += ' '^Current source file is .*lab01_naive\.cu$' '= 261$' "^[0-9]*[[:space:]]*row<half>(s_of(&a)"
