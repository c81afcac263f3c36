#!/bin/sh
# committed.sh SOURCE_FOLDER EXPECT.SH - figures/*.svg and what bench/figures.py takes from CSV files, without drawing.
#
# Exit 77 without python3.
set -u
source_folder=$1 expect=$2
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 7))' 2>/dev/null || { echo "no Python 3.7 here: figures are not checked"; exit 77; }
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
figures() { python3 "$source_folder/bench/figures.py" "$@"; }

# What is there is what the CSV files say, and says what it is; each figure has its place, and each place its figure.
try 0 '^[1-9][0-9]* figures, 0 not as their CSV files say$' - python3 "$source_folder/bench/figures.py" --check
cd "$source_folder" || exit 1
for svg in figures/*.svg; do
    for words in '20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]' 'H200' '[.]/lab ladder|python3 bench/' 'python3 bench/figures[.]py'; do
        grep -Eq ">[^<]*($words)" "$svg" || fail "$svg does not say its $words"
    done
    grep -q "($svg)" README.md || grep -q "(\.\./$svg)" lab*/README.md || fail "no README.md shows $svg"
done
for page in README.md README.zh-CN.md lab*/README.md lab*/README.zh-CN.md; do
    [ -e "$page" ] || continue
    grep -o '](\(\.\./\)*figures/[a-z0-9-]*\.svg)' "$page" | sed 's/](\(.*\))/\1/' | while read -r svg; do
        [ -e "$(dirname "$page")/$svg" ] || echo "$page: no $svg"
    done >>"$dir/missing"
done
[ ! -s "$dir/missing" ] || fail "$(cat "$dir/missing")"

# A number that is another one is found; so is one that a formula does not give.
cp -R bench/results "$dir/results"
cp -R figures "$dir/figures"
cd "$dir" || exit 1
check() { try "$1" "$2" "$3" python3 "$source_folder/bench/figures.py" --check --results results --output figures; }
check 0 ', 0 not' -
csv=$(sed -n 's/.*bench\/figures\.py from .*\(h200-[a-z0-9-]*\.csv\); data.*/\1/p' figures/tflops.svg)
sed 's/,lab04_fa2:pipelined,\(.*\),[0-9.]*,right/,lab04_fa2:pipelined,\1,1.25,right/' "$source_folder/bench/results/$csv" >"results/$csv"
cmp -s "$source_folder/bench/results/$csv" "results/$csv" && fail "$csv has no row of lab 04"
check 1 'tflops.svg does not show what .*draw it again' -
# What else was measured since does not count: a figure is of the files that it names.
cp "$source_folder/bench/results/$csv" results
sed 's/,[0-9.]*,right$/,1.25,right/' "results/$csv" >"results/${csv%-20*}-2999-01-01.csv"
check 0 ', 0 not' -
rm results/*-2999-*.csv "results/$csv"
check 1 "tflops.svg was drawn from $csv, which is not in results" -
cp "$source_folder/bench/results/$csv" results
ladder=$(cd results && echo ladder-cpu-*.csv)
awk -F, -v OFS=, '$8 == "pipelined" && $4 == 128 && $6 == "full" { ++$22 } { print }' "$source_folder/bench/results/$ladder" >"results/$ladder"
check 2 - 'lab 04 pipelined at N = 128, head_dim 64 has [0-9]* bytes; the formula .* gives'
awk 'NR == 3 { gsub(/[0-9]/, "x") } { print }' "$source_folder/bench/results/$ladder" >"results/$ladder"
check 2 - "$ladder, line 3, is not as .* write it"

# The newest of a kind is taken, and of another GPU none.
cat >newest.py <<'PYTHON'
import os, sys
sys.path.insert(0, sys.argv[1])
import figure_data
os.makedirs("kinds")
for name in ("h200-a-2026-01-02.csv", "h200-a-2026-01-10.csv", "h200-b-2025-01-01.csv", "ladder-h200-2026-01-01.csv", "h2000-a-2027-01-01.csv",
             "ladder-h200-2026-01-01-peers.csv", "ladder-cpu-2026-03-01.csv", "ladder-cpu-2026-02-01.csv", "a100-a-2027-01-01.csv", "README.md"):
    open(os.path.join("kinds", name), "w").close()
print(" ".join(figure_data.newest("kinds", "h200")))
PYTHON
try 0 '^h200-b-2025-01-01.csv ladder-h200-2026-01-01-peers.csv ladder-h200-2026-01-01.csv h200-a-2026-01-10.csv ladder-cpu-2026-03-01.csv$' - \
    python3 newest.py "$source_folder/bench"

for words in '--output' 'nothing' '--results no' '--check --output no'; do
    # shellcheck disable=SC2086  # words
    try 2 - - python3 "$source_folder/bench/figures.py" $words
done
finish
