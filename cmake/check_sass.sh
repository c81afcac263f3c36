#!/bin/sh
# check_sass.sh PROGRAM [--r2ur N] INSTRUCTION...   demands machine instructions of a program that nvcc has built, such as
# HGMMA and QGMMA (products of warpgroups, 16-bit and fp8) and UTMALDG (loads by TMA).
#
# A kernel that lost them, to a macro of another architecture, say, is right and slow. Prints how many of each there are,
# and besides, for the kernels with most, how many R2UR stand between two products of one batch: there ptxas moves what should be in
# a uniform register (descriptors, addresses) from an ordinary one, because it cannot know that all lanes have the same, and
# the next product waits for it. That only costs speed (make the number uniform by __shfl_sync and __syncwarp): an error
# if a kernel has more than N.
#
# And it refuses an instruction that no GPU knows: ptxas 13.0 has made some in which a descriptor, two registers, begins with an odd
# one (cp.async with a cache policy, in a loop that is not unrolled). The GPU stops at it: "an illegal instruction was encountered".
#
# Needs cuobjdump (as $CUOBJDUMP or on PATH) and nvdisasm (on PATH or in $NVDISASM_PATH). Exit 0; 1: something is missing;
# 2: it cannot be told.
set -u
[ $# -ge 2 ] || { echo "usage: check_sass.sh PROGRAM [--r2ur N] INSTRUCTION..." >&2; exit 2; }
program=$1
shift
most=''
if [ "$1" = --r2ur ] && [ $# -ge 3 ]; then
    most=$2
    shift 2
fi
[ -r "$program" ] || { echo "check_sass.sh: $program is not there" >&2; exit 2; }
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
if ! "${CUOBJDUMP:-cuobjdump}" -sass "$program" >"$scratch/sass" 2>"$scratch/err"; then
    echo "check_sass.sh: $program cannot be disassembled: $(head -n 1 "$scratch/err")" >&2
    exit 2
fi
# Mangled names are hard to read, and c++filt comes with every compiler.
filter='cat'
command -v c++filt >/dev/null 2>&1 && filter='c++filt'

awk -v wanted="$*" -v most="$most" -v program="${program##*/}" -v kernels="$scratch/kernels" '
    function kernel_ends() {
        if (between) printf "  %d R2UR between two products of one batch, of %d products: %s\n", between, products, kernel >kernels
        all_between += between
        if (most != "" && between > most + 0) ++too_many
        products = between = open = 0
    }
    /Function : / { kernel_ends(); kernel = $NF }
    # An instruction:  /*0040*/  @!P1 HGMMA.64x128x16.F32 R24, ... ;
    match($0, /^ *\/\*[0-9a-f]+\*\/ +(@!?U?P[0-9T]+ +)?[A-Z][A-Z0-9_]*/) {
        n = split(substr($0, RSTART, RLENGTH), words, " +")
        name = words[n]
        count[name]++
        if (/desc\[UR[0-9]*[13579]\]/ && ++unknown <= 3) {
            sub(/ *\/\* 0x.*/, "")
            print program ": no GPU knows this, in " kernel ":" $0
        }
        ++instructions
        if (name ~ /^[HQIB]GMMA$/) {
            ++products
            between += since; since = 0
            open = !/gsb0/  # which ends the batch
        } else if (name == "R2UR" && open) {
            ++since
        }
        if (!open) since = 0
    }
    END {
        kernel_ends()
        if (!instructions) { print program ": no GPU code"; exit 1 }
        n = split(wanted, names, " ")
        for (i = 1; i <= n; i++) {
            text = text (i > 1 ? ", " : "") count[names[i]] + 0 " " names[i]
            if (!count[names[i]]) missing = missing " " names[i]
        }
        print program ": " text "; " all_between + 0 " R2UR between two products of one batch, in all kernels"
        if (missing) print program ": missing:" missing
        if (too_many) print program ": " too_many " kernels have more than " most " R2UR between two products of one batch"
        exit missing || too_many || unknown
    }' "$scratch/sass"
status=$?
[ ! -e "$scratch/kernels" ] || sort -rn "$scratch/kernels" | head -n 10 | "$filter"
exit $status
