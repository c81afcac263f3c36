# shellcheck shell=sh
# tree.sh - for tests that have points of their own, which source it with $root set, the project: in $top, which goes away at
# the end, a tree with lab 02 that lacks nothing but tests/points.csv. And how they count what failed.
top=$(mktemp -d) || exit 1
trap 'rm -rf "$top"' EXIT
chmod 755 "$top"
failures=0
fail() { failures=$((failures + 1)); printf '%s\n' "$*"; }
mkdir -p "$top/root/tests"
# shellcheck disable=SC2154 # who sources it sets $root
ln -s "$root/common" "$root/grade" "$root/lab02_online_softmax" "$top/root"
cp "$root/tests/cases.cmake" "$top/root/tests"
