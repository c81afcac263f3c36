#!/bin/sh
# commands.sh - runs the commands of a page on the cpu backend, and looks for the lines that the page says they print.
#
#     commands.sh PAGE.md BUILD        BUILD: where build/cpu of the page is
#
# A command is a line "    $ ..." of a code block; lines that follow it there are parts of lines that it has to print, in this order
# (how many spaces does not matter, and "..." at the end of one is left out). Lines "    build/cpu/..." are commands of which nothing
# more is said than that they work. All have to end with 0, or with 2 if what they print is a refusal. Exit 0 or 1.
set -u
page=$1 build=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/here"
ln -s "$root/bench" "$scratch/here/bench"  # for what a page has after &&
bad=0

# Each command, and the lines that it has to print, as NUMBER.sh and NUMBER.lines.
awk -v dir="$scratch" '
    function keep(command) {
        n++
        sub(/  +#.*/, "", command)
        print command > (dir "/" n ".sh")
        close(dir "/" n ".sh")
    }
    /^    [$] / { keep(substr($0, 7)); print n > (dir "/told"); inside = 1; next }
    /^    ([A-Z_]+=[^ ]+ )?build\/cpu\// { keep(substr($0, 5)); inside = 0; next }
    /^    / && inside { gsub(/  */, " "); sub(/^ /, ""); sub(/,? *[.][.][.]$/, ""); print > (dir "/" n ".lines"); next }
    { inside = 0 }
    END { print n + 0 > (dir "/count") }' "$page"
count=$(cat "$scratch/count")
[ "$count" -gt 0 ] || { echo "$page has no command"; exit 1; }

# fits LINES: whether what a refusal says that it needs is there after all, on a large machine.
fits() {
    needed=$(sed -n 's/.*needs\{0,1\} \([0-9]*\)[0-9.]* GB of workspace.*/\1/p' "$1")
    available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
    [ -n "$needed" ] && [ "$needed" -lt $((${available:-0} / 1000000 + 1)) ]
}

number=0 skipped=0
while [ $number -lt "$count" ]; do
    number=$((number + 1))
    command=$(cat "$scratch/$number.sh")
    lines=$scratch/$number.lines
    expected=0
    if [ -e "$lines" ]; then
        if grep -Eq 'needs .* of workspace|not support --' "$lines"; then expected=2; fi
        if fits "$lines"; then
            skipped=$((skipped + 1))
            continue
        fi
    elif grep -qsx "$number" "$scratch/told"; then
        printf 'nothing is said of what this prints: %s\n' "$command"
        bad=1
        continue
    else
        : >"$lines"
    fi
    printf '%s\n' "$command" | sed "s,build/cpu/,\"\$BUILD\"/,g" >"$scratch/run"
    (cd "$scratch/here" && BUILD=$build sh ../run) >"$scratch/out" 2>&1 </dev/null
    code=$?
    if [ $code -ne $expected ]; then
        printf 'exit code %d, not %d: %s\n' $code $expected "$command"
        bad=1
    fi
    tr -s ' ' <"$scratch/out" >"$scratch/squeezed"
    if ! awk 'FILENAME == ARGV[1] { wanted[++n] = $0; next }
              found < n && index($0, wanted[found + 1]) { found++ }
              END { if (found < n) print "not printed: " wanted[found + 1]; exit found < n }' "$lines" "$scratch/squeezed"; then
        printf '  by: %s\n' "$command"
        sed 's/^/  | /' "$scratch/out" | head -n 20
        bad=1
    fi
done
[ $bad -eq 0 ] && printf '%d commands work and print what %s says (%d skipped)\n' "$count" "${page#"$root"/}" $skipped
exit $bad
