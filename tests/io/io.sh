#!/bin/sh
# io.sh - IO as a unit test: the bytes that a lab's kernels move and what they compute, as its --profile counts them, must
# equal the formulas of a table exactly.
#
#     io.sh LAB TABLE [OPTION...]         runs LAB with --profile and these options, and holds it against TABLE
#     io.sh --counted JSON [--kernel NAME] TABLE [OPTION...]
#                                         the same with what --json wrote in such a run, for the formulas of kernel NAME
#
# A formula is one line of the table:     KERNEL FUNCTION COUNTER = FORMULA         (or <= or >=, for a budget)
#
#     KERNEL    of the lab's own table
#     FUNCTION  the launch; * means the sum over all launches of KERNEL
#     COUNTER   reads, writes                  bytes of global memory that threads asked for
#               tma_reads                      bytes that TMA and bulk copies load from it
#               sector_reads, sector_writes    bytes of the 32-byte sectors that took, counted once for each warp's request
#               tensor_flops                   floating-point operations of tensor cores, of whole tiles
#               flops, exps                    fp32 operations of CUDA cores, and exponentials, of all threads (profile.h)
#               barriers                       times that a warp passed a barrier of its block
#               conflicts                      wavefronts of shared memory beyond those without bank conflicts
#     FORMULA   what sh calls arithmetic; / rounds down. N keys, M queries, d head_dim, H heads (of all batches),
#               G heads of K and V (likewise), S splits (0: not said), V pairs (query, key) of one head that are not masked; causal is 1 or 0; up(x, y) is x / y rounded up; falling and rising are 1
#               if OPTION has --inputs of that name, by which the scores of a row fall or rise from key to key, else 0
#
# A line "only CONDITION" before formulas says, in the same arithmetic, for which shapes they hold: 1 for all. Where no
# formula holds nothing would be tested: that is a failure. A line "let NAME = FORMULA" gives the lines below it one more
# number; with "sum NAME COUNT = FORMULA" it is the sum of FORMULA for i = 0, 1, ... COUNT - 1. Comments begin with #. Exit 0, or 1 with each difference.
set -u
lab='' counted='' only_kernel=''
while :; do
    case $1 in
        --counted) counted=$2 ;;
        --kernel) only_kernel=$2 ;;
        *) break ;;
    esac
    shift 2
done
[ -n "$counted" ] || { lab=$1 && shift; }
table=$1
shift
falling=0 rising=0
# shellcheck disable=SC2034 # formulas use both
case " $* " in
    *' --inputs falling '*) falling=1 ;;
    *' --inputs rising '*) rising=1 ;;
esac
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
if [ -n "$counted" ]; then
    cat -- "$counted" >"$dir/json" || exit 1
else
    "$lab" --profile --json "$dir/json" "$@" >"$dir/out" 2>&1 || { cat "$dir/out"; echo "io.sh: $lab $* failed"; exit 1; }
fi

# value KEY: of the first place where standard input has it
value() { sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p" | head -n 1; }
shape=$(grep '^"shape"' "$dir/json")
# A number, and nothing that arithmetic would take for more: with --counted the file is somebody else's.
of_shape() { printf '%s\n' "$shape" | value "$1" | sed 's/[^0-9a-z].*//'; }
N=$(of_shape seqlen_k) M=$(of_shape seqlen_q) d=$(of_shape head_dim)
H=$(($(of_shape batch) * $(of_shape heads)))
# shellcheck disable=SC2034 # formulas use both
G=$(($(of_shape batch) * $(of_shape kv_heads))) S=$(of_shape splits)
S=${S:-0}
V=$((N * M)) causal=0
if [ "$(of_shape causal)" = true ]; then
    # shellcheck disable=SC2034 # formulas use it
    causal=1
    # Row i sees i + 1 + N - M keys, none if that is negative: the sums of 1 + ... + N, less those of rows that are not there.
    V=$((N * (N + 1) / 2))
    [ "$M" -ge "$N" ] || V=$((V - (N - M) * (N - M + 1) / 2))
fi

# evaluate FORMULA: up(x, y) becomes ((x + y - 1) / y), for x and y without brackets
evaluate() {
    arithmetic=$1
    case $1 in
        *up\(*) arithmetic=$(printf '%s' "$1" | sed 's/up(\([^(),]*\), *\([^(),]*\))/((\1 + \2 - 1) \/ (\2))/g') ;;
    esac
    # shellcheck disable=SC2004  # the $ makes the shell read the formula, not a variable's number
    printf '%d' "$(($arithmetic))"
}

# A line "KERNEL FUNCTION COUNTER NUMBER" for each sum of counters there is; none for one that was not counted in a launch (null).
newline='
'
counted=$newline$(awk '
    function text(key,    at, rest) {
        at = index($0, "\"" key "\": \"")
        rest = substr($0, at + length(key) + 5)
        return at ? substr(rest, 1, index(rest, "\"") - 1) : ""
    }
    function member(key,    at, rest) {
        at = index($0, "\"" key "\": ")
        rest = substr($0, at + length(key) + 4)
        sub(/[,}].*/, "", rest)
        return at ? rest : ""
    }
    # The sum of members, times a factor; with a minus: to be subtracted.
    function add(counter, factor, members,    name, i, n, key, number) {
        n = split(members, name, " ")
        for (i = 1; i <= n; i++) {
            key = name[i]
            sub(/^-/, "", key)
            number = member(key)
            if (number !~ /^[0-9]+$/) { unknown[kernel, called, counter] = unknown[kernel, "*", counter] = 1; continue }
            if (key != name[i]) number = -number
            sum[kernel, called, counter] += number * factor
            sum[kernel, "*", counter] += number * factor
        }
    }
    /^{"launch"/ {
        kernel = text("kernel")
        called = text("function")
        add("reads", 1, "global_read_bytes")
        add("writes", 1, "global_write_bytes")
        add("tma_reads", 1, "tma_load_bytes")
        add("sector_reads", 32, "global_read_sectors")
        add("sector_writes", 32, "global_write_sectors")
        add("flops", 1, "fp32_flops")
        add("tensor_flops", 1, "tensor_flops")
        add("exps", 1, "exps")
        add("barriers", 1, "barriers")
        add("conflicts", 1, "shared_read_wavefronts shared_write_wavefronts -shared_read_ideal -shared_write_ideal")
    }
    END {
        for (key in sum) {
            if (key in unknown) continue
            split(key, part, SUBSEP)
            printf "%s %s %s %.0f\n", part[1], part[2], part[3], sum[key]
        }
    }' "$dir/json")$newline

# measured KERNEL FUNCTION COUNTER: the sum over the launches; nothing if there is no such launch
measured() {
    number=${counted#*"$newline$1 $2 $3 "}
    [ "$number" = "$counted" ] || printf '%s' "${number%%"$newline"*}"
}

# compare GOT =|<=|>= WANT: whether that is so, of two whole numbers
compare() {
    case $1/$3 in /* | */) return 1 ;; esac
    case $2 in
        '<=') [ "$1" -le "$3" ] ;;
        '>=') [ "$1" -ge "$3" ] ;;
        *) [ "$1" -eq "$3" ] ;;
    esac
}

tested=0 failures=0 holds=1
while IFS= read -r line; do
    line=${line%%#*}
    # shellcheck disable=SC2086  # split into words on purpose, here and below
    set -f && set -- ${line#*=} && formula=$*
    # shellcheck disable=SC2086
    set -- ${line%%=*} && set +f
    case $#/${1:-} in
        0/) continue ;;
        */only)
            holds=$(evaluate "${line#*only}")
            [ -n "$holds" ] || { echo "io.sh: $table: not understood: $line"; exit 1; }
            continue ;;
        2/let)
            number=$(evaluate "$formula")
            case $number/$2 in
                /* | */*[!A-Za-z_]*) echo "io.sh: $table: not understood: $line"; exit 1 ;;
            esac
            [ "$holds" = 0 ] || eval "$2=$number"
            continue ;;
        3/sum)
            number=0 i=0 count=$(evaluate "$3")
            case $count/$2 in
                /* | */*[!A-Za-z_]*) echo "io.sh: $table: not understood: $line"; exit 1 ;;
            esac
            while [ "$holds" != 0 ] && [ $i -lt "$count" ]; do
                number=$((number + $(evaluate "$formula")))
                i=$((i + 1))
            done
            [ "$holds" = 0 ] || eval "$2=$number"
            continue ;;
        3/* | 4/*) ;;
        *) echo "io.sh: $table: not understood: $line"; exit 1 ;;
    esac
    [ "$holds" != 0 ] || continue
    [ -z "$only_kernel" ] || [ "$only_kernel" = "$1" ] || continue
    got=$(measured "$1" "$2" "$3")
    want=$(evaluate "$formula")
    tested=$((tested + 1))
    fits='='
    case ${4:-} in
        '<') fits='<=' ;;
        '>') fits='>=' ;;
        '') ;;
        *) echo "io.sh: $table: not understood: $line"; exit 1 ;;
    esac
    if ! compare "$got" "$fits" "$want"; then
        failures=$((failures + 1))
        was=', but'
        [ "$fits" = '=' ] || was=", and has to be $fits"
        echo "$1 $2 $3: measured ${got:-no such launch or counter}$was $formula = $want at N=$N M=$M d=$d H=$H V=$V"
    fi
done <"$table"
echo "$tested formulas, $failures failed (N=$N M=$M d=$d H=$H V=$V)"
[ $failures -eq 0 ] && [ $tested -gt 0 ]
