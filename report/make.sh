#!/bin/sh
# make.sh - one page about each chosen lab: results, what its kernels did to memory line by line, races, figures. Started by
# ./lab report, which sets BUILD (the folder of the programs for the cpu backend), GPU_BUILD (those for the GPU, or nothing) and
# LACK (why there are none).
#
#     make.sh [--output FILE.html] LAB... [-- OPTIONS OF THE LABS]
#
# What is counted, looked for and timed are runs of their own: counting and looking for races slow a kernel down.
set -u
say() { printf '%s\n' "$*"; }
output='' labs=''
while [ $# -gt 0 ]; do
    case $1 in
        --output) output=$2; shift ;;
        --) shift; break ;;
        *) labs="$labs $1" ;;
    esac
    shift
done
# shellcheck disable=SC2154  # BUILD, GPU_BUILD and LACK: see above
results=$BUILD/report
mkdir -p "$results"

# run NAME PROGRAM OPTION...: a run of the lab, whose JSON goes to NAME.json. Returns 1 if there is nothing to report.
run() {
    json=$results/$lab-$1.json
    log=$results/$lab-$1.log
    program=$2
    shift 2
    rm -f "$json"
    "$program" "$@" --json "$json" >"$log" 2>&1 </dev/null
    status=$?
    case $status in
        0) ;;
        1) [ -s "$json" ] && wrong="$wrong $lab" ;;
        *) cat "$log" >&2; return 1 ;;
    esac
    [ -s "$json" ] || { cat "$log" >&2; return 1; }
}

# Those that show the lab, or that its folder holds.
figures_of() {
    number=${1#lab}
    grep -l "lab ${number%%_*} " figures/*.svg 2>/dev/null
    for svg in "$1"/*.svg; do [ ! -e "$svg" ] || say "$svg"; done
}

# page_of LAB: where its page goes.
page_of() {
    if [ -n "$output" ]; then
        say "$output"
        return
    fi
    short=${1%%_*}
    # Two labs may have one number.
    set -- "$1" "$short"_*
    if [ $# -eq 2 ]; then say "build/report-$short.html"; else say "build/report-$1.html"; fi
}

# report_lab LAB OPTION...
report_lab() {
    lab=$1
    shift
    page=$(page_of "$lab")
    command="./lab report ${lab%%_*}${1:+ -- $*}"
    say "$lab: counting" && run counted "$BUILD/$lab" --profile "$@" || return 1
    say "$lab: looking for races" && run sanitized "$BUILD/$lab" --sanitize "$@" || return 1
    gpu='' timed=''
    if [ -n "$GPU_BUILD" ]; then  # one that does not count is no reason for no page
        say "$lab: under Nsight Compute" && run gpu "$GPU_BUILD/$lab" --profile "$@" && gpu=$results/$lab-gpu.json
        say "$lab: timing" && run timed "$GPU_BUILD/$lab" --bench "$@" && timed=$results/$lab-timed.json
    fi
    commit=$(git rev-parse --short HEAD 2>/dev/null || say unknown)
    # shellcheck disable=SC2046  # names without blanks
    "$BUILD/report/lab_report" --source "$lab/$lab.cu" --counted "$results/$lab-counted.json" \
        --sanitized "$results/$lab-sanitized.json" ${gpu:+--gpu "$gpu"} ${timed:+--timed "$timed"} \
        --style report/page.css --script report/page.js --output "$page" \
        --note "$command · $(date +%Y-%m-%d) · commit $commit" ${LACK:+--note "Without a GPU's counters and times: $LACK."} \
        $(figures_of "$lab") || return 1
    say "$lab: $page"
}

wrong='' failed=''
for chosen in $labs; do report_lab "$chosen" "$@" || failed="$failed $chosen"; done
[ -z "$wrong" ] || say "NOT RIGHT:$(say "$wrong" | tr ' ' '\n' | sort -u | tr '\n' ' ')"
[ -z "$failed" ] || say "NO PAGE:$failed"
[ -z "$wrong$failed" ]
