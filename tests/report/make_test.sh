#!/bin/sh
# make_test.sh SOURCE_FOLDER EXPECT.SH LAB01_NAIVE LAB_REPORT - report/make.sh: which runs it makes, with a GPU and without, and
# what becomes of a lab that is wrong or does not run.
set -u
source_folder=$1 expect=$2 lab=$3 lab_report=$4
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
BUILD=$dir/build GPU_BUILD='' LACK='no GPU here'
export BUILD GPU_BUILD LACK
mkdir -p "$BUILD/report" "$dir/gpu"
ln -s "$lab_report" "$BUILD/report/lab_report"
# A lab that notes how it is called; on the "GPU" it says 4711 milliseconds.
cat >"$BUILD/lab01_naive" <<END
#!/bin/sh
echo "$BUILD/lab01_naive \$*" >>"$dir/calls"
"$lab" "\$@" || exit \$?
exit 0
END
cat >"$dir/gpu/lab01_naive" <<END
#!/bin/sh
echo "$dir/gpu/lab01_naive \$*" >>"$dir/calls"
for last; do :; done
sed 's/"verdict": "right"/&, "ms": 4711, "tflops": 1, "percent_of_peak": 2/; s/"backend": "cpu"/"backend": "gpu"/' "$BUILD/report/lab01_naive-counted.json" >"\$last"
END
chmod +x "$BUILD/lab01_naive" "$dir/gpu/lab01_naive"
cd "$source_folder" || exit 1
make="$source_folder/report/make.sh"
shape='--kernel tiled --seqlen 20 --dim 16 --heads 1'

# shellcheck disable=SC2086  # the shape is words
try 0 "lab01_naive: $dir/one[.]html" - "$make" --output "$dir/one.html" lab01_naive -- $shape
grep -q 'no GPU here' "$dir/one.html" || fail "the page does not say why there is no GPU"
grep -q "[.]/lab report lab01 -- $shape · 20[0-9-]* · commit " "$dir/one.html" || fail "the page does not say how it was made"
grep -q '<td>tiled</td>.*<td class="good">right</td>' "$dir/one.html" || fail "the kernel is not there"
[ "$(grep -c '<img ' "$dir/one.html")" -ge 3 ] || fail "the figures that show lab 01 are not there"
[ "$(grep -c lab01_naive "$dir/calls")" -eq 2 ] || fail "there were other runs than two: $(cat "$dir/calls")"
for how in profile sanitize; do
    grep -q -- "--$how $shape" "$dir/calls" || fail "no run had --$how and the options: $(cat "$dir/calls")"
done

GPU_BUILD=$dir/gpu LACK=''
rm "$dir/calls"
# shellcheck disable=SC2086
try 0 "two[.]html" - "$make" --output "$dir/two.html" lab01_naive -- $shape
for words in '<td>Nsight Compute</td>' '>4711<'; do
    grep -q "$words" "$dir/two.html" || fail "what was counted and timed on the GPU is not there: $words"
done
grep -q "gpu/lab01_naive --bench $shape" "$dir/calls" || fail "the GPU was not timed: $(cat "$dir/calls")"

# A GPU that does not count, a wrong lab, and one that does not run.
printf '#!/bin/sh\nexit 77\n' >"$dir/gpu/lab01_naive"
# shellcheck disable=SC2086
try 0 "three[.]html" - "$make" --output "$dir/three.html" lab01_naive -- $shape
grep -q 'Nsight Compute</td>' "$dir/three.html" && fail "there is what no GPU counted"
GPU_BUILD=''
sed -i 's/^exit 0/exit 1/' "$BUILD/lab01_naive"
# shellcheck disable=SC2086
try 1 'NOT RIGHT: lab01_naive' - "$make" --output "$dir/four.html" lab01_naive -- $shape
[ -s "$dir/four.html" ] || fail "a wrong lab has no page"
try 1 'NO PAGE: lab01_naive' 'There is no option --no-such-option' "$make" --output "$dir/five.html" lab01_naive -- --no-such-option
[ ! -e "$dir/five.html" ] || fail "a lab that did not run has a page"
finish
