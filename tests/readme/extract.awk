# extract.awk - the commands in handouts: "FILE:LINE<tab>COMMAND" for each, comments and prompts taken off, continued lines joined.
#
#     awk -f extract.awk README.md lab*/README.md
#
# In a block fenced as sh every line is one. In other fenced blocks and in indented ones those after "$ " are, and the indented ones
# that begin with what a command here begins with.
FNR == 1 { fence = 0 }
/^[[:space:]]*```/ {
    fence = !fence
    language = $0
    gsub(/[`[:space:]]/, "", language)
    next
}
{
    line = $0
    if (going_on) { sub(/^[[:space:]]+/, " ", line); take(before line); next }
    prompt = line ~ /^[[:space:]]*\$ /
    if (prompt) sub(/^[[:space:]]*\$ /, "", line)
    if (!prompt && fence && language != "sh") next
    if (!prompt && !fence) {
        if (line !~ /^    / || line !~ /^ +([A-Z_]+=[^ ]+ +)*(\.\/lab|build\/|python3 |cmake |ctest |bench\/|tests\/|\.ci\/)/) next
    }
    sub(/^[[:space:]]+/, "", line)
    if (line == "" || line ~ /^#/) next
    where = FILENAME ":" FNR
    take(line)
}
function take(line) {
    going_on = line ~ /\\$/
    if (going_on) { sub(/[[:space:]]*\\$/, "", line); before = line; return }
    sub(/[[:space:]]+#.*$/, "", line)
    sub(/[[:space:]]+$/, "", line)
    print where "\t" line
}
