#!/bin/sh
# gpu.sh - what the grader makes of a GPU that is not there, or works only for some, or that a submission denies. The simulated
# device stands in the place of a GPU; what is tried here is the grader, and nothing of a GPU.
#
#     gpu.sh ROOT TOOLS
set -u
root=$1 tools=$2
# shellcheck source=grade/tests/tree.sh
. "$(dirname "$0")/tree.sh"

# A tree with tests of its own, and a build folder for the "GPU" with a grade_device of its own.
mkdir -p "$top/gpu/grade" "$top/class/denies" "$top/class/same"
ln -s "$tools/grade/runtime.o" "$tools/grade/compile.sh" "$tools/grade/grade_check" "$top/gpu/grade"
cat >"$top/root/tests/points.csv" <<'END'
test,lab,kernel,kind,judged,points,case
right,lab02_online_softmax,fused,correct,forward,1,n7
races,lab02_online_softmax,fused,sanitize,forward,2,n7
speed,lab02_online_softmax,fused,speed,forward,4,--seqlen 64 --dim 64 --heads 1
END
lab=$root/lab02_online_softmax/lab02_online_softmax.cu
cp "$lab" "$top/class/same"
# A program that says that there is no GPU, by its exit code alone and without a word that the scan would report.
sed 's/^static size_t matrix_bytes/static void launch_denied(struct attention a) {\n    (void)a, exit(77);\n}\n&/
     s/{"fused", \(.*\) launch_fused,/{"fused", \1 launch_denied,/' "$lab" >"$top/class/denies/lab02_online_softmax.cu"
! cmp -s "$lab" "$top/class/denies/lab02_online_softmax.cu" || fail 'the lab has changed, and "denies" is the same as it'

# grade COMMAND: with a grade_device that does this
grade() {
    printf '#!/bin/sh\n%s\n' "$1" >"$top/gpu/grade/grade_device"
    chmod 755 "$top/gpu/grade/grade_device"
    "$tools/grade/grade" --root "$top/root" --tools "$tools" --gpu "$top/gpu" --all "$top/class" --out "$top/out" >"$top/said" 2>"$top/log" ||
        fail "exit code $?: $(cat "$top/log")"
}
# status NAME TEST: its status and points
status() { sed -n 's/^{"test": "'"$2"'".*"status": "\([a-z]*\)", "points": \([0-9.]*\),.*/\1 \2/p' "$top/out/$1/grade.json"; }
expect() { [ "$(status "$1" "$2")" = "$3" ] || fail "$1, $2: $(status "$1" "$2"), not $3"; }
has() { grep -q "$2" "$1" || fail "nothing of \"$2\" in: $(cat "$1")"; }

# No GPU: what needs one is blocked, and why is said; the rest counts.
grade 'echo the driver sleeps >&2; exit 77'
has "$top/log" 'Note: There is no GPU that can be used here (the driver sleeps). Tests that need one are blocked'
expect same right 'blocked 0'
expect same speed 'blocked 0'
expect same races 'passed 2'
has "$top/out/same/report.md" '^# same: 2 of 2 points (5 more could not be tried'
has "$top/out/same/report.md" 'Not tried, and not counted: 2 tests. There is no GPU'

# A GPU: what was blocked is graded now. The submission that says there is none gets nothing for it.
grade 'echo "A GPU"'
expect same right 'passed 1'
case $(status same speed) in
    'passed 4' | 'partly '*) ;;
    *) fail "the reference solution beside itself: $(grep speed "$top/out/same/grade.json")" ;;
esac
expect denies right 'failed 0'
expect denies speed 'failed 0'
has "$top/out/denies/report.md" 'says that it can use no GPU here (exit code 77), where the reference solution can'

# A GPU that works only where all processes can be seen, as this one: runs on it are not kept apart from others, and no more.
grade "[ -d /proc/$$ ] || { echo who is there; exit 77; }; echo 'A GPU'"
expect same right 'passed 1'
if ! grep -q 'cannot be kept apart by' "$top/log"; then
    has "$top/log" 'the GPU works only in runs that are not kept apart by other processes'
    ! grep -q 'kept apart by \(network\|files\)' "$top/log" || fail "too much is given up: $(cat "$top/log")"
fi
[ $failures -eq 0 ]
