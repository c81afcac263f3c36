#!/bin/sh
# check_sass_test.sh - cmake/check_sass.sh finds instructions, counts what lies between products of a batch, and fails where
# something is missing, on the output of a cuobjdump that is none.
#
#     check_sass_test.sh CHECK_SASS.SH EXPECT.SH
set -u
check=$1 expect=$2
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
cat >"$dir/cuobjdump" <<'STANDIN'
#!/bin/sh
[ "$1" = -sass ] || exit 9
case $2 in */broken) echo "cuobjdump fatal   : no such thing" >&2; exit 1 ;; esac
cat "$2"
STANDIN
chmod +x "$dir/cuobjdump"
CUOBJDUMP=$dir/cuobjdump
export CUOBJDUMP
# Two batches in the first kernel: between the products of the first one, three R2UR; between the batches one, and one behind
# the last product, which do not count. A comment and a longer name are no instructions.
cat >"$dir/program" <<'SASS'

	code for sm_90a
		Function : _Z5firstv
	.headerflags	@"EF_CUDA_SM90 HGMMA"
        /*0000*/                   R2UR UR4, R2 ;                                   /* 0x00000000020472ca */
        /*0010*/              @!P0 UTMALDG.4D [UR8], [UR4], desc[UR6] ;             /* 0x00000600080075b4 */
        /*0020*/                   WARPGROUP.ARRIVE ;                               /* 0x00000000000079c5 */
        /*0030*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], RZ, !UPT ;  /* 0x01e00000041879f0 */
                                                                                    /* 0x000fe2000c0018ff */
        /*0040*/                   R2UR UR6, R92 ;                                  /* 0x000000005c0672ca */
        /*0050*/                   R2UR UR7, R93 ;                                  /* 0x000000005d0772ca */
        /*0060*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;       /* 0x01e00000041879f0 */
        /*0070*/                   IADD3 R4, R4, 0x1, RZ ;                          /* 0x0000000104047810 */
        /*0080*/               @P1 R2UR UR7, R93 ;                                  /* 0x000000005d0772ca */
        /*0090*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24, gsb0 ; /* 0x01e00000041879f0 */
        /*00a0*/                   R2UR UR7, R93 ;                                  /* 0x000000005d0772ca */
        /*00b0*/                   HGMMA.64x128x16.F32 R24, R8, gdesc[UR4].tnspB, R24, gsb0 ; /* 0x01e00000041879f0 */
        /*00c0*/                   R2UR UR7, R93 ;                                  /* 0x000000005d0772ca */
		Function : _Z6secondv
        /*0000*/                   QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR4], RZ, !UPT, gsb0 ; /* 0x01e0000004187df3 */
        /*0010*/                   UTMALDGX ;                                       /* 0x0 */
        /*0020*/                   EXIT ;                                           /* 0x000000000000794d */
SASS
try 0 'program: 4 HGMMA, 1 UTMALDG; 3 R2UR' - "$check" "$dir/program" HGMMA UTMALDG
try 0 '^  3 R2UR between two products of one batch, of 4 products: (first|_Z5firstv)' - "$check" "$dir/program" HGMMA
"$check" "$dir/program" QGMMA | grep -q second && fail 'a kernel without R2UR is named'
try 1 'program: missing: UTMASTG GMMA' - "$check" "$dir/program" HGMMA UTMASTG GMMA
sed 's/UTMALDGX ;  /LDGSTS.E.BYPASS.LTC128B.128 [R13+UR0], desc[UR1][R8.64], P4 ;/' "$dir/program" >"$dir/unknown"
try 1 'unknown: no GPU knows this, in _Z6secondv:.*desc.UR1' - "$check" "$dir/unknown" HGMMA
echo 'Fatbin elf code' >"$dir/host"
try 1 'host: no GPU code' - "$check" "$dir/host" HGMMA
: >"$dir/broken"
try 2 - 'cannot be disassembled: cuobjdump fatal' "$check" "$dir/broken" HGMMA
try 2 - 'is not there' "$check" "$dir/nowhere" HGMMA
try 2 - 'usage' "$check" "$dir/program"
CUOBJDUMP=$dir/nowhere
try 2 - 'cannot be disassembled' "$check" "$dir/program" HGMMA

finish
