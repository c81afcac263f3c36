#!/bin/sh
# self_test.sh - shows that mutate and run_wrong.sh fail when they should.
#
#     self_test.sh MUTATE RUN_WRONG.SH EXPECT.SH
set -u
mutate=$1 runner=$2 expect=$3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0
check() { "$expect" "$@" || failures=$((failures + 1)); }

# ---- mutate: the line is found exactly once, or what is written is a program that says why not (CMakeLists.txt builds and
# runs one); a table that makes no sense is refused, and nothing is written
cat >"$dir/lab.cu" <<'CODE'
void first() {
    sum += x;
    twice += x;
}
void second() {
    twice += x;
}
static const struct kernel kernels[] = {
    {"slow", "the first", launch_slow, nullptr,
     ANY},
    {"slower", "the second", launch_slower, nullptr, ANY},
    {"fast", "the third", launch_fast, nullptr, ANY},
};
void third_of_them() {}
CODE
cat >"$dir/wrong.txt" <<'TABLE'
wrong good
file   lab.cu
find   sum += x;
with   sum -= x;

wrong gone
file   lab.cu
find   sum += y;
with   sum -= y;

wrong doubled
file   lab.cu
find   twice += x;
with   twice -= x;

wrong one_of_two
file   lab.cu
in     void second(
find   twice += x;
with   twice -= x;

wrong no_such_place
file   lab.cu
in     void third(
find   twice += x;
with   twice -= x;

wrong one_kernel
file   lab.cu
kernel slow
find   sum += x;
with   sum -= x;

wrong in_a_kernel_left_out
file   lab.cu
kernel fast
find   {"slow", "the first", launch_slow, nullptr,
with   {"slow", "the first", launch_fast, nullptr,

wrong no_such_kernel
file   lab.cu
kernel slo
find   sum += x;
with   sum -= x;

wrong no_file
file   gone.cu
find   x
with   y

wrong same_name
file   lab.cu
find   sum += x;
wrong same_name
file   lab.cu
find   sum += x;
TABLE
check 0 - - "$mutate" "$dir/wrong.txt" good "$dir" "$dir/good.cu"
if [ "$(diff "$dir/lab.cu" "$dir/good.cu" | grep -c '^[<>]')" != 2 ] || ! grep -q '^    sum -= x;$' "$dir/good.cu"; then
    echo "mutate did not replace the line, or touched another"
    failures=$((failures + 1))
fi
check 0 - - "$mutate" "$dir/wrong.txt" one_of_two "$dir" "$dir/one.cu"
if [ "$(sed -n 3p "$dir/one.cu")" != "    twice += x;" ] || [ "$(sed -n 6p "$dir/one.cu")" != "    twice -= x;" ]; then
    echo "mutate replaced a line outside the function that it was told"
    failures=$((failures + 1))
fi
check 0 - - "$mutate" "$dir/wrong.txt" one_kernel "$dir" "$dir/kernel.cu"
if [ "$(grep -c '"s[a-z]*"\|ANY}\|"fast"' "$dir/kernel.cu")" != 2 ] || [ "$(sed -n '10p' "$dir/kernel.cu")" != "     ANY}," ] ||
    [ "$(wc -l <"$dir/kernel.cu")" != "$(wc -l <"$dir/lab.cu")" ] || ! tail -n 1 "$dir/kernel.cu" | grep -q third_of_them; then
    echo "mutate did not leave out the other kernels, or left out more"
    failures=$((failures + 1))
fi
# explains NAME WORDS: the entry becomes a program that says WORDS and exits 3.
explains() {
    check 0 - - "$mutate" "$dir/wrong.txt" "$1" "$dir" "$dir/why.cu"
    grep -Fq "this wrong kernel cannot be made: lab.cu $2" "$dir/why.cu" && grep -q 'return 3;' "$dir/why.cu" &&
        ! grep -q 'void first' "$dir/why.cu" && return
    echo "entry $1 did not become a program that says: $2"
    failures=$((failures + 1))
}
explains gone 'no longer has the line \"sum += y;\"'
explains doubled 'has more than once the line \"twice += x;\"'
explains in_a_kernel_left_out 'no longer has the line \"{\"slow\", '
explains no_such_kernel 'no longer has the kernel \"slo\"'
explains no_such_place 'no longer has a line that begins \"void third(\"'
check 2 - 'cannot read .*gone.cu' "$mutate" "$dir/wrong.txt" no_file "$dir" "$dir/out.cu"
check 2 - '2 entries named same_name' "$mutate" "$dir/wrong.txt" same_name "$dir" "$dir/out.cu"
check 2 - '0 entries named unheard_of' "$mutate" "$dir/wrong.txt" unheard_of "$dir" "$dir/out.cu"
[ ! -e "$dir/out.cu" ] || {
    echo "mutate left a file behind after a refusal"
    failures=$((failures + 1))
}

# ---- mutate, of a whole table: each entry that cannot be made is named, and only those
check 2 - 'cannot read .*gone.cu' "$mutate" "$dir/wrong.txt" "$dir"
sed '/^wrong no_file/,$d' "$dir/wrong.txt" >"$dir/bad.txt"
check 1 '^3 of 8 wrong kernels can be made' - "$mutate" "$dir/bad.txt" "$dir"
for entry in 'gone cannot be made: lab.cu no longer has the line "sum [+]= y;"' 'doubled cannot be made: lab.cu has more than once' \
    'in_a_kernel_left_out cannot be made: ' 'no_such_kernel cannot be made: ' 'no_such_place cannot be made: '; do
    check 1 "^the wrong kernel $entry" - "$mutate" "$dir/bad.txt" "$dir"
done
sed '/^wrong gone/,/^$/d; /^wrong doubled/,/^$/d; /^wrong no_such/,/^$/d; /^wrong in_a/,/^$/d' "$dir/bad.txt" >"$dir/fine.txt"
check 0 '^3 of 3 wrong kernels can be made' - "$mutate" "$dir/fine.txt" "$dir"
sed '/^wrong/d' "$dir/fine.txt" >"$dir/none.txt"
check 2 - 'has no entries' "$mutate" "$dir/none.txt" "$dir"

# ---- run_wrong.sh: a stand-in for the lab does what its first option says
cat >"$dir/lab.sh" <<'LAB'
case $1 in
right) ;;
wrong) echo "FAIL: max err 0.3 > bound 0.001"; exit 1 ;;
refuse) echo "unknown option" >&2; exit 2 ;;
skip) echo "nothing here can run it"; exit 77 ;;
crash) kill -SEGV $$ ;;
no_mutant) echo "this wrong kernel cannot be made"; exit 3 ;;
esac
LAB
run() {
    code=$1 says=$2
    shift 2
    for behaviour; do echo "case_$behaviour $behaviour"; done >"$dir/cases"
    check "$code" "$says" - "$runner" "$dir/cases" "$dir" 2 kernel 'max err' sh "$dir/lab.sh"
}
run 0 'found out by case_wrong' right wrong right
run 1 'was not found out' right right
run 1 'exit 2 is neither' wrong refuse
run 1 'case case_skip: skipped, and 1 before' wrong skip
run 77 '^nothing here can run it$' skip wrong
run 0 'found out by case_wrong case_wrong .2 cases run' wrong wrong crash
run 1 'exit 139 is neither' wrong crash
run 1 '^this wrong kernel cannot be made$' no_mutant
run 1 '^this wrong kernel cannot be made$' wrong no_mutant
run 1 'no case was run'
echo 'case_wrong wrong' >"$dir/cases"
check 1 'none failed it saying "NaN"' - "$runner" "$dir/cases" "$dir" 2 kernel NaN sh "$dir/lab.sh"

[ "$failures" -eq 0 ]
