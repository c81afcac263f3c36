#!/bin/sh
# self_test.sh FOLDER: tests the scripts of this folder with stand-ins for ncu, nvidia-smi, nvcc and the program. Works in
# FOLDER, which it empties first. Exit code 1 if a script did not do what it should.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: self_test.sh FOLDER" >&2; exit 2; }
rm -rf "$1"
mkdir -p "$1/bin" "$1/build/tests/calibration"
cd "$1"
failures=0
checks=0
PATH="$PWD/bin:$PATH"
export PATH

# ---- stand-ins ----
cat >bin/ncu <<'END'
#!/bin/sh
# Launch i has i times 1,000 of the n-th metric, plus n. LACKS: a metric that it does not know. UNIT: said in the head of
# the table. KERNELS: its launches.
[ "$1" != --version ] || { echo "Version 2025.3.1.0 (build 1)"; exit 0; }
if [ "$1" = --query-metrics ]; then
    echo "smsp__sass_inst_executed_op_shared_ld  counter"
    echo "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld  Counter  sector  # of sectors"
    echo "l1tex__average_m_xbar2l1tex_read_bytes_mem_global_op_tma_ld  Ratio"
    exit 0
fi
count=99
while [ $# -gt 0 ]; do
    case $1 in
    --metrics) metrics=$2; shift 2 ;;
    --log-file) log=$2; shift 2 ;;
    --launch-count) count=$2; shift 2 ;;
    --page | --clock-control | --print-units | --print-kernel-base) shift 2 ;;
    --csv) shift ;;
    *) break ;;
    esac
done
"$@" || exit 1
if [ -n "${LACKS:-}" ]; then
    case ,$metrics, in *,$LACKS,*) echo "==ERROR== Failed to find metric $LACKS" >"$log"; exit 1 ;; esac
fi
awk -v metrics="$metrics" -v kernels="$KERNELS" -v count="$count" 'BEGIN {
    n = split(metrics, metric, ",")
    launches = split(kernels, kernel, ";")
    print "==PROF== Connected to process 1"
    printf "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\""
    for (k = 1; k <= n; k++) printf ",\"%s%s\"", metric[k], ENVIRON["UNIT"]
    printf "\n\"\",\"\",\"\",\"\""
    for (k = 1; k <= n; k++) printf ",\"\""
    printf "\n"
    for (i = 1; i <= launches && i <= count; i++) {
        printf "\"%d\",\"7\",\"%s\",\"(32, 1, 1)\"", i - 1, kernel[i]
        for (k = 1; k <= n; k++) printf ",\"%s\"", metric[k] ~ /_op_(red|atom)|shared_atom/ && i == 1 ? "0" : i ",00" k
        printf "\n"
    }
    print "==PROF== Disconnected"
}' >"$log"
END
cat >bin/nvidia-smi <<'END'
#!/bin/sh
case $1 in *name*) echo "NVIDIA Test" ;; *) echo 1.2.3 ;; esac
END
printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' >bin/nvcc
printf '#!/bin/sh\necho "Function : copy"\n' >bin/cuobjdump
printf '#!/bin/sh\nprintf "copy_half\\ncopy_float\\nwalk\\n"\n' >build/tests/calibration/calibration
printf '#!/bin/sh\necho "max err 0"\n' >build/lab01_naive
cp build/lab01_naive build/lab02_online_softmax
chmod +x bin/* build/lab* build/tests/calibration/calibration
echo "CMAKE_CUDA_COMPILER:FILEPATH=$PWD/bin/nvcc" >build/CMakeCache.txt

# expect CODE TEXT COMMAND...: its exit code, and a text (a regular expression, or none) among what it says.
expect() {
    code=$1 text=$2
    shift 2
    got=0
    "$@" >said 2>&1 || got=$?
    checks=$((checks + 1))
    if [ "$got" -ne "$code" ] || { [ -n "$text" ] && ! grep -q -- "$text" said; }; then
        echo "expected exit code $code and '$text', got $got from: $*"
        cat said
        failures=$((failures + 1))
    fi
}
has() { expect 0 '' grep -x -- "$1" "$2"; }
lacks() { expect 1 '' grep -- "$1" "$2"; }

# ---- refresh.sh ----
KERNELS='copy;void copy<float>(const T1 *, int);walk'
export KERNELS
expect 0 'counters of 3 launches' "$here/refresh.sh" build out
has '# GPU: NVIDIA Test' out/h200.csv
has '# driver: 1.2.3' out/h200.csv
has '# ncu: 2025.3.1.0 (build 1)' out/h200.csv
has '# CUDA: 13.0.88' out/h200.csv
has 'copy_half,global_load_requests,1001' out/h200.csv
has 'walk,shared_store_conflicts,30010' out/h200.csv
has 'walk,global_red_requests,30011' out/h200.csv
lacks 'copy_half,global_red' out/h200.csv
has 'copy_half,global_load_requests,1001' out/h200_copies.csv
lacks 'cp_async' out/h200.csv
# Only kernels that match a counter's pattern have it; a counter may be a sum or a difference of metrics.
in_launch_2() { echo "200$(tr , '\n' <out/copies-wanted | grep -nx "$1" | cut -d: -f1)"; }
sed -n 's/^# metrics: //p' out/h200_copies.csv >out/copies-wanted
has "copy_float,cp_async_requests,$(in_launch_2 smsp__inst_executed_op_ldgsts.sum)" out/h200_copies.csv
l1=$(in_launch_2 l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum)
l2=$(in_launch_2 smsp__sass_l1tex_m_xbar2l1tex_read_sectors_mem_global_op_ldgsts_cache_bypass.sum)
has "copy_float,cp_async_sectors,$((l1 + l2))" out/h200_copies.csv
lacks 'walk,cp_async' out/h200_copies.csv
lacks 'bulk\|ldmatrix' out/h200_copies.csv
expect 0 '' grep '^copy_float,cp_async_wavefronts,-' out/h200_copies.csv  # one metric less three
expect 0 'h200_copies.csv: ' "$here/refresh.sh" build only copies
expect 0 '' test ! -e only/h200.csv
expect 1 "no group 'labs'" "$here/refresh.sh" build only labs
UNIT=' [inst]' expect 0 'counters of 3 launches' "$here/refresh.sh" build out1
has 'walk,shared_store_conflicts,30010' out1/h200.csv
LACKS=smsp__inst_executed_op_shared_ld.sum
export LACKS
expect 0 'ncu lacks some metrics' "$here/refresh.sh" build out2
has 'copy_half,shared_load_requests,1005' out2/h200.csv
has '==ERROR== Failed to find metric smsp__inst_executed_op_shared_ld.sum' out2/logs/missing-metrics.log
has 'smsp__sass_inst_executed_op_shared_ld  counter' out2/logs/query-metrics.log
LACKS=l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum
expect 1 'no metric for global_load_requests' "$here/refresh.sh" build out3
LACKS=
KERNELS='copy;copy' expect 1 'named 3 launches, ncu saw 2' "$here/refresh.sh" build out4
KERNELS='copy;copy;walk;walk' expect 1 'more launches than the 3' "$here/refresh.sh" build out4
KERNELS='copy;walk;walk' expect 1 "launch 2 is of kernel 'walk'" "$here/refresh.sh" build out4
expect 0 '' test ! -e out4/h200.csv
expect 1 'not a build folder of the gpu backend' "$here/refresh.sh" . out5

# ---- discover.sh ----
expect 0 '1 metrics that are not always 0' "$here/discover.sh" build discovered
has 'copy_float,l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum,2001' discovered/discovered.csv
has 'l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum' discovered/asked.txt
lacks 'average' discovered/asked.txt
LACKS=l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum
expect 0 'the run for known failed (exit code 1): ==ERROR== Failed to find metric' "$here/discover.sh" build discovered2
LACKS=
expect 2 'usage: discover.sh' "$here/discover.sh" build

# ---- lab_counters.sh ----
KERNELS='scores;void softmax<1>(attention);scores;output'
expect 0 '210 counters' "$here/lab_counters.sh" build labs
has 'lab01_naive:tiled,scores,1,global_load_requests,1001' labs/h200_labs.csv
has 'lab02_online_softmax:fused,output,4,global_load_sectors,4002' labs/h200_labs.csv
lacks ',scores,3,' labs/h200_labs.csv

# ---- without ncu ----
for tool in awk basename dirname cat sed grep head sh; do ln -sf "$(command -v "$tool")" "build/$tool"; done
if [ ! -x /usr/local/cuda/bin/ncu ] && ! ls /opt/nvidia/nsight-compute/*/ncu >/dev/null 2>&1; then
    expect 1 'there is no ncu here' env "PATH=$PWD/build" "$here/refresh.sh" build out6
fi

# ---- compare.sh ----
# 40 counters in both, of which the caller changes some.
table() { awk 'BEGIN { print "kernel,counter,value"; for (i = 1; i <= 20; i++) print "k" i ",loads," i "\nk" i ",stores,7" }'; }
table >cpu.csv
table >gpu.csv
echo '# comment' >none
expect 0 '^40 counters, 40 equal, 0 explained$' "$here/compare.sh" gpu.csv none cat cpu.csv
sed 's/^k3,loads,3$/k3,loads,4/' gpu.csv >differs
expect 1 '^k3,loads,3,4,$' "$here/compare.sh" differs none cat cpu.csv
echo 'k3,loads,3,4,nvcc merges two of them, as LDG.64 shows' >reason
expect 0 '^40 counters, 39 equal, 1 explained$' "$here/compare.sh" differs reason cat cpu.csv
expect 1 'the exceptions say 3,4' "$here/compare.sh" gpu.csv reason cat cpu.csv
sed 's/^k3,loads,3$/k3,loads,2/' cpu.csv >other
expect 1 '^k3,loads,2,4, but' "$here/compare.sh" differs reason cat other
echo 'k3,loads,3,4,' >empty_reason
expect 1 'not kernel,counter,cpu,ncu,reason' "$here/compare.sh" differs empty_reason cat cpu.csv
echo 'k3,nothing,3,4,there is no such counter' >unknown
expect 1 'no such counter: k3,nothing' "$here/compare.sh" gpu.csv unknown cat cpu.csv
grep -v '^k5,' gpu.csv >lacks_kernel
expect 1 'kernel k5 is not in the CSV of the GPU' "$here/compare.sh" lacks_kernel none cat cpu.csv
expect 1 'kernel k5 is in the CSV of the GPU' "$here/compare.sh" gpu.csv none cat lacks_kernel
grep -v '^k5,stores' gpu.csv >lacks_counter
expect 1 '^k5,stores,7,-,$' "$here/compare.sh" lacks_counter none cat cpu.csv
expect 1 '^k5,stores,-,7,$' "$here/compare.sh" gpu.csv none cat lacks_counter
{ cat gpu.csv; echo 'k1,loads,1'; } >twice
expect 1 'twice: k1,loads' "$here/compare.sh" twice none cat cpu.csv
{ cat gpu.csv; echo 'k1,more,x'; } >garbage
expect 1 'not kernel,counter,value' "$here/compare.sh" garbage none cat cpu.csv
sed 's/^k\([123]\),loads,.*/k\1,loads,0/' gpu.csv >many
for i in 1 2 3; do echo "k$i,loads,$i,0,a reason that is long enough"; done >reasons
expect 1 'fewer than 95 %' "$here/compare.sh" many reasons cat cpu.csv
expect 1 'failed with exit code 3' "$here/compare.sh" gpu.csv none sh -c 'exit 3'
expect 0 '^40 counters, 37 equal, 3 explained$' "$here/compare.sh" --least 92 many reasons cat cpu.csv
expect 1 'fewer than 93 %' "$here/compare.sh" --least 93 many reasons cat cpu.csv
expect 2 'usage: compare.sh' "$here/compare.sh" --least most many reasons cat cpu.csv
{ cat cpu.csv; echo 'k1,global_atomic_sectors,7'; echo 'k2,shared_atomic_requests,1'; } >cpu_atomics
{ cat gpu.csv; echo 'k1,global_red_sectors,3'; echo 'k1,global_atom_sectors,4'; echo 'k2,shared_atom_requests,1'; } >gpu_atomics
expect 0 '^42 counters, 42 equal, 0 explained$' "$here/compare.sh" gpu_atomics none cat cpu_atomics
expect 1 '^k1,global_atomic_sectors,-,7,$' "$here/compare.sh" gpu_atomics none cat cpu.csv
echo 'k1,global_red_sectors,3' >>gpu_atomics
expect 1 'twice: k1,global_red_sectors' "$here/compare.sh" gpu_atomics none cat cpu_atomics
expect 2 'cannot read nowhere' "$here/compare.sh" nowhere none cat cpu.csv
expect 1 'nothing was compared' "$here/compare.sh" none none cat none

# ---- compare_labs.sh ----
# A lab whose one launch has 100 of everything in loads and 3 in stores.
cat >build/lab01_naive <<'END'
#!/bin/sh
for file; do :; done
awk 'BEGIN {
    printf "\"launches\": [\n{\"launch\": 1, \"kernel\": \"naive\", \"function\": \"scores\""
    loads = "global_read_requests global_read_sectors shared_read_requests shared_read_wavefronts"
    stores = loads
    gsub(/read/, "write", stores)
    n = split(loads " " stores, key, " ")
    for (i = 1; i <= n; i++) printf ", \"%s\": %d", key[i], i <= 4 ? 100 : 3
    print ", \"shared_read_ideal\": 90, \"shared_write_ideal\": 1}\n]"
}' >"$file"
END
printf '# shape: --dim 64\nlab,function,launch,counter,value\n' >labs.csv
for row in global_load_requests,100 global_load_sectors,100 shared_load_requests,100 shared_load_wavefronts,100 \
    shared_load_conflicts,10 global_store_requests,3 global_store_sectors,3 shared_store_requests,3 \
    shared_store_wavefronts,3 shared_store_conflicts,2; do
    echo "lab01_naive:naive,scores,1,$row" >>labs.csv
done
expect 0 '^10 counters, 10 equal, 0 explained$' "$here/compare_labs.sh" labs.csv none build
sed 's/conflicts,10$/conflicts,11/' labs.csv >labs_differ.csv
expect 1 '^lab01_naive:naive/scores,shared_load_conflicts,10,11,$' "$here/compare_labs.sh" labs_differ.csv none build
echo 'lab01_naive:naive/scores,shared_load_conflicts,10,11,a reason that is long enough' >labs_reason
expect 1 'fewer than 95 %' "$here/compare_labs.sh" labs_differ.csv labs_reason build
grep -v shape labs.csv >labs_shapeless.csv
expect 2 "does not say '# shape: '" "$here/compare_labs.sh" labs_shapeless.csv none build
sed 's/lab01_naive/lab09_none/' labs.csv >labs_unknown.csv
expect 1 'there is no build/lab09_none' "$here/compare_labs.sh" labs_unknown.csv none build
printf '#!/bin/sh\nexit 1\n' >build/lab01_naive
expect 1 'lab01_naive --kernel naive failed' "$here/compare_labs.sh" labs.csv none build

echo "$checks checks, $failures failed"
[ "$failures" -eq 0 ]
