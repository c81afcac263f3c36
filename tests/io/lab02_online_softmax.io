# What lab 02's kernels move. N keys, M queries, d head_dim, H heads, V visible pairs of a head; fp16, so 2 bytes each.
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
