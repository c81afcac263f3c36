#!/bin/sh
# report.sh - the page that lab_report makes: every line of the source, what was counted there, races, escaping, no network.
#
#     report.sh SOURCE_FOLDER EXPECT.SH LAB00_RACES CHECK_JSON LAB_REPORT PAGE      PAGE: left behind for browser.sh
set -u
source_folder=$1 expect=$2 lab=$3 check_json=$4 lab_report=$5 page=$6
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
source=$source_folder/tests/unit/races.cu
"$lab" --profile --json "$dir/counted.json" >/dev/null 2>&1
"$lab" --sanitize --json "$dir/sanitized.json" >/dev/null 2>&1
"$check_json" "$dir/sanitized.json" races first second || fail "the JSON of --sanitize is none"
"$lab" --sanitize --kernel ordered --json "$dir/clean.json" >/dev/null 2>&1
"$check_json" "$dir/clean.json" races || fail "the JSON of --sanitize without races is none"
# Nsight Compute's, as far as the page can tell: other numbers, and what only one of the two counts.
sed 's/"backend": "cpu"/"backend": "gpu"/; s/"global_read_bytes": [0-9]*/"global_read_bytes": 4711/; s/"exps": [0-9]*/"exps": null/;
    s/"dram_read_bytes": null/"dram_read_bytes": 1234567/' "$dir/counted.json" >"$dir/gpu.json"
sed 's/"verdict": "right"/&, "ms": 1.25, "tflops": 321.5, "percent_of_peak": 32.5/' "$dir/counted.json" >"$dir/timed.json"
# Text that would be HTML.
sed 's/one lane writes/a <b> \& \\"c\\" <\/script>/' "$dir/counted.json" >"$dir/odd.json"
make() { "$lab_report" --source "$source" --style "$source_folder/report/page.css" --script "$source_folder/report/page.js" "$@"; }
svg=$(for svg in "$source_folder"/figures/*.svg; do echo "$svg"; break; done)
make --counted "$dir/odd.json" --sanitized "$dir/sanitized.json" --gpu "$dir/gpu.json" --timed "$dir/timed.json" --note 'the <command>' \
    --output "$page" "$svg" || fail "no page was made"

# Whole: as many ends as beginnings, and each link leads somewhere.
for tag in html head body header main nav table thead tbody tr th td button div script style figure select option code h2; do
    begins=$(grep -o "<${tag}[ >]" "$page" | wc -l)
    ends=$(grep -o "</$tag>" "$page" | wc -l)
    [ "$begins" -gt 0 ] || fail "the page has no <$tag>"
    [ "$begins" -eq "$ends" ] || fail "the page has $begins <$tag> and $ends </$tag>"
done
grep -o 'href="#[^"]*"' "$page" | sed 's/href="#\(.*\)"/\1/' | sort -u >"$dir/links"
grep -o ' id="[^"]*"' "$page" | sed 's/ id="\(.*\)"/\1/' | sort >"$dir/ids"
[ -z "$(uniq -d "$dir/ids")" ] || fail "these ids are there twice: $(uniq -d "$dir/ids")"
[ -z "$(comm -23 "$dir/links" "$dir/ids")" ] || fail "these links lead nowhere: $(comm -23 "$dir/links" "$dir/ids")"

# By itself: nothing is fetched.
grep -Eo '(src|href|action)="[^"]{0,40}' "$page" | grep -Ev '"(#|data:)' && fail "the page asks for what is not in it"
grep -E '@import|url\(|fetch\(|XMLHttpRequest|<link rel="stylesheet|<script src' "$page" && fail "the page asks for what is not in it"
grep -q 'name="viewport" content="width=device-width' "$page" || fail "the page has no viewport for phones"
grep -q 'prefers-color-scheme: dark' "$page" || fail "the page has no dark side"

# The source, to the byte.
sed -n 's/.*<td class="code"><code>\(.*\)<\/code><\/td><\/tr>$/\1/p' "$page" | sed 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&amp;/\&/g' >"$dir/source"
cmp "$source" "$dir/source" || fail "the source in the page is not $source"

# What is shown of a line is what was counted there: the sums by column, and line 27 alone, where the race is.
of_json() { # COLUMN OF THE JSON, SPACE: the sum over the lines of races.cu
    awk -v key="\"$1\": " -v space="\"space\": \"$2\"" '/line_of_launch/ && /"races.cu:/ && index($0, space) {
        rest = substr($0, index($0, key) + length(key)); sum += rest * 1; if (key ~ /accesses/) { at = index($0, "\"access_bytes\": "); bytes += (rest * 1) * substr($0, at + 16) } }
        END { printf "%d\n", key ~ /accesses/ ? bytes : sum }' "$dir/counted.json"
}
of_page() { # COLUMN of the annotated source, from 1
    sed -n '/<tr id="L/s/<td/\n&/gp' "$page" | awk -v column="$1" '/^<tr id="L/ { at = -1 } /^<td/ { if (++at == column && match($0, /data-v="[0-9]*/)) sum += substr($0, RSTART + 8, RLENGTH - 8) }
        END { printf "%d\n", sum }'
}
for column in '1 accesses global' '2 sectors global' '4 wavefronts shared'; do
    # shellcheck disable=SC2086  # three words
    set -- $column
    counted=$(of_json "$2" "$3") shown=$(of_page "$1")
    [ "$counted" = "$shown" ] && [ "$counted" != 0 ] && continue
    fail "column $1 has $shown in all, --profile counted $counted ($2, $3)"
done
[ "$(of_page 6)" = 1 ] || fail "the page has $(of_page 6) races in its lines, not 1"
grep '<tr id="L27">' "$page" | grep -q 'data-v="1" style="--h:1.000">1</td><td class="code">' || fail "line 27 does not have the race"
grep -q '<td>race</td><td>write after write in .*lse_smem.*</td><td><a href="#L27">races.cu:27</a></td>' "$page" || fail "the race is not in the list"
# The numbers by kernel are JSON, and add up to those that are shown.
sed -n '/id="numbers">/,/<\/script>/p' "$page" | sed '1d; $d' >"$dir/numbers.json"
"$check_json" "$dir/numbers.json" 27 || fail "the numbers of the kernels are no JSON"
by_kernel=$(tr -d '[]"' <"$dir/numbers.json" | awk '{ sub(/^[0-9]*: /, ""); n = split($0, number, /, */); for (i = 2; i <= n; i += 7) sum += number[i] } END { printf "%d\n", sum }')
[ "$by_kernel" = "$(of_page 1)" ] || fail "the kernels have $by_kernel bytes together, and $(of_page 1) are shown"

# The rest, beside and escaped.
grep -q '<td>a &lt;b&gt; &amp; &quot;c&quot; &lt;/script&gt;</td>' "$page" || fail "text is not escaped"
grep -q 'the &lt;command&gt;' "$page" || fail "the note is missing, or not escaped"
grep -q '<td>Nsight Compute</td><td class="n" data-v="4711">4&#8239;711</td>' "$page" || fail "what Nsight Compute counted is not there"
grep -q 'data-v="1234567">1&#8239;234&#8239;567</td></tr>' "$page" || fail "DRAM bytes are not there"
grep -q '<td class="n" data-v="321.5">321.5</td>' "$page" || fail "the times are not there"
grep -q '<td class="bad">race: 1 pair of source lines race' "$page" || fail "the verdict is not that of --sanitize"
sed -n 's/.*base64,\([^"]*\)".*/\1/p' "$page" | base64 -d | cmp - "$svg" || fail "the figure is another one"
make --counted "$dir/counted.json" --sanitized "$dir/clean.json" --output "$dir/clean.html" || fail "no page without races"
grep -q 'None, under any of the orders' "$dir/clean.html" || fail "no races are not said"
grep -q 'Nsight Compute</td>\|id="times"\|id="figures"' "$dir/clean.html" && fail "there is what was not asked for"

# Refusals, which leave no page.
refuse() { # SAYS OPTION...
    says=$1
    shift
    try 2 - "$says" "$lab_report" --source "$source" --style "$source_folder/report/page.css" --script "$source_folder/report/page.js" --output "$dir/no.html" "$@"
    [ ! -e "$dir/no.html" ] || fail "a page was left behind"
}
refuse 'no.json cannot be read: No such file' --counted "$dir/no.json"
refuse 'has no kernels in it' --counted "$source"
refuse 'A report needs' --sanitized "$dir/clean.json"
refuse 'There is no option --colour' --counted "$dir/counted.json" --colour red
refuse '--note needs a value' --counted "$dir/counted.json" --note
refuse 'no.svg cannot be read' --counted "$dir/counted.json" "$dir/no.svg"
try 2 - 'no/x.html cannot be written' "$lab_report" --source "$source" --style "$source_folder/report/page.css" \
    --script "$source_folder/report/page.js" --counted "$dir/counted.json" --output "$dir/no/x.html"
finish
