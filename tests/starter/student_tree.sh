#!/bin/sh
# student_tree.sh - what ./lab starter writes: a tree that CMake configures, with the tasks to do and nothing of the
# instructor's; and what it refuses.
#
#     student_tree.sh FOLDER LAB_MARKERS EXPECT.SH        FOLDER: of the repository
#
# (.ci/run builds such a tree and runs a lab of it.)
set -u
folder=$1 LAB_MARKERS=$2 expect=$3
export LAB_MARKERS
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
dir=$(cd "$dir" && pwd -P)
cd "$dir" || exit 1
# configures TREE: CMake does, and finds tests, none of which needs what was left out.
configures() {
    cmake -S "$1" -B "$1/build/cpu" -DBACKEND=cpu >log 2>&1 || { cat log; fail "$1 cannot be configured"; }
    (cd "$1/build/cpu" && ctest -N) >tests.txt
    grep -q 'lab01_naive[.]n65_causal$' tests.txt || fail "$1 lacks the public tests"
    grep -E ' (wrong|grade|shell|calibration|io)[.]' tests.txt && fail "$1 has these tests, which are for a solved lab"
}

labs=$(sed -n 's/^add_lab(\([a-z0-9_]*\).*/\1/p' "$folder/CMakeLists.txt")
try 0 "^$dir/all: the starter of lab01_naive " - "$folder/lab" starter all
for name in grade .ci .git tests/wrong tests/starter tests/calibration tests/shell tests/io/wrong.io bench/results; do
    [ ! -e "all/$name" ] || fail "$name was handed out"
done
for name in lab figures/memory.svg report/make.sh README.md LICENSE CMakePresets.json .clang-format common/lab.h cmake/backend.cmake docs/lecture-map.md bench/timeline.py; do
    cmp "$folder/$name" "all/$name" >/dev/null || [ $name = README.md ] || fail "$name is not that of the repository"
    [ -s "all/$name" ] || fail "$name is missing"
done
[ -x all/lab ] || fail "lab cannot be executed any more"
grep -iq 'for.instructors' all/README.md && fail "the README still has what is for instructors"
grep -q '给教师' all/README.zh-CN.md && fail "the README in Chinese still has what is for instructors"
grep -q '^## Running one lab' all/README.md || fail "the README lost what is for students"
grep -q '^## 运行一个实验' all/README.zh-CN.md || fail "the README in Chinese lost what is for students"
for lab in $labs; do
    grep -q '// TODO [a-z0-9_]*: ' "all/$lab/$lab.cu" || fail "$lab has no task to do"
    cmp "$folder/$lab/README.md" "all/$lab/README.md" || fail "the handout of $lab is another one"
done
grep -rn 'BEGIN SOLUTION' all --include='*.cu' && fail "solutions were handed out"
cmp "$folder/CMakeLists.txt" all/CMakeLists.txt || fail "CMakeLists.txt is another one, though all labs are there"
configures all

# Two labs only, to an empty folder that is there, from another one.
mkdir -p some/where
try 0 "^$dir/some/where: the starter of lab01_naive lab08_flashdecoding$" - "$folder/lab" starter some/where 01 lab08 1
for lab in $labs; do
    case $lab in
        lab01_naive | lab08_flashdecoding) [ -s "some/where/$lab/$lab.cu" ] || fail "$lab is missing" ;;
        *)
            [ ! -e "some/where/$lab" ] || fail "$lab was not asked for"
            grep "$lab" some/where/CMakeLists.txt && fail "CMakeLists.txt still has $lab, which is not there" ;;
    esac
done
configures some/where

try 2 - 'all is not empty: name a new or empty folder' "$folder/lab" starter all
try 2 - 'needs a new or empty folder' "$folder/lab" starter
try 2 - 'log is a file' "$folder/lab" starter log
try 2 - 'there is no folder no to put where into: make it first' "$folder/lab" starter no/where
try 2 - "there is no lab '99'" "$folder/lab" starter new 99
try 2 - 'is in this repository' "$folder/lab" starter "$folder/common/new"
try 2 - 'leave out --backend and --debug' "$folder/lab" starter new --debug
try 2 - 'this folder is a starter itself' all/lab starter new
try 2 - "did you mean ./lab starter" "$folder/lab" statrer new
[ ! -e new ] || fail "a folder was made after a refusal"
finish
