#!/bin/sh
# test_lab.sh SOURCE_FOLDER SHELL...   tests ./lab, run by that shell (sh, dash, busybox sh, ...).
#
# A copy of ./lab is run in a folder whose name has a space and a non-ASCII letter, on a PATH that holds a few real
# utilities and stand-ins for cmake, apt-get and the like. The stand-ins note their calls in $calls. Exit 0 or 1.
set -u
source_folder=$1
program=$(command -v "$2") || exit 1
shift 2
shell="$program $*"  # by its full path: the fake PATH does not have it

top=$(mktemp -d) || exit 1
trap 'rm -rf "$top"' EXIT
bin=$top/bin system=$top/system calls=$top/calls house="$top/the höuse"
mkdir -p "$bin" "$system" "$house"
cp "$source_folder/lab" "$source_folder/CMakeLists.txt" "$house"
mkdir "$house/grade"
cp "$source_folder/grade/gradescope.sh" "$house/grade"
touch "$calls"
for tool in awk basename cat date dirname env getconf grep head ls mkdir nproc printf pwd readlink rm sed sh tail touch tr uname wc; do
    path=$(command -v $tool) && [ -x "$path" ] && ln -s "$path" "$bin/$tool"
done

# stand_in NAME <script: a program on the fake PATH that notes its call, then runs the script.
# shellcheck disable=SC2016  # "${0##*/} $*" is for the stand-in to expand
stand_in() {
    { printf '#!%s\necho "${0##*/} $*" >>"%s"\n' "$(command -v sh)" "$calls"; cat; } >"$bin/$1"
    chmod +x "$bin/$1"
}
remove() { for tool; do rm -f "$bin/$tool"; done; }

# What cmake and the labs do here: configuring makes a cache, building makes labs, labs write their --json.
cmake_works() {
    stand_in cmake <<END
case \$1 in
    --version) echo 'cmake version ${1:-3.25.1}' ;;
    --preset) mkdir -p "build/\$2"
        printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\nCMAKE_CACHEFILE_DIR:INTERNAL=%s\n' "\$PWD" "\$PWD/build/\$2" >"build/\$2/CMakeCache.txt" ;;
    --build)
        for lab in \$(sed -n 's/^add_lab(\(lab[0-9]*_[a-z0-9_]*\).*/\1/p' CMakeLists.txt); do
            cp "$top/lab_stand_in" "\$2/\$lab"
        done ;;
esac
END
    cp_path=$(command -v cp)
    ln -sf "$cp_path" "$bin/cp"
}
compilers_work() {
    for tool in cc c++ make; do stand_in $tool </dev/null; done
    stand_in ctest <<'END'
echo '100% tests passed, 0 tests failed out of 1'
END
}
# The labs' stand-in: exits with $LAB_EXIT, writes a result of the form that common/report.c writes.
cat >"$top/lab_stand_in" <<END
#!$(command -v sh)
echo "\${0##*/} \$*" >>"$calls"
[ "\${LAB_EXIT:-0}" != 77 ] || exit 77
json='' result=$top/result.json
while [ \$# -gt 0 ]; do
    [ "\$1" != --profile ] || case \$0 in
        */gpu/*) result=$top/counted_gpu.json ;;
        *) result=$top/counted_cpu.json ;;
    esac
    [ "\$1" != --json ] || json=\$2
    shift
done
[ -z "\$json" ] || cp "\$result" "\$json"
exit "\${LAB_EXIT:-0}"
END
chmod +x "$top/lab_stand_in"
cp "$source_folder/tests/shell/result.json" "$top/result.json"
# What a lab writes with --profile (common/profile.c), from each backend; the numbers mean nothing.
cat >"$top/counted_cpu.json" <<'END'
"launches": [
{"launch": 1, "kernel": "tiled", "function": "scores_tiled", "global_read_requests": 512, "global_read_sectors": 1024, "shared_read_wavefronts": 8192},
{"launch": 2, "kernel": "tiled", "function": "softmax_rows", "global_read_requests": 768, "global_read_sectors": 1536, "shared_read_wavefronts": 0}
],
END
cat >"$top/counted_gpu.json" <<'END'
"launches": [
{"launch": 1, "kernel": "tiled", "function": "scores_tiled", "global_read_requests": 512, "global_read_sectors": 1025, "shared_read_wavefronts": null},
{"launch": 1, "kernel": "cublas", "function": "gemm", "global_read_requests": 1}
],
END

failures=0 checks=0 lab_exit=0
# expect CODE PATTERN ARGUMENT...: ./lab ARGUMENT... exits with CODE and prints PATTERN (an extended regular expression).
expect() {
    code=$1 pattern=$2
    shift 2
    checks=$((checks + 1))
    # shellcheck disable=SC2086  # "busybox sh" is two words
    output=$(env -i PATH="$bin" LAB_EXIT=$lab_exit HOME="$top" $shell "$house/lab" "$@" 2>&1)
    got=$?
    if [ $got -ne "$code" ]; then
        complain "exit code $got, not $code" "$@"
    elif ! printf '%s\n' "$output" | grep -Eq -e "$pattern"; then
        complain "the output lacks: $pattern" "$@"
    fi
}
complain() {
    problem=$1
    shift
    failures=$((failures + 1))
    printf 'FAILED: ./lab %s: %s\n' "$*" "$problem"
    printf '%s\n' "$output" | sed 's/^/    | /'
}
# called PATTERN / not_called PATTERN: whether a stand-in was called so since the last forget.
called() {
    checks=$((checks + 1))
    grep -Eq -e "$1" "$calls" || { output=$(cat "$calls"); complain "nobody called: $1"; }
}
not_called() {
    checks=$((checks + 1))
    if grep -Eq -e "$1" "$calls"; then output=$(cat "$calls"); complain "should not have been called: $1"; fi
}
forget() { : >"$calls"; }
user_is() { stand_in id <<END
echo $1
END
}

# --- wrong usage: one sentence and exit 2, before anything is looked for or built
user_is 1000
expect 0 'Usage: ./lab run'
expect 0 'lab01_naive' help
expect 0 'Usage' --help
expect 2 "unknown command 'rnu'; did you mean ./lab run" rnu
expect 2 "unknown command 'tets'; did you mean ./lab test" tets
expect 2 "unknown command '01'; did you mean ./lab run 01" 01
expect 2 "unknown command 'frobnicate'; there are" frobnicate
expect 2 "unknown command 'strater'; did you mean ./lab starter" strater
expect 2 "unknown command 'repport'; did you mean ./lab report" repport
expect 2 '--output is an option of ./lab report: where its page goes' run 01 --output page.html
expect 2 '--output needs the name of a file' report 01 --output=
expect 2 '--output is the page of one lab, and these are more: lab07_fa3_hopper lab07_fp8' report 07 --output page.html
expect 2 'counts on the cpu backend first; leave out --backend gpu' report 01 --backend gpu
expect 2 'this folder is a starter itself' starter "$top/new"
expect 2 "there is no lab '99'; there are: lab01_naive( lab[0-9a-z_]+)*$" run 99
mkdir "$house/lab98_new"
expect 2 'lab98_new is a folder, but not yet a lab: add the line add_lab\(lab98_new\) to CMakeLists.txt$' run 98
rmdir "$house/lab98_new"
expect 2 "there is no lab 'lab01_naiv'.*lab01_naive" run lab01_naiv
expect 2 "there is no lab ''" run ''
expect 2 "unknown option '--bakend'" run --bakend cpu
expect 2 "--seqlen is an option of ./lab ladder, or of a lab.*after --" run 01 --seqlen 64
expect 2 './lab diff needs a lab' diff
expect 2 "there is no lab '99'; there are: lab01_naive" diff 99 01
expect 2 '^lab: 07 may be any of lab07_[a-z0-9_]+ lab07_[a-z0-9_]+: say which' diff 07
expect 2 "unknown command 'differ'; did you mean ./lab diff" differ
expect 2 "unknown command 'lader'; did you mean ./lab ladder" lader
expect 2 '--csv needs a value' ladder --csv
expect 2 '--csv is an option of ./lab ladder' run 01 --csv x
expect 2 "unknown backend 'tpu'" run --backend tpu
expect 2 "unknown backend 'tpu'" run --backend=tpu
expect 2 '--backend needs a value' run --backend
expect 2 "--jobs needs a number" run --jobs many
expect 2 "--jobs needs a number" run --jobs 0
expect 2 '--debug compiles for the cpu' run --debug --backend gpu
expect 2 'options after -- go to labs' test 01 -- --seqlen 64
not_called '^(cmake|apt-get|ctest)'

# --- an almost empty PATH
mv "$bin/sed" "$top/sed"
expect 1 'there is no sed on PATH \(.*\), which this script needs' run
mv "$top/sed" "$bin/sed"

# --- nothing installed
expect 1 'missing: cmake compiler make' run
stand_in dnf </dev/null
expect 1 'sudo dnf install cmake gcc-c\+\+ make' run
remove dnf
stand_in apt-get <<END
case \$1 in install) : >"$top/installed" ;; esac
END
expect 1 'sudo apt-get install --no-install-recommends cmake g\+\+ make' run
expect 1 'add --install' run
not_called 'apt-get'
expect 1 'no sudo' run --install
not_called 'apt-get'

# apt-get as root: exactly the missing packages, index first, no questions
user_is 0
expect 1 'still missing' run
called '^apt-get update$'
called '^apt-get install -y --no-install-recommends cmake g\+\+ make$'
forget
cmake_works
expect 1 'still missing' test
called '^apt-get install -y --no-install-recommends g\+\+ make$'
stand_in apt-get <<'END'
echo 'E: no network'
exit 100
END
expect 1 'E: no network' run
expect 1 'this failed \(exit code 100\): apt-get update' run
remove apt-get
compilers_work

# --- everything there
user_is 1000
forget
expect 0 'backend: cpu' run
called "^lab01_naive --json $house/build/cpu/"
called '^lab02_online_softmax --json'
called '^cmake --preset cpu'
not_called 'apt-get'
for name in 1 01 lab1 lab01 lab01_naive; do
    forget
    expect 0 'backend: cpu' run $name
    called '^lab01_naive --json'
    not_called '^lab02'
done
forget
expect 0 'backend: cpu' run 02 -- --seqlen 64 --inputs 'a b'
called '^lab02_online_softmax .*--seqlen 64 --inputs a b$'
expect 0 '100% tests passed' test
called '^ctest --preset cpu --parallel [0-9]+ --no-tests=error$'
expect 0 '100% tests passed' test 2 --jobs 3
called '^cmake --build .* --parallel 3'
called '^ctest --preset cpu --parallel 3 --no-tests=error -L \^lab02_online_softmax\$$'
forget
expect 0 '-O0' run 1 --debug
called '^cmake --preset debug'
[ "$(printf '%s' "$output" | tail -n 1)" != '' ] || complain 'the last line is empty' run 1 --debug

# the ladder, and the exit code of the labs
expect 0 '^  lab +kernel +what it adds +max err +verdict +ms +TFLOP/s +x first$' run
expect 0 '^  lab01_naive +online +softmax in one pass +- +wrong +2 +150.0 +1.50$' run
expect 0 '^  lab01_naive +safe +softmax in "three" passes, each row 3× +2.44e-04 +right +3 +100.5 +1.00$' run
# of a backward pass the worst of all outputs, and its time beside other backward passes
expect 0 '^  lab01_naive +fused +gradients +1.50e-03 +right +8 +300.0 +1.00$' run
lab_exit=1
expect 1 'FAILED: lab01_naive \(exit code 1\) lab02_online_softmax' run
lab_exit=77
expect 0 'skipped: lab01_naive lab02_online_softmax' run
lab_exit=0

# --- choosing the backend
stand_in nvcc </dev/null
expect 0 'backend: cpu .*finds no GPU' run 1
stand_in nvidia-smi <<'END'
echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)'
END
expect 0 'backend: gpu \(nvcc and NVIDIA H200\)' run 1
called '^cmake --preset gpu'
expect 0 'backend: cpu \(as told' run 1 --backend cpu
remove nvcc nvidia-smi

# --- counting: on the cpu backend, and beside it on a GPU, or why not
expect 2 "did you mean ./lab profile" profil
expect 2 'leave out --debug' profile --debug
expect 2 'leave out --backend gpu' profile --backend gpu
forget
# A toolkit in /usr/local/cuda is found, too.
expect 0 'counted on the cpu backend only: (no nvcc on PATH|nvcc, but nvidia-smi -L finds no GPU)' profile 1 -- --seqlen 64
called '^lab01_naive --json .*/build/cpu/profile/lab01_naive.json --profile --seqlen 64$'
not_called '^(lab02|cmake --preset gpu)'
stand_in nvcc </dev/null
expect 0 'counted on the cpu backend only: nvcc, but nvidia-smi -L finds no GPU' profile 1
stand_in nvidia-smi <<'END'
echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)'
END
[ -x /usr/local/cuda/bin/ncu ] || expect 0 'counted on the cpu backend only: nvcc and a GPU, but no ncu' profile 1
stand_in ncu </dev/null
expect 0 'counted on the cpu backend only: as told by --backend' profile 1 --backend cpu
not_called '^cmake --preset gpu'
forget
expect 0 '^lab01_naive, counted by +the CPU backend +Nsight Compute$' profile 1
called '^cmake --preset cpu'
called '^cmake --preset gpu'
called '^lab01_naive --json .*/build/gpu/profile/lab01_naive.json --profile$'
expect 0 '^  tiled 1 scores_tiled +global_read_requests +512 +512$' profile 1
expect 0 '^  tiled 1 scores_tiled +global_read_sectors +1024 +1025  differs$' profile 1
expect 0 '^  tiled 1 scores_tiled +shared_read_wavefronts +8192 +-$' profile 1
expect 0 '^  tiled 2 softmax_rows +global_read_sectors +1536 +-$' profile 1
printf '%s\n' "$output" | grep -q 'wavefronts  *0 ' && complain 'a counter that is 0 is shown' profile 1
lab_exit=1
expect 1 'FAILED: lab01_naive \(exit code 1\) lab01_naive \(exit code 1\)' profile 1
lab_exit=0
remove nvcc nvidia-smi ncu

# --- grading: what is this script's, and what goes to the grader
grader_works() {
    mkdir -p "$house/build/cpu/grade"
    { printf '#!%s\necho "grade $*" >>"%s"\n' "$(command -v sh)" "$calls"; echo 'exit 1'; } >"$house/build/cpu/grade/grade"
    chmod +x "$house/build/cpu/grade/grade"
}
expect 2 "did you mean ./lab grade" grad
expect 2 'Usage: ./lab grade SUBMISSION' grade
expect 0 'Usage: ./lab grade SUBMISSION' grade --help
expect 2 "unknown backend 'tpu'" grade x --backend tpu
expect 2 '--backend needs a value' grade x --backend
expect 2 '--jobs needs a number' grade x --jobs none
expect 2 'this folder is a starter, which grades nothing' grade x
touch "$house/grade/grade.c"
grader_works
forget
expect 1 'backend: cpu' grade 'a b' --lab 2 --jobs 3 --hidden 'c d'
called "^grade --root $house --tools $house/build/cpu --jobs 3 a b --lab 2 --hidden c d\$"
called '^cmake --build .* --target grade$'
stand_in nvcc </dev/null
stand_in nvidia-smi <<'END'
echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)'
END
forget
expect 1 'backend: gpu' grade x
called "^grade --root $house --tools $house/build/cpu --jobs [0-9]+ --gpu $house/build/gpu x\$"
called '^cmake --build .*/gpu .* --target grade_check grade_device grade_runtime$'
forget
expect 1 'backend: cpu' grade x --backend=cpu
called "^grade --root $house --tools $house/build/cpu --jobs [0-9]+ x\$"
remove nvcc nvidia-smi
expect 2 'say which file to write' gradescope
expect 2 'does not end in .zip' gradescope there
expect 2 'has no points.csv' gradescope there.zip --hidden nowhere

# --- from another folder; build folders that are of no use any more
forget
here=$(pwd)
cd / && expect 0 'backend: cpu' run 1 && cd "$here" || exit 1
called '^lab01_naive'
echo 'CMAKE_HOME_DIRECTORY:INTERNAL=/somewhere/else' >"$house/build/cpu/CMakeCache.txt"
expect 0 'was made for /somewhere/else: starting afresh' run 1
expect 0 'built in' run 1
printf 'CMAKE_MAKE_PROGRAM:FILEPATH=%s\n' "$top/no/ninja" >>"$house/build/cpu/CMakeCache.txt"
expect 0 'was made with .*/ninja, which is gone: starting afresh' run 1
stray=$(cd "$house" && find . -path ./build -prune -o -type f -print | sort | tr '\n' ' ')
[ "$stray" = './CMakeLists.txt ./grade/grade.c ./grade/gradescope.sh ./lab ' ] || { output=$stray; complain 'wrote outside build/'; }

# --- what fails, fails loudly
cmake_works 3.16.3
expect 1 'cmake is 3.16, the labs need 3.22' run
stand_in cmake <<'END'
[ "$1" = --version ] && { echo 'cmake version 4.1.0'; exit; }
[ "$1" = --build ] || exit 0
echo 'lab01_naive.cu:7: error: expected ;'
exit 2
END
expect 1 'lab01_naive.cu:7: error' run
expect 1 'this failed \(exit code 2\): cmake --build' test
cmake_works
stand_in ctest <<'END'
echo '50% tests passed, 1 tests failed out of 2'
exit 8
END
expect 1 '50% tests passed' test

echo "$checks checks of ./lab under $shell, $failures failed"
[ $failures -eq 0 ]
