#!/bin/sh
# ladder.sh - the ladder: every kernel of the chosen labs over a range of N, as CSV and as a table. Started by ./lab ladder, which
# sets BUILD (the folder of the programs), AWK_VALUE (how awk reads JSON) and backend.
#
#     ladder.sh [--csv FILE] [--seqlen N,N,...] [--dim D] [--causal] [--peers] LAB... [-- OPTIONS OF THE LABS]
#
# On a GPU: time at 16384 tokens in all (batch * N) and 2048 columns (heads * head_dim), as in the papers, and "does not fit" where a
# kernel's matrices of N x N do not. On the cpu backend times say nothing about a GPU: counted bytes, FLOPs and their ratio instead, of
# one head. A line of the CSV that is there already is not measured again, so that a run that was interrupted goes on where it
# was; another commit, device or type is another line.
set -u
say() { printf '%s\n' "$*"; }
usage_error() { say "lab: $*" >&2; exit 2; }

csv='' lengths='' dim='' causal='' peers=no labs=''
while [ $# -gt 0 ]; do
    case $1 in
        --csv | --seqlen | --dim) [ $# -ge 2 ] || usage_error "$1 of ./lab ladder needs a value" ;;
    esac
    case $1 in
        --csv) csv=$2; shift ;;
        --seqlen) lengths=$2; shift ;;
        --dim) dim=$2; shift ;;
        --causal) causal=--causal ;;
        --peers) peers=yes ;;
        --) shift; break ;;
        -*) usage_error "unknown option '$1' of ./lab ladder; it takes --csv FILE, --seqlen N,N,..., --dim D, --causal and --peers" ;;
        *) labs="$labs $1" ;;
    esac
    shift
done
# shellcheck disable=SC2154  # backend: see above
if [ "$backend" = gpu ]; then
    [ -n "$lengths" ] || lengths=1024,2048,4096,8192,16384,32768
    [ -n "$dim" ] || dim=128
    how=--bench
else
    [ -n "$lengths" ] || lengths=64,128,256,512
    [ -n "$dim" ] || dim=64
    how=--profile
fi
case $lengths,$dim in
    *[!0-9,]* | ,* | *,,* | *,) usage_error "--seqlen of ./lab ladder takes lengths with commas between them, and --dim a number; not '$lengths' and '$dim'" ;;
esac
if [ "$peers" = yes ]; then
    [ "$backend" = gpu ] || usage_error "--peers times cuDNN and others beside the labs, which needs a GPU; leave it out"
    python3 -c 'import torch' 2>/dev/null || usage_error "--peers needs PyTorch for python3: install it, or leave --peers out"
fi

# What a line of the CSV is known by, besides the kernel: the first columns.
commit=$(git rev-parse --short HEAD 2>/dev/null || say unknown)
columns=commit,device,lab,seqlen,dim,mask,options,kernel,seqlen_q,batch,heads,kv_heads,dtype,verdict,memory_bytes,workspace_bytes
columns=$columns,ms,tflops,percent_of_peak,x_first,flops,sector_bytes,flops_per_byte,date
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP
first=${labs# } first=${first%% *}
[ -n "$first" ] || usage_error "./lab ladder has no lab to climb"
"$BUILD/$first" --json "$scratch/probe.json" --seqlen 1 >/dev/null 2>"$scratch/said" || {
    status=$?
    cat "$scratch/said" >&2
    exit $status
}
device=$(LC_ALL=C awk "$AWK_VALUE"' /^"device"/ { print value($0, "device"); exit }' "$scratch/probe.json" | tr -d ',"')
mask=full
[ -z "$causal" ] || mask=causal
others=$(printf '%s ' "$@" | tr -d ',"')
others=${others% }
if [ -z "$csv" ]; then
    place=$(say "$device" | sed 's/^NVIDIA //; s/,.*//; s/[^A-Za-z0-9].*//' | tr '[:upper:]' '[:lower:]')
    csv=bench/results/ladder-$place-$(date +%Y-%m-%d).csv
fi
if [ -s "$csv" ]; then
    [ "$(head -n 1 "$csv")" = "$columns" ] || usage_error "$csv is there, and is no ladder of this version; give another --csv"
else
    mkdir -p "$(dirname "$csv")" && say "$columns" >"$csv" || exit 1
fi

# rows FILE.json LAB N: its kernels as lines of the CSV.
rows() {
    LC_ALL=C awk -v key="$commit,$device,$2,$3,$dim,$mask,$others" -v date="$(date +%Y-%m-%d)" "$AWK_VALUE"'
        function plain(text) { return text == "-" ? "" : text }
        /^"shape"/ { shape = $0 }
        FNR == 1 { in_kernels = 0 }
        /^"kernels"/ { in_kernels = 1 }
        in_kernels && /^{"kernel"/ {
            n++
            name[n] = value($0, "kernel")
            ran = value($0, "ran") == "true"
            verdict[n] = ran ? value($0, "verdict") : $0 ~ /workspace at this shape|in one piece/ ? "does not fit" : "did not run"
            memory[n] = value($0, "memory_bytes")
            workspace[n] = value($0, "workspace_bytes")
            ms[n] = plain(value($0, "ms"))
            tflops[n] = plain(value($0, "tflops"))
            percent[n] = plain(value($0, "percent_of_peak"))
        }
        /^\]/ { in_kernels = 0 }
        /^{"roofline": "H200"/ {
            flops[value($0, "kernel")] = value($0, "flops")
            bytes[value($0, "kernel")] = value($0, "sector_bytes")
            ratio[value($0, "kernel")] = value($0, "flops_per_byte")
        }
        END {
            for (i = 1; i <= n; i++) {
                if (first == "" && ms[i] != "") first = ms[i]
                speedup = ms[i] != "" ? sprintf("%.3g", first / ms[i]) : ""
                print key "," name[i] "," value(shape, "seqlen_q") "," value(shape, "batch") "," value(shape, "heads") "," \
                    value(shape, "kv_heads") "," value(shape, "dtype") "," verdict[i] "," memory[i] "," workspace[i] "," ms[i] "," \
                    tflops[i] "," percent[i] "," speedup "," flops[name[i]] "," bytes[name[i]] "," ratio[name[i]] "," date
            }
        }' "$1"
}

# climb LAB N: one lab at one length.
climb() {
    lab=$1 n=$2
    if [ "$backend" = gpu ]; then
        batch=$((16384 / n)) heads=$((2048 / dim))
        [ $batch -gt 0 ] || batch=1
        [ $heads -gt 0 ] || heads=1
    else
        batch=1 heads=1
    fi
    mask_option=${causal:---full}
    shape="--batch $batch --heads $heads --kv-heads $heads --seqlen $n"
    # A lab of few queries is asked for one.
    if "$BUILD/$lab" --help 2>/dev/null | grep -q '^Default shape here:.*--seqlen-q'; then
        shape="--batch $batch --heads $heads --kv-heads $(((heads + 3) / 4)) --seqlen-q 1 --seqlen-k $n"
    fi
    shift 2
    # shellcheck disable=SC2086  # lists of plain words
    "$BUILD/$lab" $shape --dim "$dim" $mask_option $how --json "$scratch/lab.json" "$@" >"$scratch/said" 2>&1 </dev/null
    status=$?
    case $status in
        0 | 1) rows "$scratch/lab.json" "$lab" "$n" >"$scratch/rows" && cat "$scratch/rows" >>"$csv" ;;
        77) cat "$scratch/said" >&2; skipped=yes ;;
        *)
            clear_line
            say "$lab at N = $n: $(tail -n 1 "$scratch/said")" >&2
            say "$commit,$device,$lab,$n,$dim,$mask,$others,-,,,,,,$(refusal),,,,,,,,,,$(date +%Y-%m-%d)" >>"$csv" ;;
    esac
    [ $status -ne 1 ] || wrong="$wrong $lab at N = $n;"
}
# Why no kernel of the lab ran.
refusal() { if grep -q 'memory' "$scratch/said"; then say 'does not fit'; else say 'not supported'; fi; }

show_progress=no
[ ! -t 2 ] || show_progress=yes
progress() { [ $show_progress = no ] || printf '\r\033[K%s' "$*" >&2; }
clear_line() { progress ''; }

total=0 done=0 kept=0 wrong='' skipped=no
list=$(say "$lengths" | tr ',' ' ')
for lab in $labs; do for n in $list; do total=$((total + 1)); done; done
for lab in $labs; do
    for n in $list; do
        done=$((done + 1))
        if grep -qF -e "$commit,$device,$lab,$n,$dim,$mask,$others," "$csv"; then
            kept=$((kept + 1))
            continue
        fi
        progress "$done of $total: $lab, N = $n"
        climb "$lab" "$n" "$@"
    done
done
clear_line
[ $kept -eq 0 ] || say "$kept of $total were in $csv already"

# The table: a line for each kernel, a column for each length.
LC_ALL=C awk -F, -v key="$commit,$device," -v lengths="$lengths" -v labs="$labs " -v rest="$dim,$mask,$others" -v backend="$backend" '
    BEGIN { count = split(lengths, n, ",") }
    index($0, key) == 1 && index(labs, " " $3 " ") && $5 "," $6 "," $7 == rest && $8 != "-" {
        name = $3 " " $8
        if (!(name in seen)) { seen[name] = 1; order[++kernels] = name }
        said[name, $4] = backend == "gpu" ? ($18 != "" ? sprintf("%.1f", $18) : $14) : ($23 != "" ? sprintf("%.3g", $23) : $14)
        if ($14 != "right" && $14 != "nothing to do") said[name, $4] = $14
    }
    END {
        print backend == "gpu" ? "TFLOP/s over N:" : "FLOPs for each byte of global memory over N:"
        line = sprintf("  %-44s", "kernel")
        for (i = 1; i <= count; i++) line = line sprintf(" %12s", n[i])
        print line
        for (k = 1; k <= kernels; k++) {
            line = sprintf("  %-44s", order[k])
            for (i = 1; i <= count; i++) line = line sprintf(" %12s", (order[k], n[i]) in said ? said[order[k], n[i]] : "-")
            print line
        }
    }' "$csv"
what='bytes and FLOPs'
[ "$backend" = cpu ] || what='ms and % of peak'
say "All of it, with memory, $what: $csv"

if [ "$peers" = yes ]; then
    chosen=''
    for lab in $labs; do chosen="$chosen --lab $lab"; done
    # shellcheck disable=SC2086
    python3 bench/peers.py --build "$BUILD" $chosen --seqlen "$lengths" --dim "$dim" $causal --csv "${csv%.csv}-peers.csv" || exit 1
fi
[ -z "$wrong" ] || { say "NOT RIGHT:${wrong%;}"; exit 1; }
[ $skipped = no ] || exit 77
