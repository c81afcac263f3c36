# terms.awk - whether words of the glossary are in a section's Chinese where they are in its English: for languages.sh.
#
#     LC_ALL=C awk -f terms.awk glossary.md README.md README.zh-CN.md
#
# A row of the glossary's table is "| English | Chinese |", either of which may be several words with " / " between them; one
# of the Chinese ones is enough. Code is left out. Prints the terms that are missing, and exits 1 if there are any.

FNR == 1 { file++; section = 0; fenced = 0 }

file == 1 && /^\| / {
    split($0, cells, / *\| */)
    if (cells[2] == "English" || cells[2] ~ /^-/) next
    english[++terms] = tolower(cells[2])
    chinese[terms] = cells[3]
}
file == 1 { next }

/^ *```/ { fenced = !fenced; next }
fenced || /^    / { next }
/^#+ / { section++; if (file == 2) title[section] = $0 }
{
    text[file, section] = text[file, section] " " $0
    if (section > last) last = section
}

# Without code and the targets of links.
function words_of(text) {
    gsub(/`[^`]*`/, " ", text)
    gsub(/\]\([^)]*\)/, " ", text)
    gsub(/ +/, " ", text)
    return text
}

# Whether one of the words, separated by " / ", is in the text. In English a plural will do.
function has(text, words, is_english,    n, i, list) {
    n = split(words, list, " / ")
    for (i = 1; i <= n; i++) {
        if (is_english ? text ~ ("(^|[^a-z])" list[i] "(s|es)?([^a-z]|$)") : index(text, list[i])) return 1
    }
    return 0
}

END {
    if (!terms || file != 3) { print "terms.awk: no glossary, or not two files after it"; exit 1 }
    for (s = 0; s <= last; s++) {
        words = tolower(words_of(text[2, s]))
        translated = words_of(text[3, s])
        for (t = 1; t <= terms; t++)
            if (has(words, english[t], 1) && !has(translated, chinese[t], 0)) {
                print "section \"" title[s] "\" has the term \"" english[t] "\", and its Chinese none of: " chinese[t]
                missing = 1
            }
    }
    exit missing
}
