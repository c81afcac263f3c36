# Budgets of bytes for lab 04: K and V once for each tile of 64 (loop_swap) or 128 queries, O and LSE once, and nothing
# of N x N. A tenth more than the reference solution reads.
only 1
loop_swap   *  writes >= H * (2*M*d + 4*M)
loop_swap   *  writes <= H * (2*M*d + 4*M) * 11 / 10
loop_swap   *  reads  <= H * (2*M*d + up(M, 64) * 2*2*N*d) * 11 / 10
mma         *  writes >= H * (2*M*d + 4*M)
mma         *  writes <= H * (2*M*d + 4*M) * 11 / 10
mma         *  reads  <= H * (2*M*d + up(M, 128) * 2*2*N*d) * 11 / 10
swizzle     *  writes >= H * (2*M*d + 4*M)
swizzle     *  writes <= H * (2*M*d + 4*M) * 11 / 10
swizzle     *  reads  <= H * (2*M*d + up(M, 128) * 2*2*N*d) * 11 / 10
staged      *  writes >= H * (2*M*d + 4*M)
staged      *  writes <= H * (2*M*d + 4*M) * 11 / 10
staged      *  reads  <= H * (2*M*d + up(M, 128) * 2*2*N*d) * 11 / 10
pipelined   *  writes >= H * (2*M*d + 4*M)
pipelined   *  writes <= H * (2*M*d + 4*M) * 11 / 10
pipelined   *  reads  <= H * (2*M*d + up(M, 128) * 2*2*N*d) * 11 / 10
