#!/bin/sh
# nvcc_strict_test.sh - cmake/nvcc_strict.sh stops a build in which ptxas serialises wgmma, and lets a lab with tasks still
# to be done pass, on a stand-in for nvcc.
#
#     nvcc_strict_test.sh NVCC_STRICT.SH EXPECT.SH
set -u
strict=$1 expect=$2
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
cat >"$dir/nvcc" <<'STANDIN'
#!/bin/sh
echo "arguments: $*" >&2
case $* in
    *serialised.cu* | *undone.cu*) echo 'ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized' >&2 ;;
    *broken.cu*) exit 3 ;;
esac
while [ $# -gt 1 ]; do
    [ "$1" != -o ] || : >"$2"
    shift
done
STANDIN
chmod +x "$dir/nvcc"
# shellcheck disable=SC2016 # $1 is of the script that is written
printf '#!/bin/sh\nexec sh "%s" "%s/nvcc" -Xptxas=-warn-spills -x cu -c "%s/$1.cu" -o "%s/$1.o"\n' "$strict" "$dir" "$dir" "$dir" >"$dir/compile"
chmod +x "$dir/compile"
for name in right serialised broken; do echo '__global__ void kernel() {}' >"$dir/$name.cu"; done
printf '    // TODO steps: a hint\n    // END TODO\n' >"$dir/undone.cu"
try 0 - 'arguments: -Xptxas=-warn-spills -x cu -c .*right.cu -o .*right.o$' "$dir/compile" right
try 1 - 'ptxas serialised wgmma' "$dir/compile" serialised
[ ! -e "$dir/serialised.o" ] || fail 'make would take serialised.o for finished'
try 3 - - "$dir/compile" broken
try 0 - 'arguments: -x cu -c .*undone.cu -o .*undone.o$' "$dir/compile" undone
[ -e "$dir/undone.o" ] || fail 'undone.o is gone'
finish
