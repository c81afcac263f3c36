#!/bin/sh
# files.sh - a folder given to --load that is not what it should be is refused, and the sentence says what is wrong.
#
#     files.sh LAB EXPECT.SH
#
# The .npy files are put together here byte by byte: magic, version, header length, a Python dictionary padded to 128
# bytes, data (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
set -u
lab=$1 expect=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0

# npy FILE DESCR FORTRAN SHAPE BYTES [VERSION [OCTAL]]: BYTES of data, all OCTAL, or 0x3c (1.06 as fp16, 0.0115 as fp32)
npy() {
    {
        printf '\223NUMPY'
        printf '%b' "\\0${6:-001}\\0000\\0166\\0000"
        printf '%-117s\n' "{'descr': '$2', 'fortran_order': $3, 'shape': $4, }"
        head -c "$5" /dev/zero | tr '\000' "\\${7:-074}"
    } >"$1"
}
# A sound folder: batch 1, 2 heads, 5 tokens, head_dim 8.
sound() {
    rm -rf "$dir/case"
    mkdir "$dir/case"
    for name in q k v; do npy "$dir/case/$name.npy" '<f2' False '(1, 2, 5, 8)' 160; done
}
load() { "$expect" "$@" "$lab" --load "$dir/case" || failures=$((failures + 1)); }
refuse() { load 2 - "$1"; } # standard error must match $1

sound
load 0 - -
# Other types and another number of queries are no fault.
npy "$dir/case/q.npy" '<f4' False '(1, 4, 7, 8)' 896
load 0 'heads 4.*kv-heads 2.*seqlen-q 7.*seqlen-k 5' -
# bad SAYS npy-arguments: k.npy is replaced, the rest is sound
bad() {
    says=$1
    shift
    sound
    npy "$dir/case/k.npy" "$@"
    refuse "k\.npy.*($says)|($says).*k\.npy"
}
bad truncated '<f2' False '(1, 2, 5, 8)' 159
bad truncated '<f2' False '(1, 2, 5, 8)' 0
bad 'after its data' '<f2' False '(1, 2, 5, 8)' 161
bad '<i4' '<i4' False '(1, 2, 5, 8)' 320
bad 'f8|float64' '<f8' False '(1, 2, 5, 8)' 640
bad big-endian '>f2' False '(1, 2, 5, 8)' 160
bad dtype '|O' False '(1, 2, 5, 8)' 160
bad 'Fortran order' '<f2' True '(1, 2, 5, 8)' 160
bad dimensions '<f2' False '(2, 5, 8)' 160
bad dimensions '<f2' False '(1, 1, 2, 5, 8)' 160
bad dimensions '<f2' False '()' 2
bad disagree '<f2' False '(2, 2, 5, 8)' 320
bad disagree '<f2' False '(1, 2, 5, 16)' 320
bad disagree '<f2' False '(1, 3, 5, 8)' 240
bad disagree '<f2' False '(1, 2, 6, 8)' 192 # unlike v
bad header '<f2' False '(1, -2, 5, 8)' 160
bad '5.24393e\+36 at \[0, 0, 0, 0\].*infinite' '<f4' False '(1, 2, 5, 8)' 320 001 174 # finite there, not in fp16
bad 'claims' '<f2' False '(99999999999, 99999999999, 5, 8)' 160
bad 'claims' '<f2' False '(65536, 65536, 65536, 65536)' 160
bad 'fortran_order' '<f2' Maybe '(1, 2, 5, 8)' 160
bad '9\.0' '<f2' False '(1, 2, 5, 8)' 160 011

# Every shape is fine by itself, but not together or not with the options.
sound
for name in k v; do npy "$dir/case/$name.npy" '<f2' False '(1, 4, 5, 8)' 320; done
refuse 'heads of q must be a multiple'
sound
npy "$dir/case/q.npy" '<f2' False '(2, 2, 5, 8)' 320
refuse 'batch'
sound
npy "$dir/case/q.npy" '<f2' False '(1, 2, 5, 16)' 320
refuse 'head_dim'
sound
"$expect" 2 - 'seqlen|shape' "$lab" --load "$dir/case" --seqlen 6 || failures=$((failures + 1))
"$expect" 2 - 'dim|shape' "$lab" --load "$dir/case" --dim 16 || failures=$((failures + 1))
npy "$dir/case/o.npy" '<f2' False '(1, 2, 6, 8)' 192
refuse 'o\.npy.*disagree|disagree.*o\.npy'
sound
npy "$dir/case/lse.npy" '<f4' False '(1, 2, 6)' 48
refuse 'lse\.npy.*disagree|disagree.*lse\.npy'

# Not .npy, cut off anywhere, or not there.
sound
echo 'not numbers' >"$dir/case/q.npy"
refuse 'q\.npy is not a \.npy file'
for bytes in 0 1 6 7 9 10 11 60 127 128; do
    sound
    head -c "$bytes" "$dir/case/v.npy" >"$dir/case/cut"
    mv "$dir/case/cut" "$dir/case/v.npy"
    refuse 'v\.npy'
done
for name in q k v; do
    sound
    rm "$dir/case/$name.npy"
    refuse "$name\.npy"
done
sound
rm "$dir/case/q.npy"
mkdir "$dir/case/q.npy"
refuse 'q\.npy'
rm -rf "$dir/case"
refuse "$dir/case"
echo 'a file' >"$dir/case"
refuse "$dir/case"

[ "$failures" -eq 0 ] || echo "$failures folders were not answered as they should be"
[ "$failures" -eq 0 ]
