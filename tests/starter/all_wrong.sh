#!/bin/sh
# all_wrong.sh - every kernel of an untouched starter is wrong, on every shape, and says so in a sentence.
#
#     all_wrong.sh STARTER
#
# A kernel that needs a GPU is no verdict; a crash or a hang is none, either. Exit 0, 1, or 77 where nothing can run.
set -u
starter=$1
kernels=$("$starter" --list | sed -n 's/^  \([a-z][a-z0-9_]*\)  .*/\1/p')
[ -n "$kernels" ] || { echo "$starter --list names no kernel"; exit 1; }
failures=0 wrong=0
# A single key, of which O is V; less than a tile; whole tiles; several, with a mask; more queries than keys.
for shape in '--seqlen 1 --dim 64 --full' '--seqlen 7 --dim 16 --heads 2 --kv-heads 1 --full' '--seqlen 128 --heads 1 --full' \
    '--seqlen-q 5 --seqlen-k 300 --dim 128 --heads 1 --causal' '--seqlen-q 40 --seqlen-k 20 --dim 16 --causal'; do
    for kernel in $kernels; do
        # shellcheck disable=SC2086  # options
        said=$("$starter" --kernel "$kernel" $shape 2>&1 </dev/null)
        code=$?
        case $code in
            1) printf '%s\n' "$said" | grep -Eq "^$kernel is not right: .* is .*, expected|^$kernel is not right: .*written" && {
                wrong=$((wrong + 1))
                continue
            } ;;
            2) printf '%s\n' "$said" | grep -q "does not support the .* backend" && continue ;;
            77) continue ;;
        esac
        failures=$((failures + 1))
        printf '%s with %s: exit code %d and no sentence about wrong numbers:\n%s\n' "$kernel" "$shape" $code "$said"
    done
done
[ $failures -eq 0 ] || exit 1
[ $wrong -gt 0 ] || { echo "no kernel could be run"; exit 77; }
echo "$wrong runs, all of them wrong"
