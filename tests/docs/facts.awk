# facts.awk - what both languages of a handout must have in common, a line each: for languages.sh.
#
# Of each section, counted from 0: its level (H), links and pictures (L), code spans (S) and numbers (N), each once and sorted;
# folded answers (D) and tables row by row with their numbers (T), in their order; and every line of its code blocks (C).
# Bytes, not characters, are all that it needs: run it with LC_ALL=C.

# The keys of a set, sorted, in keys[1], keys[2], ...; returns how many.
function sort_keys(set, keys,    n, i, key) {
    n = 0
    for (key in set) {
        for (i = ++n; i > 1 && keys[i - 1] > key; i--) keys[i] = keys[i - 1]
        keys[i] = key
    }
    return n
}
function print_keys(set, kind,    n, i, keys) {
    n = sort_keys(set, keys)
    for (i = 1; i <= n; i++) print section + 0, kind, keys[i]
}

# Counts each number of a text in the set.
function count_numbers(text, set) {
    while (match(text, /[0-9]+([.,][0-9]+)*/)) {
        set[substr(text, RSTART, RLENGTH)]++
        text = substr(text, RSTART + RLENGTH)
    }
}

# Takes targets of links and then code spans out of a text.
function take_links(text,    target) {
    while (match(text, /\]\([^)]*\)/)) {
        target = substr(text, RSTART + 2, RLENGTH - 3)
        gsub(/\.zh-CN/, "", target)
        sub(/#.*/, "#", target)  # headings are named in the page's own language
        links[target]
        text = substr(text, 1, RSTART) substr(text, RSTART + RLENGTH)
    }
    return text
}
function take_spans(text,    n, i, parts, rest) {
    n = split(text, parts, "`")
    for (i = 1; i <= n; i++)
        if (i % 2) rest = rest " " parts[i]
        else spans[parts[i]]
    return rest
}

function end_section() {
    gsub(/[ \t]+/, " ", prose)
    prose = take_spans(take_links(prose))
    count_numbers(prose, numbers)
    print_keys(links, "L")
    print_keys(spans, "S")
    print_keys(numbers, "N")
    split("", links)
    split("", spans)
    split("", numbers)
    prose = ""
}

# Prints how many cells a row has, and its numbers with how often each is there.
function table_row(row,    set, keys, cells, i, n, line) {
    cells = gsub(/\|/, "|", row) - 1
    if (row ~ /^[-|: ]+$/) {
        print section + 0, "T", row
        return
    }
    take_spans(take_links(row))
    gsub(/\]\([^)]*\)/, "", row)
    count_numbers(row, set)
    n = sort_keys(set, keys)
    for (i = 1; i <= n; i++) line = line " " keys[i] (set[keys[i]] > 1 ? "x" set[keys[i]] : "")
    print section + 0, "T", cells " cells:" line
}

/^ *```/ { fenced = !fenced; print section + 0, "C", $0; next }
fenced { print section + 0, "C", $0; next }
/^[ \t]*$/ { blank = 1; prose = prose " "; next }
/^    / && (blank || indented) { indented = 1; print section + 0, "C", $0; next }
{ indented = 0 }
/^<!--/ { blank = 1; next }
{ blank = 0 }
/^#+ / {
    end_section()
    section++
    print section, "H", $1
    prose = substr($0, length($1) + 1)
    next
}
/<details>/ { print section + 0, "D" }
/^\|/ { table_row($0); next }
{ prose = prose " " $0 }
END { end_section() }
