# What lab 02's kernels move and compute. N keys, M queries, d head_dim, H heads, V visible pairs of a head; fp16, so 2 bytes each.
#
# A warp has one query. All four groups of a warp load its row of Q, from the same addresses: 4 x 2d bytes asked for, in
# the same sectors. A row of K or V is loaded once, by one group, for each query that sees it; what is masked is not loaded.

only 1      # any shape
safe    scores          reads   = H * (4 * 2*d*M + 2*d*V)
online  scores          reads   = H * (4 * 2*d*M + 2*d*V)
safe    softmax_safe    reads   = H * 3 * 2*V                   # maximum, sum, probabilities
online  softmax_online  reads   = H * 2 * 2*V                   # (m, l), probabilities: one pass less
safe    softmax_safe    writes  = H * (2*M*N + 4*M)             # P, zeros and all, and LSE in fp32
online  softmax_online  writes  = H * (2*M*N + 4*M)
safe    output          reads   = H * (2*V + 2*d*V)             # P once, and a row of V for each of its numbers
online  output          reads   = H * (2*V + 2*d*V)
safe    output          writes  = H * 2*M*d
online  output          writes  = H * 2*M*d

# Fused: Q as above, K and V once for each query that sees them, O and LSE once. There is no term in N x M without a d,
# which S or P would be: neither is written, and neither is read.
fused   *               reads   = H * (4 * 2*d*M + 2*d*V + 2*d*V)
fused   *               writes  = H * (2*M*d + 4*M)             # nothing of N: the same for any number of keys

# A step of 32 keys writes 32 scores, those past the last key into the padding of the row.
only V == M*N
safe    scores          writes  = H * 2*M * 32 * up(N, 32)
online  scores          writes  = H * 2*M * 32 * up(N, 32)
# Causal, M = N = 32 n: of each 32 queries the k-th lot takes k steps; 1 + ... + n, for 32 queries, of 32 scores.
only V < M*N && M == N && N % 32 == 0
safe    scores          writes  = H * 2*32 * 32 * (N/32 * (N/32 + 1) / 2)
online  scores          writes  = H * 2*32 * 32 * (N/32 * (N/32 + 1) / 2)

# In sectors, where rows of Q, K, V and O are whole sectors. Now Q is there once: it is 4 times above because lanes share it.
only d % 16 == 0
fused   *               sector_reads   = H * (2*d*M + 2*d*V + 2*d*V)
fused   *               sector_writes  = H * (2*M*d + 32*M)     # one lane writes LSE: a sector for 4 bytes
only d % 16 == 0 && V == M*N && N % 32 == 0
safe    scores          sector_reads   = H * (2*d*M + 2*d*M*N)
safe    scores          sector_writes  = H * 2*M*N
safe    softmax_safe    sector_reads   = H * 3 * 2*M*N
online  softmax_online  sector_reads   = H * 2 * 2*M*N
online  softmax_online  sector_writes  = H * (2*M*N + 32*M)
online  output          sector_reads   = H * (2*M*N + 2*d*M*N)
online  output          sector_writes  = H * 2*M*d

# What they compute. A lane holds 8 columns of each 64, C chunks: 8C multiplications with the scale for each query, and for a
# step of 32 keys 8 keys times 8C products (2 each), whether or not the row and the keys reach that far; then 7 additions until
# each lane has its own key's score.
only d <= 128
let C = up(d, 64)
let S = up(N, 32)                               # steps of a query that sees all keys
only V == M*N && d <= 128
safe    scores          flops   = H * M * 32 * (8*C + S * (8 * 8*C * 2 + 7))
online  scores          flops   = H * M * 32 * (8*C + S * (8 * 8*C * 2 + 7))
# The same products for O, and at the end the factor and two rounds of adding up the four groups.
safe    output          flops   = H * M * 32 * (S * 8 * 8*C * 2 + 8*C * 3)
online  output          flops   = H * M * 32 * (S * 8 * 8*C * 2 + 8*C * 3)
# Causal, M = N = 32 S: 1 + ... + S steps for each 32 queries.
only V < M*N && M == N && N % 32 == 0 && d <= 128
safe    scores          flops   = H * 32 * (8*C * M + 32 * (S * (S + 1) / 2) * (8 * 8*C * 2 + 7))
online  output          flops   = H * 32 * (32 * (S * (S + 1) / 2) * 8 * 8*C * 2 + M * 8*C * 3)

# __expf(x - m) is a subtraction, a multiplication with log2(e) and an exponential. Safe: for each key once for the sum and
# once for the probability, with the addition and the factor 6. Then 5 rounds in 32 lanes, 1/l in each, and LSE in one.
only 1
safe    softmax_safe    exps    = H * 2*V
fused   *               barriers = 0            # a warp needs nobody else
only V == M*N || M <= N
safe    softmax_safe    flops   = H * (6*V + M * (32 * 5 + 32 + 1))
# Online: a merge multiplies and adds, and takes an exponential unless one side is empty, as each lane is before its first key;
# 5 rounds of merging lanes, where all have one. That is more arithmetic than above, to save a third of the reads.
only V == M*N && N >= 32
online  softmax_online  exps    = H * M * (N - 32 + 32 * 5 + N)
online  softmax_online  flops   = H * M * (2*N + 2 * (N - 32) + 32 * 5 * 4 + 32 + 3*N + 1)

# Fused: scores and O as above, one exponential for each visible key, and l; in the end as above. And where a step raises the
# maximum, 32 lanes rescale l and O, 1 + 8C numbers, by an exponential unless there was nothing yet. How often depends on the
# scores. If they fall along the row, only in the first step: N N exponentials a head, for N N pairs.
only (falling || rising) && V == M*N && d <= 128
let products = H * M * 32 * (8*C + S * 2 * (8 * 8*C * 2) + 8*C * 3)
let softmax = H * (M * 32 * S * (7 + 1) + 2*V + M * (32 * 5 + 32 + 1))
only falling && V == M*N && d <= 128
fused   *               exps    = H * V
fused   *               flops   = products + softmax + H * M * 32 * (1 + 8*C)
# If they rise, in every step.
only rising && V == M*N && d <= 128
fused   *               exps    = H * (V + M * 32 * (S - 1))
fused   *               flops   = products + softmax + H * M * 32 * (S * (1 + 8*C) + 2 * (S - 1))
# One step at most: rows that see nothing, M - N of them, only scale their query and add up zeros.
only V < M*N && M >= N && N <= 32 && d <= 64
fused   *               exps    = H * V
fused   *               flops   = H * (M * 32 * (8 + 5 + 8 * 3) + 2*V + N * (32 * (8 * 8 * 4 + 7 + 1 + 1 + 8 + 1) + 1))
