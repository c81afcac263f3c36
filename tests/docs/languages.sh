#!/bin/sh
# languages.sh - the handouts in English and in Chinese say the same: sections, code, figures, numbers, terms of the glossary.
#
#     languages.sh FOLDER        FOLDER: of the repository, or a copy of its pages
#
# Each page with a name in *.zh-CN.md is held against the one without, and each lab has both. What is compared is in facts.awk
# and terms.awk. Exit 0 or 1.
set -u
here=$(dirname "$0")
folder=$1
LC_ALL=C
export LC_ALL
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
bad=0
complain() {
    printf '%s\n' "$1"
    bad=1
}

# headings FACTS: their levels, as ## and so on, in their order.
headings() { sed -n 's/^[0-9]* H //p' "$1" | tr '\n' ' '; }

pages=0
for english in "$folder"/README.md "$folder"/docs/*.md "$folder"/lab[0-9]*/README.md; do
    case $english in
        *.zh-CN.md | */glossary.md) continue ;;
    esac
    [ -e "$english" ] || continue
    chinese=${english%.md}.zh-CN.md
    name=${english#"$folder"/}
    if [ ! -s "$chinese" ]; then
        complain "$name has no page in Chinese beside it (${chinese##*/})"
        continue
    fi
    pages=$((pages + 1))
    awk -f "$here/facts.awk" "$english" >"$scratch/english"
    awk -f "$here/facts.awk" "$chinese" >"$scratch/chinese"
    [ -s "$scratch/english" ] || complain "$name has no facts to compare"
    if [ "$(headings "$scratch/english")" != "$(headings "$scratch/chinese")" ]; then
        complain "$name has the headings $(headings "$scratch/english")and in Chinese $(headings "$scratch/chinese")"
        continue
    fi
    if ! diff "$scratch/english" "$scratch/chinese" >"$scratch/diff"; then
        complain "$name: the two languages differ (section, kind, what; < English, > Chinese; facts.awk says what the kinds are)"
        head -n 60 "$scratch/diff"
    fi
    if ! awk -f "$here/terms.awk" "$folder/docs/glossary.md" "$english" "$chinese" >"$scratch/terms"; then
        complain "$name: terms of docs/glossary.md are missing"
        cat "$scratch/terms"
    fi
done
[ $pages -gt 0 ] || complain "no page was compared"
[ $bad -eq 0 ] && printf '%d pages agree in both languages\n' $pages
exit $bad
