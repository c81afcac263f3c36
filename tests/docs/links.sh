#!/bin/sh
# links.sh - every link and picture of the pages that is a file of the repository is there.
#
#     links.sh FOLDER        FOLDER: of the repository, or a copy of its pages
set -u
folder=$1

# targets PAGE: what its links lead to; none holds a space. Code may look like a link and is none.
targets() {
    awk '
        /^ *```/ { fenced = !fenced; next }
        fenced || /^    / { next }
        {
            gsub(/`[^`]*`/, "")
            while (match($0, /\]\([^) ]*\)/)) {
                print substr($0, RSTART + 2, RLENGTH - 3)
                $0 = substr($0, RSTART + RLENGTH)
            }
        }' "$1"
}

bad=0 links=0
for page in "$folder"/*.md "$folder"/*/*.md "$folder"/bench/results/*.md "$folder"/tests/*/*.md; do
    [ -e "$page" ] || continue
    for target in $(targets "$page"); do
        case $target in
            http*:* | '#'*) continue ;;
        esac
        links=$((links + 1))
        if [ ! -e "${page%/*}/${target%%#*}" ]; then
            printf '%s links to %s, which is not there\n' "${page#"$folder"/}" "$target"
            bad=1
        fi
    done
done
[ $links -gt 0 ] || { echo 'there is no link'; bad=1; }
[ $bad -eq 0 ] && printf '%d links lead somewhere\n' $links
exit $bad
