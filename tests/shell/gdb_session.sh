#!/bin/sh
# gdb_session.sh   the README's gdb session, for real: stops lab01 in one CUDA thread of one block and demands that gdb
# shows its threadIdx, its blockIdx and its own value of `element`. Needs gdb. Exit 0 or 1.
set -u
cd "$(dirname "$0")/../.." || exit 1
./lab run 01 --debug -- --seqlen 16 --kernel naive || exit 1

line=$(grep -n 'float sum = 0.0f;' lab01_naive/lab01_naive.cu | head -n 1 | cut -d : -f 1)
[ -n "$line" ] || { echo "lab01_naive.cu has no line 'float sum = 0.0f;' to stop at"; exit 1; }
session=$(gdb -q -batch -nx -ex 'set breakpoint pending off' -ex 'set debuginfod enabled off' \
    -ex "break lab01_naive.cu:$line if threadIdx.x == 5 && blockIdx.x == 1" -ex 'run' \
    -ex 'print threadIdx' -ex 'print blockIdx' -ex 'print element' -ex 'next' -ex 'next' -ex 'print sum' \
    --args build/debug/lab01_naive --seqlen 64 --kernel naive 2>&1)
for expected in "lab01_naive.cu:$line" '= {x = 5, y = 0, z = 0}' '= {x = 1, y = 0, z = 0}' '= 261$' 'sum += '; do
    printf '%s\n' "$session" | grep -q -e "$expected" && continue
    printf '%s\n' "$session"
    echo "the session above lacks: $expected"
    exit 1
done
