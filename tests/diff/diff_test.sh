#!/bin/sh
# diff_test.sh EXPECT.SH SOURCE_FOLDER [EMULATOR...] LAB_DIFF - what ./lab diff prints of sample.cu, and that it can read every lab.
set -u
here=$(cd "$(dirname "$0")" && pwd)
expect=$1 source_folder=$2
shift 2
# shellcheck source=tests/cli/cli.sh
. "$here/../cli/cli.sh"
{ printf '#!/bin/sh\nexec'; printf ' "%s"' "$@"; printf ' "$@"\n'; } >"$dir/run"  # for expect.sh
chmod +x "$dir/run"
run() { "$dir/run" "$@"; }
# prints FILE ARGUMENT...: exactly what is in the file
prints() {
    file=$1
    shift
    run "$@" >"$dir/printed" 2>&1 || fail "exit code $?: lab_diff $*"
    diff "$here/$file" "$dir/printed" || fail "lab_diff $* prints something else than $file"
}

prints plain_fast.txt "$here/sample.cu" plain "$here/sample.cu" fast
prints fast_other.txt "$here/sample.cu" fast "$here/sample.cu" other
[ "$(run --list "$here/sample.cu" | tr '\n' ' ')" = 'plain fast other ' ] || fail "--list prints something else"
run --color "$here/sample.cu" plain "$here/sample.cu" fast | tr -d '\033' | sed 's/\[[0-9]*m//g' | cmp - "$here/plain_fast.txt" ||
    fail "with --color more differs than colours"
try 2 - 'There is no kernel slow in its table. It has plain, fast, other' "$dir/run" "$here/sample.cu" slow "$here/sample.cu" fast
try 2 - 'cannot be read' "$dir/run" "$here/no.cu" plain "$here/sample.cu" fast
try 2 - 'usage' "$dir/run" "$here/sample.cu" plain
echo 'static void f() { (; }' >"$dir/broken.cu"
try 2 - 'bracket without a partner' "$dir/run" "$dir/broken.cu" plain "$here/sample.cu" fast
: >"$dir/empty.cu"
try 2 - 'no kernel plain' "$dir/run" "$dir/empty.cu" plain "$here/sample.cu" fast

# Every kernel is what it is, and is not the one before it.
for file in "$source_folder"/lab[0-9]*/lab*.cu; do
    before=''
    for kernel in $(run --list "$file"); do
        last=$(run "$file" "$kernel" "$file" "$kernel" | tail -n 1)
        case $last in
            '0 lines gone, 0 new, '[0-9][0-9]*) ;;
            *) fail "$file: $kernel against itself: $last" ;;
        esac
        last=$(run "$file" "${before:-$kernel}" "$file" "$kernel" | tail -n 1)
        case $before:$last in
            :*) ;;
            *'0 lines gone, 0 new, '*) fail "$file: $before and $kernel are the same" ;;
        esac
        before=$kernel
    done
    [ -n "$before" ] || fail "$file has no kernels"
done

finish
