# shellcheck shell=sh
# cli.sh - what the scripts beside it share; they read it by `.`, with $expect set to expect.sh.
#
# $dir is an empty folder that goes when the script does; $failures counts what failed.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0
fail() {
    echo "$1"
    failures=$((failures + 1))
}
# try CODE STDOUT STDERR COMMAND...: as expect.sh
# shellcheck disable=SC2154 # set by the script that reads this one
try() { "$expect" "$@" || failures=$((failures + 1)); }
# same A B NAME...: the files are there in both folders and equal to the last bit
same() {
    one=$1 other=$2
    shift 2
    for name; do cmp "$dir/$one/$name" "$dir/$other/$name" || fail "$name of $one and $other differ"; done
}
finish() {
    [ "$failures" -eq 0 ] || echo "$failures checks failed"
    [ "$failures" -eq 0 ]
}
