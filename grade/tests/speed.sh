#!/bin/sh
# speed.sh - points for speed, with the simulated device in the place of a GPU: its times say nothing about a GPU, but a
# kernel that does everything eight times takes longer there, too.
#
#     speed.sh ROOT TOOLS
set -u
root=$1 tools=$2
# shellcheck source=grade/tests/tree.sh
. "$(dirname "$0")/tree.sh"

# A tree with tests of its own.
mkdir -p "$top/class/same" "$top/class/slow" "$top/class/wrong" "$top/class/crash" "$top/class/hurry"
cat >"$top/root/tests/points.csv" <<'END'
test,lab,kernel,kind,judged,points,case
right,lab02_online_softmax,fused,correct,forward,1,n7
speed,lab02_online_softmax,fused,speed,forward,4,--seqlen 64 --dim 64 --heads 1
right_online,lab02_online_softmax,online,correct,forward,1,n7
speed_online,lab02_online_softmax,online,speed,forward,4,--seqlen 64 --dim 64 --heads 1
END
lab=$root/lab02_online_softmax/lab02_online_softmax.cu
cp "$lab" "$top/class/same"
sed 's/{"fused", \(.*\) launch_fused,/{"fused", \1 launch_slowly,/
     s/^static size_t matrix_bytes/static void launch_slowly(struct attention a) {\n    for (int i = 0; i < 8; i++) launch_fused(a);\n}\n&/' \
    "$lab" >"$top/class/slow/lab02_online_softmax.cu"
sed 's/state.l += p;/state.l += 2 * p;/' "$lab" >"$top/class/wrong/lab02_online_softmax.cu"
# Right but for the case that is timed: it crashes there, or does half of the rows.
sed 's/^static size_t matrix_bytes/static void launch_crash(struct attention a) {\n    if (a.seqlen_q == 64) __builtin_trap();\n    launch_fused(a);\n}\n&/
     s/{"fused", \(.*\) launch_fused,/{"fused", \1 launch_crash,/' "$lab" >"$top/class/crash/lab02_online_softmax.cu"
sed 's/^static size_t matrix_bytes/static void launch_hurry(struct attention a) {\n    if (a.seqlen_q == 64) a.seqlen_q = 32;\n    launch_fused(a);\n}\n&/
     s/{"fused", \(.*\) launch_fused,/{"fused", \1 launch_hurry,/' "$lab" >"$top/class/hurry/lab02_online_softmax.cu"
for name in slow wrong crash hurry; do
    ! cmp -s "$lab" "$top/class/$name/lab02_online_softmax.cu" || fail "the lab has changed, and $name is the same as it"
done

"$tools/grade/grade" --root "$top/root" --tools "$tools" --gpu "$tools" --all "$top/class" --out "$top/out" >"$top/log" 2>&1 ||
    fail "exit code $?: $(cat "$top/log")"
# status NAME TEST: its status and points
status() { sed -n 's/^{"test": "'"$2"'".*"status": "\([a-z]*\)", "points": \([0-9.]*\),.*/\1 \2/p' "$top/out/$1/grade.json"; }
case $(status same speed) in
    'passed 4' | 'partly '*) ;;
    *) fail "the reference solution beside itself: $(grep speed "$top/out/same/grade.json")" ;;
esac
[ "$(status slow right)" = 'passed 1' ] || fail "slow: $(status slow right)"
[ "$(status slow speed)" = 'failed 0' ] || fail "slow: $(status slow speed)"
grep -q 'ms, and the reference solution takes .* of its speed' "$top/out/slow/grade.json" || fail "slow: no times are said"
[ "$(status wrong speed)" = 'failed 0' ] || fail "wrong: $(status wrong speed)"
grep -q 'Speed counts once all results' "$top/out/wrong/grade.json" || fail "a wrong kernel was timed"
# Both kernels are timed in one run, and what is wrong with one is not the other's fault.
for name in slow wrong crash hurry; do
    case $(status $name speed_online) in
        'passed 4' | 'partly '*) ;;
        *) fail "$name, the other kernel: $(grep speed_online "$top/out/$name/grade.json")" ;;
    esac
done
for name in crash hurry; do
    [ "$(status $name right)" = 'passed 1' ] || fail "$name: $(status $name right)"
    [ "$(status $name speed)" = 'failed 0' ] || fail "$name: $(status $name speed)"
done
grep '"speed"' "$top/out/crash/grade.json" | grep -q 'did not come to its end' || fail "crash: $(grep '"speed"' "$top/out/crash/grade.json")"
grep '"speed"' "$top/out/hurry/grade.json" | grep -q 'never written' || fail "hurry: $(grep '"speed"' "$top/out/hurry/grade.json")"
[ $failures -eq 0 ]
