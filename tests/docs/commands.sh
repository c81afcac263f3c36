#!/bin/sh
# commands.sh - runs the commands of a page on the cpu backend, and looks for the lines that the page says they print.
#
#     commands.sh PAGE.md BUILD        BUILD: where build/cpu of the page is
#
# A command is a line "    $ ..." of a code block; lines that follow it there are parts of lines that it has to print, in this order
# (how many spaces does not matter). All have to end with 0, or with 2 if what they print is a refusal. Exit 0 or 1. (That commands
# of the handouts work is seen to in tests/readme.)
set -u
page=$1 build=$2
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
bad=0

# Each command, and the lines that it has to print, as NUMBER.sh and NUMBER.lines.
awk -v dir="$scratch" '
    /^    [$] / { n++; print substr($0, 7) > (dir "/" n ".sh"); close(dir "/" n ".sh"); inside = 1; next }
    /^    / && inside { gsub(/  */, " "); sub(/^ /, ""); print > (dir "/" n ".lines"); next }
    { inside = 0 }
    END { print n + 0 > (dir "/count") }' "$page"
count=$(cat "$scratch/count")
[ "$count" -gt 0 ] || { echo "$page has no command"; exit 1; }

number=0
while [ $number -lt "$count" ]; do
    number=$((number + 1))
    command=$(cat "$scratch/$number.sh")
    lines=$scratch/$number.lines
    if [ ! -s "$lines" ]; then
        printf 'nothing is said of what this prints: %s\n' "$command"
        bad=1
        continue
    fi
    expected=0
    if grep -Eq 'needs .* of workspace|not support --' "$lines"; then expected=2; fi
    printf '%s\n' "$command" | sed "s,build/cpu/,\"\$BUILD\"/,g" >"$scratch/run"
    BUILD=$build sh "$scratch/run" >"$scratch/out" 2>&1 </dev/null
    code=$?
    if [ $code -ne $expected ]; then
        printf 'exit code %d, not %d: %s\n' $code $expected "$command"
        bad=1
    fi
    tr -s ' ' <"$scratch/out" >"$scratch/squeezed"
    if ! awk 'NR == FNR { wanted[++n] = $0; next }
              found < n && index($0, wanted[found + 1]) { found++ }
              END { if (found < n) print "not printed: " wanted[found + 1]; exit found < n }' "$lines" "$scratch/squeezed"; then
        printf '  by: %s\n' "$command"
        sed 's/^/  | /' "$scratch/out" | head -n 20
        bad=1
    fi
done
[ $bad -eq 0 ] && printf '%d commands print what %s says\n' "$count" "${page##*/}"
exit $bad
