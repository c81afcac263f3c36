# What lab 04's kernels move. N keys, M queries, d head_dim, H heads, V visible pairs of a head; 2 bytes a number, LSE 4.
#
# A block has B queries, 64 of them in loop_swap and 128 in the others. It reads its queries once, and all of K and V, whatever its
# queries see of them; O and LSE are written once, and there is nothing else: no S, no P, no m and l, no second pass.

only 1      # any shape, any mask
loop_swap   *             writes        = H * (2*M*d + 4*M)
mma         attention_mma writes        = H * (2*M*d + 4*M)
swizzle     attention_mma writes        = H * (2*M*d + 4*M)
staged      *             writes        = H * (2*M*d + 4*M)
pipelined   *             writes        = H * (2*M*d + 4*M)
loop_swap   *             reads         = H * (2*M*d + up(M, 64) * 2*2*N*d)
mma         attention_mma reads         = H * (2*M*d + up(M, 128) * 2*2*N*d)
swizzle     attention_mma reads         = H * (2*M*d + up(M, 128) * 2*2*N*d)
staged      *             reads         = H * (2*M*d + up(M, 128) * 2*2*N*d)
pipelined   *             reads         = H * (2*M*d + up(M, 128) * 2*2*N*d)

# In sectors nothing is wasted, where rows are whole sectors. Eight lanes write LSE: 32 bytes, one sector.
only d % 16 == 0 && M % 8 == 0
loop_swap   *             sector_reads  = H * (2*M*d + up(M, 64) * 2*2*N*d)
swizzle     *             sector_reads  = H * (2*M*d + up(M, 128) * 2*2*N*d)
pipelined   *             sector_reads  = H * (2*M*d + up(M, 128) * 2*2*N*d)
loop_swap   *             sector_writes = H * (2*M*d + 4*M)
swizzle     *             sector_writes = H * (2*M*d + 4*M)
pipelined   *             sector_writes = H * (2*M*d + 4*M)

# Four warps. Barriers: one after a block has found its work and one before O takes the place of Q; for each tile of keys two, or
# one where it is staged, and then one more for Q. Tiles have 64 keys, and 128 in `pipelined` where d is at most 64.
only 1
let T = d <= 64 ? 128 : 64
loop_swap   *             barriers      = H * up(M, 64) * 4 * (2 + 2*up(N, 64))
mma         *             barriers      = H * up(M, 128) * 4 * (2 + 2*up(N, 64))
staged      *             barriers      = H * up(M, 128) * 4 * (3 + up(N, 64))
pipelined   *             barriers      = H * up(M, 128) * 4 * (3 + up(N, T))

# Exponentials: one for each pair, seen or not, and, as each of a row's four lanes rescales, four for each row and tile.
# `pipelined` rescales when a score is 2^8 above the old maximum: always in the first tile, and never again if the scores of a
# row fall.
only M % 64 == 0 && N % 64 == 0
loop_swap   *             exps          = H * (M*N + 4*M * (N/64))
only M % 128 == 0 && N % 64 == 0
swizzle     *             exps          = H * (M*N + 4*M * (N/64))
staged      *             exps          = H * (M*N + 4*M * (N/64))
only V == M*N && M % 128 == 0 && N == T
pipelined   *             exps          = H * (M*N + 4*M)
only V == M*N && M % 128 == 0 && N % T == 0 && falling
pipelined   *             exps          = H * (M*N + 4*M)

# Bank conflicts. Plain rows are whole rounds through the banks, so the eight rows of a matrix lie in the same banks: 32 wavefronts
# for four matrices and not 4. d = 64: for each warp of 32 rows and tile 8 loads of Q, 16 of K and 16 of V, and at the end 32 stores
# of O, 8 wavefronts each and not 1; d = 128: twice as many. (d = 32 is filled up to 64.)
only M % 128 == 0 && N % 64 == 0 && M == N && N == 128
let D = d <= 64 ? 64 : 128
mma         *             conflicts     = H * (M/32) * ((N/64) * (40 * D/64) * 28 + (32 * D/64) * 7)
# Swizzled there are none, whatever the shape: not in the products, not in loading, not at the end.
only 1
swizzle     *             conflicts     = 0
staged      *             conflicts     = 0
pipelined   *             conflicts     = 0
