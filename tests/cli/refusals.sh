#!/bin/sh
# refusals.sh - whatever a lab cannot make sense of is refused: one sentence, exit 2, never a guess and never a crash.
#
#     refusals.sh LAB EXPECT.SH
set -u
lab=$1 expect=$2
failures=0
# refuse SAYS OPTION...: standard error must match SAYS
refuse() {
    says=$1
    shift
    "$expect" 2 - "$says" "$lab" "$@" || failures=$((failures + 1))
}
accept() { "$expect" 0 "$@" || failures=$((failures + 1)); }

# Options that do not exist, with a suggestion where one is near.
refuse '--frobnicate' --frobnicate
refuse '--seqlne.*--seqlen' --seqlne 64
refuse '--casual.*--causal' --casual
refuse '-N' -N
refuse 'extra' extra
refuse 'false' --causal false # were it taken as "causal", false would mean true
refuse '--causal' --causal=false

# Values that are missing, no numbers, or out of range.
for option in --batch --heads --kv-heads --seqlen --seqlen-q --seqlen-k --dim; do
    refuse "$option" "$option"
    for value in '' abc -1 1.5 12x 0x10 99999999999999999999 2147483648 nan; do refuse "$option" "$option" "$value"; done
done
for option in --heads --kv-heads --dim; do refuse "$option|head" "$option" 0; done
for value in '' abc 1x nan inf; do refuse '--scale' --scale "$value"; done
for value in '' abc -1 1.5; do refuse '--seed' --seed "$value"; done
for value in '' abc 0 -1 1.5; do refuse '--train' --train "$value"; done
refuse 'leave out --bench' --train 5 --bench
for option in --dtype --layout --inputs --seed --scale --load --save --kernel --trace --json; do refuse "$option" "$option"; done

# Names that nobody knows.
refuse 'fp17.*fp16' --dtype fp17
refuse 'dtype' --dtype ''
refuse 'normla.*normal' --inputs normla
refuse 'layout' --layout sbhd
refuse 'layout' --layout bshd,bhsd
refuse 'layout' --layout bshd,bhsd,bshd,
refuse 'layout' --layout bshd,bhsd,bshd,bhsd,bhsd
refuse 'kernel' --kernel no_such_kernel
refuse 'kernel' --kernel ''

# Shapes that no attention has, and options that contradict each other.
refuse '6.*4|heads' --heads 6 --kv-heads 4
refuse 'heads' --heads 2 --kv-heads 6
refuse 'dim' --dim 12 --seqlen 4
refuse 'dim' --dim 7 --seqlen 4
refuse 'dim' --dim 4096 --seqlen 4
refuse 'seqlen' --seqlen 8 --seqlen-q 9
refuse 'twice' --dim 8 --dim 16
refuse '--inputs' --load /no/such/folder --inputs normal
refuse '--seed' --load /no/such/folder --seed 2
refuse 'GB.*GB' --batch 100000 --heads 1000 --seqlen 100000 --dim 64

# Places that cannot be read or written.
refuse '/no/such/folder' --load /no/such/folder
refuse '/no/such/folder' --save /no/such/folder/below --seqlen 4
refuse '/no/such/folder' --json /no/such/folder/report.json --seqlen 4

# And what it does understand.
accept '--seqlen' - "$lab" --help
accept '[a-z]' - "$lab" --list
accept '--seqlen' - "$lab" --seqlen 7 --help

[ "$failures" -eq 0 ] || echo "$failures command lines were not answered as they should be"
[ "$failures" -eq 0 ]
