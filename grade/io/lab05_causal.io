# Budgets of bytes for lab 05: the keys that a tile of 128 queries sees are loaded, and of the others no tile. A tenth more
# than the reference solution reads; where half of the tiles are hidden, loading them would be nearly twice as much.
only 1
let B = up(M, 128)
masked      *  writes >= H * (2*M*d + 4*M)
masked      *  writes <= H * (2*M*d + 4*M) * 11 / 10
masked      *  reads  <= H * (2*M*d + B * 2*2*N*d) * 11 / 10
sum E B = !causal ? N : ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M > 0 ? ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M : 0
skipped     *  writes >= H * (2*M*d + 4*M)
skipped     *  writes <= H * (2*M*d + 4*M) * 11 / 10
skipped     *  reads  <= H * (2*M*d + 2*2*E*d) * 11 / 10
balanced    *  writes >= H * (2*M*d + 4*M)
balanced    *  writes <= H * (2*M*d + 4*M) * 11 / 10
balanced    *  reads  <= H * (2*M*d + 2*2*E*d) * 11 / 10
packed      *  writes >= H * (2*M*d + 4*M)
packed      *  writes <= H * (2*M*d + 4*M) * 11 / 10
packed      *  reads  <= H * (2*M*d + 2*2*E*d) * 11 / 10
