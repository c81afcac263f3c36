#!/bin/sh
# ladder.sh SOURCE_FOLDER EXPECT.SH - bench/ladder.sh on stand-ins for labs: what it asks them, what it keeps, and how it goes on.
set -u
source_folder=$1 expect=$2
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
csv=$dir/ladder.csv calls=$dir/calls
AWK_VALUE=$(sed -n "/^awk_value='/,/^'/p" "$source_folder/lab" | sed "1s/^awk_value='//; \$d")
BUILD=$dir/build
export AWK_VALUE BUILD
mkdir "$BUILD"
cd "$dir" || exit 1

# lab NAME SCRIPT: a lab that notes its options, and then runs the script with $n, $json and $result to write to $json.
lab() {
    cat >"$BUILD/$1" <<END
#!/bin/sh
echo "$1 \$*" >>"$calls"
[ "\$1" != --help ] || { echo 'Default shape here: --batch 1${3:-}'; exit 0; }
json='' n=''
while [ \$# -gt 0 ]; do
    case \$1 in
        --json) json=\$2 ;;
        --seqlen | --seqlen-k) n=\$2 ;;
    esac
    shift
done
kernel() { # NAME VERDICT RAN MS DETAIL
    printf '{"kernel": "%s", "adds": "a, \\\\"b\\\\"", "verdict": "%s", "ran": %s, "detail": "%s", "workspace_bytes": 12, "memory_bytes": 345' "\$1" "\$2" "\$3" "\$5"
    [ "\$4" = - ] || printf ', "ms": %s, "tflops": 100.25, "percent_of_peak": 10.5' "\$4"
    printf '}'
}
write() {
    printf '{\n"device": "NVIDIA H200, second",\n"shape": {"batch": 2, "heads": 16, "kv_heads": 4, "seqlen_q": 7, "dtype": "fp16"},\n"kernels": [\n'
    $2
    printf '\n]\n}\n'
}
END
    cat >>"$BUILD/$1" <<'END'
write >"$json"
[ "$n" != 666 ] || exit 1
END
    chmod +x "$BUILD/$1"
}
lab lab01_one 'kernel slow right true 8 ""; echo ,; kernel quick right true 2 ""; echo ,
    kernel large "did not run" false - "needs 9 GB of workspace at this shape"; echo ,; kernel other "did not run" false - "kernel other does not support --dim 8"'
lab lab02_two 'kernel only wrong true - "O is wrong"' ' --seqlen-q 1'
cat >"$dir/climb" <<END
#!/bin/sh
exec "$source_folder/bench/ladder.sh" --csv "$csv" "\$@"
END
chmod +x "$dir/climb"
lines() { grep -c "$1" "$csv"; }
# has TEXT: a line of the CSV, from the lab on
has() { grep -qF -e ",NVIDIA H200 second,$1" "$csv" || fail "no line ...,$1 in the CSV: $(cat "$csv")"; }

backend=gpu
export backend
try 0 'lab01_one quick +100\.2 +100\.2' - "$dir/climb" --seqlen 1024,32768 --dim 64 lab01_one
try 0 'lab01_one large +does not fit +does not fit' - "$dir/climb" --seqlen 1024,32768 --dim 64 lab01_one
has "lab01_one,1024,64,full,,slow,7,2,16,4,fp16,right,345,12,8,100.25,10.5,1,,,,"
has "lab01_one,1024,64,full,,quick,7,2,16,4,fp16,right,345,12,2,100.25,10.5,4,,,,"
has "lab01_one,32768,64,full,,large,7,2,16,4,fp16,does not fit,345,12,,,,,,,,"
has "lab01_one,32768,64,full,,other,7,2,16,4,fp16,did not run,345,12,,,,,,,,"
grep -q '^lab01_one --batch 16 --heads 32 --kv-heads 32 --seqlen 1024 --dim 64 --full --bench --json' "$calls" || fail "not asked at 16384 tokens"
grep -q '^lab01_one --batch 1 --heads 32 --kv-heads 32 --seqlen 32768 ' "$calls" || fail "not asked for one long sequence"

# What is there is not measured again; another mask, or option of the labs, is something else.
before=$(grep -c -- --bench "$calls")
cp "$csv" "$dir/before.csv"
try 0 '2 of 2 were in .* already' - "$dir/climb" --seqlen 1024,32768 --dim 64 lab01_one
cmp "$csv" "$dir/before.csv" || fail "the CSV changed"
[ "$(grep -c -- --bench "$calls")" -eq "$before" ] || fail "it was measured again"
try 0 - - "$dir/climb" --seqlen 1024 --dim 64 --causal lab01_one -- --splits 3
has "lab01_one,1024,64,causal,--splits 3,quick,"
grep -q -- '--causal --bench --json [^ ]* --splits 3$' "$calls" || fail "the labs' own options are not passed on"
# Interrupted, it goes on where it was and leaves the same lines.
grep -v ',32768,' "$dir/before.csv" >"$csv"
try 0 '1 of 2 were in .* already' - "$dir/climb" --seqlen 1024,32768 --dim 64 lab01_one
cmp "$csv" "$dir/before.csv" || fail "going on gave another CSV"

# A lab of few queries is asked for one; one that is wrong is told; one that refuses is a line of its own.
try 1 'NOT RIGHT: lab02_two at N = 666$' - "$dir/climb" --seqlen 666 lab02_two
grep -q '^lab02_two --batch 24 --heads 16 --kv-heads 4 --seqlen-q 1 --seqlen-k 666 ' "$calls" || fail "not asked for one query"
has "lab02_two,666,128,full,,only,7,2,16,4,fp16,wrong,"
cat >"$BUILD/lab03_three" <<'END'
#!/bin/sh
[ "$*" != "--json $2 --seqlen 1" ] || { echo '"device": "x"' >"$2"; exit 0; }
echo "This shape needs 9 TB of host memory" >&2
exit 2
END
chmod +x "$BUILD/lab03_three"
try 0 - 'lab03_three at N = 8: This shape needs' "$dir/climb" --seqlen 8 lab03_three
[ "$(lines 'lab03_three,8,128,full,,-,,,,,,does not fit,')" -eq 1 ] || fail "a refusal is no line"
try 0 '1 of 1 were in' - "$dir/climb" --seqlen 8 lab03_three
printf '#!/bin/sh\necho "no GPU" >&2\nexit 77\n' >"$BUILD/lab04_four"
chmod +x "$BUILD/lab04_four"
try 77 - 'no GPU' "$dir/climb" --seqlen 8 lab04_four

backend=cpu
try 0 'FLOPs for each byte' - "$dir/climb" --seqlen 64 lab01_one
grep -q -- '--batch 1 --heads 1 --kv-heads 1 --seqlen 64 --dim 64 --full --profile' "$calls" || fail "the cpu backend is not asked for a profile"
try 2 - 'needs a GPU' "$dir/climb" --peers lab01_one
try 2 - 'lengths with commas' "$dir/climb" --seqlen 1,,2 lab01_one
try 2 - 'lengths with commas' "$dir/climb" --seqlen abc lab01_one
try 2 - "unknown option '--what'" "$dir/climb" --what lab01_one
try 2 - 'needs a value' "$dir/climb" --dim
echo 'something else' >"$dir/other.csv"
try 2 - 'no ladder of this version' "$source_folder/bench/ladder.sh" --csv "$dir/other.csv" lab01_one

finish
