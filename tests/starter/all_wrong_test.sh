#!/bin/sh
# all_wrong_test.sh - all_wrong.sh fails when it should: on a stand-in for a starter that does what $BEHAVIOUR says.
#
#     all_wrong_test.sh ALL_WRONG.SH EXPECT.SH
set -u
all_wrong=$1 expect=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cat >"$dir/starter" <<'STARTER'
#!/bin/sh
if [ "$1" = --list ]; then
    printf 'lab00: an idea\n  slow  the first\n          supports fp16\n  fast  the second\n'
    exit 0
fi
case $2/$BEHAVIOUR in
    fast/right) echo 'fast  right' ;;
    fast/crash) kill -SEGV $$ ;;
    fast/silent) exit 1 ;;
    fast/stopped) echo 'kernel fast stopped at lab00.cu:7: out of bounds'; exit 1 ;;
    fast/usage) echo 'there is no --dim' >&2; exit 2 ;;
    fast/gpu_only) echo 'fast does not support the cpu backend' >&2; exit 2 ;;
    */no_gpu) exit 77 ;;
    *) echo "$2 is not right: O[batch 0, head 0, row 0, column 0] is 0, expected -0.18"; exit 1 ;;
esac
STARTER
chmod +x "$dir/starter"
failures=0
check() {
    BEHAVIOUR=$1
    export BEHAVIOUR
    "$expect" "$2" "$3" - "$all_wrong" "$dir/starter" || failures=$((failures + 1))
}
check wrong 0 '^10 runs, all of them wrong$'
check gpu_only 0 '^5 runs, all of them wrong$'
check right 1 '^fast with --seqlen 1 .*: exit code 0 and no sentence about wrong numbers'
check crash 1 'exit code 139'
check silent 1 'exit code 1 and no sentence'
check stopped 1 'exit code 1 and no sentence'
check usage 1 'exit code 2 and no sentence'
check no_gpu 77 'no kernel could be run'
[ $failures -eq 0 ]
