# facts.awk - what both languages of a handout must have in common, a line each: for languages.sh.
#
# Of each section, counted from 0: its level (H), links and pictures (L), code spans (S) and numbers (N), each once and sorted;
# folded answers (D) and tables row by row with their numbers (T), in their order; and every line of its code blocks (C).
# Bytes, not characters, are all that it needs: run it with LC_ALL=C.

function sorted(set, label,    n, i, j, key, keys) {
    n = 0
    for (key in set) {
        for (i = ++n; i > 1 && keys[i - 1] > key; i--) keys[i] = keys[i - 1]
        keys[i] = key
    }
    for (j = 1; j <= n; j++) print section, label, keys[j]
}

# The numbers of a text, sorted, as they come or (once) each only once.
function numbers_of(text, set,    number) {
    while (match(text, /[0-9]+([.,][0-9]+)*/)) {
        number = substr(text, RSTART, RLENGTH)
        set[number]++
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
    numbers_of(prose, numbers)
    sorted(links, "L")
    sorted(spans, "S")
    sorted(numbers, "N")
    split("", links)
    split("", spans)
    split("", numbers)
    prose = ""
}

function table_row(row,    set, number, line, cells, i, n, list) {
    cells = gsub(/\|/, "|", row)
    if (row ~ /^[-|: ]+$/) {
        print section, "T", row
        return
    }
    prose_of_cells = row
    take_spans(take_links(row))
    gsub(/\]\([^)]*\)/, "", row)
    numbers_of(row, set)
    n = 0
    for (number in set) {
        for (i = ++n; i > 1 && list[i - 1] > number; i--) list[i] = list[i - 1]
        list[i] = number
    }
    line = ""
    for (i = 1; i <= n; i++) line = line " " list[i] (set[list[i]] > 1 ? "x" set[list[i]] : "")
    print section, "T", cells - 1 " cells:" line
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
