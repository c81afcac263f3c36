# What lab 01's kernels move and compute. N keys, M queries, d head_dim, H heads, V visible pairs of a head; fp16, so 2 bytes each.
#
# The lecture's count for a head with M = N: S and P are written and read, 4 x 2NN = 8NN; Q, K, V are read and O is written,
# 4 x 2Nd = 8Nd. A kernel that asked for every number once in each of its three functions would move just that (and 4N for
# LSE). Below, term by term, what is asked for above it: each function's own re-reads.

only 1      # any shape: what a thread asks for does not depend on alignment, and rows of S and P are padded, not read

# One thread an element of S, masked or not: a row of Q and a row of K, d numbers each, for every one of them.
naive scores_naive reads    = H * M*N * (2*d + 2*d)
naive scores_naive writes   = H * 2*M*N                     # S, once
# Three passes over what is visible of S: maximum, sum, probabilities. P is written whole, with zeros where it is masked.
naive softmax_rows reads    = H * 3 * 2*V
naive softmax_rows writes   = H * (2*M*N + 4*M)             # P, and LSE in fp32
# One thread an element of O: for each visible key one number of P and one of V, in each of d columns.
naive output_naive reads    = H * d * V * (2 + 2)
naive output_naive writes   = H * 2*M*d                     # O, once

# Tiles of 64 x 64: a tile of S reads its 64 rows of Q and of K once, d numbers each. So Q is read once for each tile
# across, up(N, 64) times in all, and K once for each tile down.
tiled scores_tiled reads    = H * (2*M*d * up(N, 64) + 2*N*d * up(M, 64))
tiled scores_tiled writes   = H * 2*M*N
tiled softmax_rows reads    = H * 3 * 2*V
tiled softmax_rows writes   = H * (2*M*N + 4*M)
tiled output_tiled writes   = H * 2*M*d

only V == M*N      # full attention: all of P, once for each tile of columns of O; all of V, once for each tile of queries
tiled output_tiled reads    = H * (2*M*N * up(d, 64) + 2*N*d * up(M, 64))

# Causal with M = N = 64 n: the tiles of queries see 64, 128, ..., N keys, N * (n + 1) / 2 together. Each reads so many
# columns of P in its 64 rows, once for each tile of columns of O, and so many rows of V.
only V < M*N && M == N && N % 64 == 0
tiled output_tiled reads    = H * (N * (N/64 + 1) / 2) * (2*64 * up(d, 64) + 2*d)

# The whole kernel for one tile of columns (d <= 64) and full attention, M = N = 64 n: 8NN + 8Nd is in it, and then
#     (n - 1) 2Nd  each of Q and K in the first product, and V in the third: read n times, once is in 8Nd
#     2 x 2NN      the two passes of the softmax beyond the first
#     4N           LSE
only V == M*N && M == N && N % 64 == 0 && d <= 64
tiled * reads   = H * (4*N*N + 6*N*d + (N/64 - 1) * 3 * 2*N*d + 2 * 2*N*N)
tiled * writes  = H * (4*N*N + 2*N*d + 4*N)
naive * writes  = H * (4*N*N + 2*N*d + 4*N)

# In sectors, where rows begin at multiples of 32 bytes and warps do not straddle rows.
only V == M*N && N % 64 == 0 && M % 64 == 0 && d % 64 == 0
# 32 lanes have 32 neighbouring keys of one query: for each c one sector for the number of Q that all lanes share, and 32,
# one in each row, for those of K. 33 sectors for each warp and c, where 32 numbers of K are worth two.
naive scores_naive sector_reads    = H * M * (N/32) * d * (1 + 32) * 32
naive scores_naive sector_writes   = H * 2*M*N                    # neighbours: nothing is wasted
naive softmax_rows sector_reads    = H * 3 * 2*M*N
naive softmax_rows sector_writes   = H * (2*M*N + 32*M)           # one lane writes LSE: a sector for 4 bytes
# 32 lanes have 32 neighbouring columns: a number of P, shared, and two sectors of a row of V, for each key.
naive output_naive sector_reads    = H * M * (d/32) * N * (1 + 2) * 32
naive output_naive sector_writes   = H * 2*M*d
# The tiles are copied by warps that read 32 neighbours: nothing is wasted, sectors are what threads asked for.
tiled scores_tiled sector_reads    = H * (2*M*d * (N/64) + 2*N*d * (M/64))
tiled scores_tiled sector_writes   = H * 2*M*N
tiled output_tiled sector_reads    = H * (2*M*N * (d/64) + 2*N*d * (M/64))
tiled output_tiled sector_writes   = H * 2*M*d

# What they compute. A product of d terms is d multiplications and as many additions; then the scale.
only 1
naive scores_naive flops        = H * M*N * (2*d + 1)
naive scores_naive exps         = 0
naive output_naive flops        = H * d * 2*V
naive output_naive exps         = 0
# A tile computes all its 64 x 64 elements, 32 terms at a time, whether or not the matrix reaches that far. The scale only
# where an element is written. 8 warps pass two barriers for each 32 terms.
tiled scores_tiled flops        = H * (up(M, 64) * up(N, 64) * 64*64 * 2*32 * up(d, 32) + M*N)
tiled scores_tiled barriers     = H * up(M, 64) * up(N, 64) * 8 * 2 * up(d, 32)
tiled output_tiled exps         = 0
# exp(s - max): once for the sum, once for the probability. A subtraction and an addition the first time, a subtraction and a
# division the second; 32 lanes add up their sums in 5 rounds; and max + log(sum), of rows that see a key.
naive softmax_rows exps         = H * 2*V
tiled softmax_rows exps         = H * 2*V
naive softmax_rows barriers     = 0
only V == M*N || M <= N
naive softmax_rows flops        = H * (4*V + M * (32 * 5 + 1))
tiled softmax_rows flops        = H * (4*V + M * (32 * 5 + 1))
only V < M*N && M > N
naive softmax_rows flops        = H * (4*V + M * 32 * 5 + N)
tiled softmax_rows flops        = H * (4*V + M * 32 * 5 + N)
# The second product leaves out the terms of masked keys; columns past head_dim and rows past the last are computed.
only V == M*N
tiled output_tiled flops        = H * up(M, 64) * up(d, 64) * 64*64 * 2*N
tiled output_tiled barriers     = H * up(M, 64) * up(d, 64) * 8 * 2 * up(N, 32)
only M % 64 == 0
tiled output_tiled flops        = H * up(d, 64) * 64 * 2*V

# The lecture's count, 4NNd: it is in it, and what the softmax and the scale add has no d.
only V == M*N && M == N
naive * flops   = H * (4*N*N*d + N*N + 4*N*N + N * (32 * 5 + 1))
