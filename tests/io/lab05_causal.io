# What lab 05's kernels move and multiply, without a window and not packed (masks.sh has those). N keys, M queries, d head_dim,
# H heads; 2 bytes a number, LSE 4.
#
# A block has 128 queries, and each of its 4 warps 32 of them; T keys are a tile. Query i sees the first i + 1 + N - M keys with a
# causal mask, none if that is negative, and all N of them without one.

only 1      # any shape, causal or not
let T = d <= 64 ? 128 : 64
let D = d <= 64 ? 64 : 128  # to which head_dim is filled up
let B = up(M, 128)
masked      *  writes        = H * (2*M*d + 4*M)
skipped     *  writes        = H * (2*M*d + 4*M)
balanced    *  writes        = H * (2*M*d + 4*M)
packed      *  writes        = H * (2*M*d + 4*M)
masked      *  conflicts     = 0
skipped     *  conflicts     = 0
balanced    *  conflicts     = 0
packed      *  conflicts     = 0

# `masked` loads all keys for every block, and every warp multiplies whole tiles with all of them.
masked      *  reads         = H * (2*M*d + B * 2*2*N*d)
masked      *  tensor_flops  = H * B * 128 * up(N, T) * T * 4*D
masked      *  barriers      = H * B * 4 * (3 + up(N, T))

# The others load the keys that the block's last query sees, each once: the last tile may be cut short. E: the sum of their numbers
# over blocks, and F: of their tiles.
sum E B = !causal ? N : ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M > 0 ? ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M : 0
sum F B = ((!causal ? N : ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M > 0 ? ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M : 0) + T - 1) / T
skipped     *  reads         = H * (2*M*d + 2*2*E*d)
balanced    *  reads         = H * (2*M*d + 2*2*E*d)
packed      *  reads         = H * (2*M*d + 2*2*E*d)
skipped     *  barriers      = H * 4 * (3*B + F)
balanced    *  barriers      = H * 4 * (3*B + F)
packed      *  barriers      = H * 4 * (3*B + F)

# A warp multiplies the tiles that its own last query sees, whole. G: the sum of their numbers over warps. Where all warps have
# queries (those that have none take part in open tiles).
only up(M, 32) == 4*up(M, 128)
sum G B*4 = ((!causal ? N : ((i + 1)*32 < M ? (i + 1)*32 : M) + N - M > 0 ? ((i + 1)*32 < M ? (i + 1)*32 : M) + N - M : 0) + T - 1) / T
skipped     *  tensor_flops  = H * G * 32 * T * 4*D
balanced    *  tensor_flops  = H * G * 32 * T * 4*D
packed      *  tensor_flops  = H * G * 32 * T * 4*D

# The same in closed form for the triangle, N = M in blocks of 128 and tiles as long: B (B + 1) / 2 tiles of B^2.
only causal && M == N && M % 128 == 0 && T == 128
skipped     *  reads         = H * (2*M*d + B*(B + 1)/2 * 128 * 2*2*d)
skipped     *  tensor_flops  = H * B*(B + 1)/2 * 128*128 * 4*D
