# What lab 08's kernels move. N keys, at least one, M queries, d head_dim, H query heads and G heads of K and V; 2 bytes a number, LSE 4.
#
# A block has up to 16, 32 or 64 rows, as many as there are: of one query head in `unsplit`, else of all g of a group. Each row is
# read once, to shared memory. A head's keys are T tiles of 128, cut into P parts: as --splits says, else into as many as there are
# tiles, which is the best for the few heads here, in blocks that one wave has room for.
only N > 0 && M > 0
let D = d <= 64 ? 64 : 128  # to which head_dim is filled up
let T = up(N, 128)
let P = S > 0 && S < T ? S : T
let g = H / G
let R = M * g
let B = R > 32 ? 64 : R > 16 ? 32 : 16
let b = M > 32 ? 64 : M > 16 ? 32 : 16  # and of `unsplit`

# Keys that the last row of each tile of rows sees, summed over these tiles: e for `unsplit`.
sum E up(R,B) = !causal ? N : (((i + 1)*B < R ? (i + 1)*B : R) - 1) / g + 1 + N - M > 0 ? (((i + 1)*B < R ? (i + 1)*B : R) - 1) / g + 1 + N - M : 0
sum e up(M,b) = !causal ? N : ((i + 1)*b < M ? (i + 1)*b : M) + N - M > 0 ? ((i + 1)*b < M ? (i + 1)*b : M) + N - M : 0

split       decode  reads      = G * 2*2*E*d + H * P * 2*M*d

# A part is D sums a row, m and l, written once and by the warp that merges read once.
split       *       writes     = H*M * (2*d + 4) + (P > 1 ? H*M * P * (4*D + 8) : 0)
one_launch  *       writes     = H*M * (2*d + 4) + (P > 1 ? H*M * P * (4*D + 8) : 0)
one_launch  *       reads      = G * 2*2*E*d + H * P * 2*M*d + (P > 1 ? H*M * P * (8 + 4*D) : 0)

only N > 0 && M > 0 && S == 0
unsplit     *       reads      = H * (2*2*e*d + 2*M*d)
unsplit     *       writes     = H * (2*M*d + 4*M)
balanced    *       reads      = G * 2*2*E*d + H * P * 2*M*d + (P > 1 ? H*M * P * (8 + 4*D) : 0)
balanced    *       writes     = H*M * (2*d + 4) + (P > 1 ? H*M * P * (4*D + 8) : 0)

# Up to 64 rows: every byte of K and of V exactly once, however many heads share them. All that is read besides are rows of Q.
only N > 0 && M > 0 && R <= 64 && (!causal || N >= M)
split       decode  reads      = 2 * G*N*d * 2 + H * P * 2*M*d

# Tensor cores multiply whole tiles: of a warp's 32 keys by 16 rows, or of a warpgroup's 64 keys by 64 rows.
only N > 0 && M > 0 && R <= 64 && (!causal || N >= M)
split       decode  tensor_flops = G * (R > 32 ? up(N, 64)*64 * 64 : up(N, 32)*32 * up(R, 16)*16) * 4*D
