#!/bin/sh
# drawn.sh SOURCE_FOLDER EXPECT.SH - figures drawn again: well-formed, and the same to the byte, twice here, and as in figures/
# where the same version of matplotlib drew those.
#
# Exit 77 without matplotlib.
set -u
source_folder=$1 expect=$2
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
version=$(python3 -c 'import matplotlib; print(matplotlib.__version__)' 2>/dev/null) || { echo "no matplotlib here: figures are not drawn"; exit 77; }
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
mkdir "$dir/results"
# Of the files that the figures name, whatever else has been measured since.
sed -n 's/.*bench\/figures\.py from \([^;<]*\); data.*/\1/p' "$source_folder"/figures/*.svg | tr -d ' ' | tr ',' '\n' | sort -u | while read -r csv; do
    cp "$source_folder/bench/results/$csv" "$dir/results"
done
for folder in one two; do
    try 0 'figures|svg' - python3 "$source_folder/bench/figures.py" --results "$dir/results" --output "$dir/$folder"
done
same_version=0
for svg in "$source_folder"/figures/*.svg; do
    name=$(basename "$svg")
    same one two "$name"
    python3 -c 'import sys, xml.etree.ElementTree as xml; assert xml.parse(sys.argv[1]).getroot().tag.endswith("svg")' "$dir/one/$name" || fail "$name is no SVG"
    grep -q "Matplotlib v$version," "$svg" || continue
    same_version=$((same_version + 1))
    cmp "$svg" "$dir/one/$name" || fail "$name is not drawn as it is in figures/, though by the same matplotlib"
done
echo "$same_version figures compared with those of the repository, which matplotlib $version drew"
try 0 ', 0 not as their CSV files say' - python3 "$source_folder/bench/figures.py" --check --results "$dir/results" --output "$dir/one"
finish
