#!/bin/sh
# self_test.sh - languages.sh passes a page and its translation, and finds each way in which a broken copy differs; likewise
# links.sh and commands.sh.
#
#     self_test.sh FOLDER EXPECT.SH        FOLDER: of the repository
# shellcheck disable=SC2016 # what sed and the stand-in for a lab get
set -u
folder=$1 expect=$2
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/cli.sh
. "$here/../cli/cli.sh"
lab=lab05_causal
english=$dir/$lab/README.md chinese=$dir/$lab/README.zh-CN.md

# fresh: the pages of one lab, and the glossary.
fresh() {
    rm -rf "${dir:?}/$lab" "$dir/docs"
    mkdir -p "$dir/$lab" "$dir/docs"
    cp "$folder/docs/glossary.md" "$dir/docs" && cp "$folder/$lab"/README*.md "$dir/$lab"
}
# breaks WORDS FILE SED: after this edit of the file, WORDS are said.
breaks() {
    fresh
    sed "$3" "$2" >"$dir/edited"
    cmp -s "$dir/edited" "$2" && fail "this edit changes nothing: $3"
    cp "$dir/edited" "$2"
    try 1 "$1" - "$here/languages.sh" "$dir"
}

fresh
try 0 '1 pages agree' - "$here/languages.sh" "$dir"
breaks 'headings # ## ## ## ## ## ## ## ## and in Chinese # ## ## ## ## ## ## ## $' "$chinese" '/^## 访存账本/d'                                # a section less
breaks 'and in Chinese # ## ## ### ' "$chinese" 's/^## 访存账本/#&/'                            # a heading of another level
breaks '^< 1 C .*lab05_causal --window 100,0' "$chinese" 's/--window 100,0/--window 100/' # another command
breaks '^< 4 T .* 0[.]5625 ' "$chinese" 's/0\.5625/0.5652/'                     # another number in a table
breaks '^> 4 T .* 0[.]5652 ' "$chinese" 's/0\.5625/0.5652/'
breaks '^> 7 T' "$english" '/^| `packed`, the sequences shuffled/d'             # a row less
breaks '^< 3 S --window 0,0' "$chinese" 's/`--window 0,0`/`--window 0,1`/'       # an option in the text
breaks '^[<>] 7 N 336$' "$english" 's/336 for all at once/337 for all at once/' # a number in the text
breaks '^< 9 D' "$chinese" 's/<details>/<div>/'               # an answer that is not folded
breaks '^> 1 L figure[.]svg' "$chinese" '3s/$/ ![图](figure.svg)/'              # another picture
breaks 'has the term "tile", and its Chinese none of: 分块' "$chinese" 's/分块/瓦片/g'
breaks 'no glossary' "$dir/docs/glossary.md" '/^| /d'

fresh
rm "$chinese"
try 1 'has no page in Chinese' - "$here/languages.sh" "$dir"
: >"$chinese"
try 1 'has no page in Chinese' - "$here/languages.sh" "$dir"
try 1 'no page was compared' - "$here/languages.sh" "$dir/docs"

# links.sh: a page that is not there, a picture that is not there; code and other sites are no links.
fresh
try 1 'lab05_causal/README.md links to ../docs/lecture-map.md, which is not there' - "$here/links.sh" "$dir"
printf '%s\n' '[a](#b) [c](https://example.org) `[d](e)` [f](docs/glossary.md#g)' >"$dir/page.md"
rm -rf "${dir:?}/$lab"
try 0 '^1 links' - "$here/links.sh" "$dir"
printf '%s\n' '![h](figures/h.svg)' >>"$dir/page.md"
try 1 'page.md links to figures/h.svg' - "$here/links.sh" "$dir"
rm "$dir/page.md"
try 1 'there is no link' - "$here/links.sh" "$dir"

# commands.sh: a command that prints something else, fails, or of which nothing is said.
page=$dir/page.md
build=$dir/build
mkdir "$build"
printf '#!/bin/sh\necho "bytes   12, $1"\n[ "$1" != fail ] || exit 1\n' >"$build/lab"
chmod +x "$build/lab"
# says CODE WORDS LINE...: what is said of a page of these lines
says() {
    code=$1 words=$2
    shift 2
    printf '%s\n' "$@" >"$page"
    try "$code" "$words" - "$here/commands.sh" "$page" "$build"
}
says 0 '^2 commands' '    $ build/cpu/lab 7' '    bytes 12, 7' '' '    $ build/cpu/lab 8 | grep 8' '    12'
says 1 'not printed: bytes 13' '    $ build/cpu/lab 7' '    bytes 13'
says 1 'not printed: 12' '    $ build/cpu/lab 7' '    7' '    12' # in this order
says 1 'exit code 1, not 0' '    $ build/cpu/lab fail' '    bytes 12'
says 1 'exit code 0, not 2' '    $ echo does not support --dim 60' '    does not support --dim 60'
says 1 'nothing is said' '    $ build/cpu/lab 7' '' 'Text.'
says 1 'has no command' 'Text.'
finish
