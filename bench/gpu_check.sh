#!/bin/sh
# gpu_check.sh [FOLDER [STEP...]]: everything that needs a GPU, in one go: build, tests, compute-sanitizer on every lab, and the
# labs timed side by side with PyTorch's attention. Logs and CSV files go to FOLDER (default: build/gpu-check). With names of
# steps, these alone: a wrong name prints them, "build" comes before the others. Prints what failed;
# exit code 1 if anything did. All of it takes more than ten minutes on an H200 with 16 cores.
set -u
cd "$(dirname "$0")/.." || exit 1
out=${1:-build/gpu-check}
[ $# -eq 0 ] || shift
chosen=" $* "
mkdir -p "$out"
failed='' known=''
step() {
    name=$1
    shift
    known="$known ${name%%:*}"
    [ "$chosen" = '  ' ] || case $chosen in
        *" ${name%%:*} "*) ;;
        *) return ;;
    esac
    name=$(echo "$name" | tr : -)
    started=$(date +%s)
    "$@" >"$out/$name.log" 2>&1 || failed="$failed $name"
    echo "== $name: $(($(date +%s) - started)) s"
    tail -n "${lines:-12}" "$out/$name.log"
}

lines=3 step build ./lab run --backend gpu -- --list
lines=14 step test ./lab test --backend gpu
lines=40 step ladder ./lab run --backend gpu -- --bench
labs=$(sed -n 's/^add_lab(\(lab[0-9a-z_]*\).*/\1/p' CMakeLists.txt)
for lab in $labs; do
    for shape in '--seqlen 130 --heads 6 --kv-heads 2 --causal --dim 72' '--seqlen-q 70 --seqlen-k 200 --layout bshd --dim 128'; do
        # shellcheck disable=SC2086  # a list of plain words
        lines=6 step "sanitize-$lab:$(echo "$shape" | tr -cd '0-9a-z')" build/gpu/"$lab" --sanitize $shape
    done
done
lines=40 step readme bench/readme_commands.sh
lines=12 step generate build/gpu/lab08_flashdecoding --generate 64 --seqlen 8192
if python3 -c 'import torch' 2>/dev/null; then
    # A kernel on tensor cores is compared; of the others one shape tells enough.
    lines=70 step peers python3 bench/peers.py --lab lab01_naive:cublas --lab lab04_fa2:pipelined \
        --lab lab05_causal:balanced --seqlen 512,1024,2048,4096,8192,16384 --dim 64,128 --causal --csv "$out/forward.csv"
    lines=70 step peers-backward python3 bench/peers.py --backward --lab lab06_backward:separate,fused,fused_deterministic \
        --peer cudnn --peer fa2 --seqlen 2048,4096,8192,16384 --dim 64,128 --causal --csv "$out/backward.csv"
    lines=90 step peers-hopper python3 bench/peers.py \
        --lab lab07_fa3_hopper:tma,wgmma,specialized,pingpong,persistent,lazy_max --lab lab07_fp8 --peer cudnn --peer fa2 \
        --seqlen 512,1024,2048,4096,8192,16384 --dim 64,128 --causal --csv "$out/hopper.csv"
    lines=40 step peers-hopper-256 python3 bench/peers.py --lab lab07_fa3_hopper:persistent,lazy_max --peer cudnn --peer fa2 \
        --seqlen 1024,4096,16384 --dim 256 --causal --csv "$out/hopper256.csv"
    lines=170 step decode python3 bench/decode.py --csv "$out/decode.csv"
    lines=40 step packed python3 bench/packed.py --csv "$out/packed.csv"
fi
for name in $chosen; do
    case "$known " in
        *" $name "*) ;;
        *) echo "there is no step $name; there are$known" && exit 2 ;;
    esac
done
[ -z "$failed" ] || { echo "FAILED:$failed"; exit 1; }
echo "all steps passed"
