# What lab 03's kernels move. N keys, M queries, d head_dim, H heads, V visible pairs of a head; Q, K, V and O in fp16, 2 bytes
# each, but O in fp32 between the passes, and m and l, too.
#
# A tile has B = ceil(F / 4d) keys, F being the numbers of 4 bytes in shared memory: 227 KB on the simulated device, or what
# LAB_SHARED_BYTES says. That makes T = ceil(N / B) passes. (Where B is not well above d, the tiles of K, V, Q and S and the gaps
# between their rows do not all fit: at d = 128 it is 112 and not 114.) The mask does not enter: every tile is loaded. Nor do the gaps.

only 1
let F = LAB_SHARED_BYTES == 0 ? 58112 : LAB_SHARED_BYTES / 4
let B = up(F, 4*d)
only d == 128 && LAB_SHARED_BYTES == 0
let B = 112

only 1
let R = d < B ? d : B                           # queries in a tile
let T = up(N, B)
let U = up(M, R)
#                 Before: O, m and l are set to 0, -inf, 0. Each pass: Q once; O, m and l read and written. K and V once
#                 in all. After: O becomes fp16 in its place, m and l become LSE.
fa1        fa1    reads   = H * (T * (2*M*d + 4*M*d + 8*M) + 4*N*d + 4*M*d + 8*M)
fa1        fa1    writes  = H * (4*M*d + 8*M + T * (4*M*d + 8*M) + 2*M*d + 4*M)
fa1_padded fa1    reads   = H * (T * (2*M*d + 4*M*d + 8*M) + 4*N*d + 4*M*d + 8*M)
fa1_padded fa1    writes  = H * (4*M*d + 8*M + T * (4*M*d + 8*M) + 2*M*d + 4*M)

# One launch, and so the same for the whole kernel: nothing else moves.
fa1        *      reads   = H * (T * (6*M*d + 8*M) + 4*N*d + 4*M*d + 8*M)
fa1_padded *      writes  = H * (T * (4*M*d + 8*M) + 6*M*d + 12*M)

# In sectors, where rows, heads and tiles are whole sectors: nothing is wasted but where (m, l) are written, 4 rows of 8 bytes
# by a warp: the one sector that they are.
only d % 32 == 0 && M % 64 == 0 && N % 64 == 0 && R % 4 == 0
fa1_padded fa1    sector_reads   = H * (T * (2*M*d + 4*M*d + 8*M) + 4*N*d + 4*M*d + 8*M)
fa1_padded fa1    sector_writes  = H * (4*M*d + 8*M + T * (4*M*d + 8*M) + 2*M*d + 4*M)

# What they compute. Four barriers in each step of the two loops and one before them, each passed by 16 warps.
only 1
fa1        *      barriers = H * 16 * (1 + 4*T*U)
fa1_padded *      barriers = H * 16 * (1 + 4*T*U)
# One exponential for each visible key, one for the tile's part of a row, and one for what was there before it, if anything was.
only V == M*N
fa1        *      exps    = H * (V + M*T + M*(T - 1))
only M <= N && T == 1
fa1_padded *      exps    = H * (V + M)

# One tile of whole patches, 16 queries x 64 keys or 32 columns. Both products, 2 a pair and column. K, V and Q are taken times
# 1 or the scale. 3 for each exponential of a key, with the sum; 3 rounds of adding up 8 lanes and 8 more in a row; O = keep O +
# add P V, 4 a number; and LSE.
only V == M*N && T == 1 && U == 1 && N % 64 == 0 && M % 16 == 0 && d % 32 == 0
fa1        *      flops   = H * (2 * 2*M*N*d + (2*N + M)*d + 3*M*N + M*(3*8 + 8) + 4*M*d + M)
fa1_padded *      flops   = H * (2 * 2*M*N*d + (2*N + M)*d + 3*M*N + M*(3*8 + 8) + 4*M*d + M)

# Without gaps eight rows of K start in the same bank if d is a multiple of 32. With them no load and no store conflicts; for
# other d, only stores of a tile do, where eight lanes' 128 bytes go over the end of a row.
only d % 32 == 0
fa1_padded *      conflicts = 0
only d == 64 && M == 64 && N == 64 && V == M*N && LAB_SHARED_BYTES == 0
# K: 16 wavefronts and not 2, Q: 8 and not 4; for each of 4 patches and 16 steps of 4 columns 8 and 4 loads. S, in rows of 227: 3
# and not 1; it is written, read twice and written again, 32 lanes at a time.
fa1        *      conflicts = H * (4 * 16 * (8 * 14 + 4 * 4) + 4 * M*N/32 * 2)
