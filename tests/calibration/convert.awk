# convert.awk: the raw page of Nsight Compute as CSV -> rows of ours.
#
#   awk -v mode=names -f convert.awk metrics.txt names.txt ncu.csv
#       kernel,counter,value   launch i has the i-th name of names.txt, which starts with the kernel's
#   awk -v mode=all -f convert.awk metrics.txt names.txt ncu.csv
#       kernel,metric,value   all metrics of the table that are whole numbers and not 0
#   awk -v mode=labs -v prefix=lab01_naive:tiled -f convert.awk metrics.txt ncu.csv
#       prefix,function,launch,counter,value   the first launch of each kernel
#   awk -v mode=probe -f convert.awk metrics.txt ncu.csv
#       the metrics that have a value in the first launch
#
# Anything unexpected is said on standard error and gives exit code 1.

function fail(message) {
    print "convert.awk: " message > "/dev/stderr"
    failed = 1
    exit 1
}

# Takes a line of CSV apart: field[1 .. return value]. "" in quotes is a quote.
function split_csv(line, field,    n, i, c, quoted) {
    n = 1
    field[1] = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (c == "\"" && quoted && substr(line, i + 1, 1) == "\"") {
            field[n] = field[n] c
            i++
        } else if (c == "\"") {
            quoted = !quoted
        } else if (c == "," && !quoted) {
            field[++n] = ""
        } else {
            field[n] = field[n] c
        }
    }
    return n
}

# The whole number in a field, without separators of thousands; "" if there is none.
function number(text) {
    gsub(/[,' ]/, "", text)
    sub(/\.0*$/, "", text)
    return text ~ /^[0-9]+$/ ? text : ""
}

function value_of(metric) { return metric in column ? number(field[column[metric]]) : "" }

# A metric, or some with + and - between them; "" if one has no value.
function evaluate(expression,    n, i, part, sign, sum, value, at) {
    n = split(expression, part, /[+-]/)
    sum = 0
    at = 0
    for (i = 1; i <= n; i++) {
        value = value_of(part[i])
        if (value == "") return ""
        sign = i > 1 && substr(expression, at, 1) == "-" ? -1 : 1
        sum += sign * value
        at += length(part[i]) + 1
    }
    return n == 1 ? value : sum ""
}

# "void copy<float4>(const T1 *, int)" -> "copy"
function bare(function_name) {
    sub(/[<(].*/, "", function_name)
    sub(/ +$/, "", function_name)
    sub(/.*[ :]/, "", function_name)
    return function_name
}

function print_row(name, counter, value, function_name, launch) {
    if (mode == "labs") print prefix "," function_name "," launch "," counter "," value
    else print name "," counter "," value
    rows++
}

function convert_row(    function_name, name, i, value, done) {
    function_name = bare(field[column["Kernel Name"]])
    launches++
    if (mode == "labs") {
        if (function_name in seen) return
        seen[function_name] = 1
    } else {
        if (launches > name_count) fail("ncu saw more launches than the " name_count " that the program named")
        name = names[launches]
        if (name != function_name && index(name, function_name "_") != 1)
            fail("launch " launches " is of kernel '" function_name "', but the program named it '" name "'")
    }
    if (mode == "all") {
        for (i in column) {
            value = i ~ /__|^memory_/ ? number(field[column[i]]) : ""
            if (value + 0 > 0) print_row(name, i, value)
        }
        return
    }
    for (i = 1; i <= metric_count; i++) {
        if (counter_of[i] in done || (name != "" && name !~ pattern[i])) continue
        value = evaluate(metric[i])
        if (value == "") continue
        done[counter_of[i]] = 1
        if (kind[i] == "atomic" && value == 0) continue
        print_row(name, counter_of[i], value, function_name, launches)
    }
    for (i = 1; i <= metric_count; i++)
        if (kind[i] == "compared" && (name == "" || name ~ pattern[i]) && !(counter_of[i] in done))
            fail("ncu gave no value of " metric[i] " for launch " launches ", '" function_name "'")
}

{ sub(/\r$/, "") }
FNR == 1 { file++ }
file == 1 {
    if ((NF == 3 || NF == 4) && $1 !~ /^#/) {
        metric_count++
        counter_of[metric_count] = $1
        metric[metric_count] = $2
        kind[metric_count] = $3
        pattern[metric_count] = NF == 4 ? $4 : "^"
    }
    next
}
(mode == "names" || mode == "all") && file == 2 {
    if ($0 ~ /^[a-z][a-z0-9_-]*$/) names[++name_count] = $0
    next
}
!/^"/ { next }  # ncu's own messages
/^"ID",/ {
    n = split_csv($0, field)
    for (i = 1; i <= n; i++) {
        sub(/ \[[^]]*\]$/, "", field[i])  # a unit; most versions give it in the next line instead
        column[field[i]] = i
    }
    if (!("Kernel Name" in column)) fail("ncu's table has no column 'Kernel Name'")
    next
}
/^"[0-9]/ && ("ID" in column) {
    split_csv($0, field)
    if (mode == "probe") {
        for (i = 1; i <= metric_count; i++) {
            parts = split(metric[i], part, /[+-]/)
            for (k = 1; k <= parts; k++)
                if (value_of(part[k]) != "" && !(part[k] in printed)) print part[k]
            for (k = 1; k <= parts; k++) printed[part[k]] = 1
        }
        exit 0
    }
    convert_row()
}
END {
    if (failed) exit 1
    if (mode == "probe") exit 0
    if ((mode == "names" || mode == "all") && launches != name_count)
        fail("the program named " name_count + 0 " launches, ncu saw " launches + 0)
    if (!rows) fail("there is no launch in ncu's output")
}
