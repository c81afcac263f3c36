#!/bin/sh
# unmarked.sh - in a kernel that is not traced, its marks compile to nothing: the same PTX as without them.
#
#     unmarked.sh NVCC FOLDER        FOLDER: of the repository
set -u
nvcc=$1 folder=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
# code NAME OPTION...: the instructions of specialised<false> and of specialised<true>, in NAME.false and NAME.true
code() {
    name=$1
    shift
    "$nvcc" -std=c++17 -O3 -arch=compute_90a -I"$folder" -ptx "$@" "$folder/tests/unit/traced.cu" -o "$dir/$name.ptx" || exit 1
    for trace in 0 1; do
        awk -v name="_Z11specialisedILb${trace}E" '
            /^\.visible \.entry/ { inside = index($0, name) > 0 }
            inside { sub("//.*", ""); print }' "$dir/$name.ptx" >"$dir/$name.$trace"
        [ "$(wc -l <"$dir/$name.$trace")" -gt 100 ] || { echo "$name.ptx has no kernel specialised<$trace>"; exit 1; }
    done
}
code marked
code unmarked -DWITHOUT_MARKS
failures=0
cmp "$dir/marked.0" "$dir/unmarked.0" || { echo "marks that are not wanted leave something behind"; failures=1; }
cmp -s "$dir/marked.1" "$dir/unmarked.1" && { echo "marks that are wanted are missing"; failures=1; }
# A mark is a predicated store, and no branch.
stores=$(grep -c '^ *@wanted st.global.v2.u32' "$dir/marked.1")
[ "$stores" -ge 6 ] || { echo "$stores marks in the traced kernel, which has 6 in its source"; failures=1; }
exit $failures
