# What lab 07's fp8 kernels move and multiply. N keys, M queries, d head_dim, H heads; D is d filled up to 64 or 128. A tile is 128
# queries or keys; e4m3 is 1 byte a number, LSE 4, a record of scales 16.

only 1      # any shape, causal or not
let D = d <= 64 ? 64 : 128
let B = up(M, 128)
let K = up(N, 128)
# F: tiles of keys up to the last key that a tile's last query sees; G: keys of these tiles. Sums over tiles of queries.
sum F B = ((!causal ? N : ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M > 0 ? ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M : 0) + 127) / 128
sum G B = ((!causal ? N : ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M > 0 ? ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M : 0) + 127) / 128 * 128 < N ? ((!causal ? N : ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M > 0 ? ((i + 1)*128 < M ? (i + 1)*128 : M) + N - M : 0) + 127) / 128 * 128 : N
# L: those of them for which the maximum is lazy.
sum L B = (!causal ? N - 1 : i*128 + N - M > 0 ? i*128 + N - M : 0) / 128
# Exponentials: P, for each row and lane how much is kept, LSE. With the lazy maximum nothing changes in most tiles.
fp8         attention_e4m3  tma_reads     = H * (M*D + G*D + F*128*D + 16*(B + F))
fp8         attention_e4m3  writes        = H * (2*M*d + 4*M)
fp8         attention_e4m3  tensor_flops  = H * F * 128*128 * 4*D
fp8         attention_e4m3  exps         <= H * F * (128*128 + 4*128) + H * (N == 0 ? 0 : causal && M > N ? N : M)
fp8         attention_e4m3  exps         >= H * F * (128*128 + 4*128) - H * L * 4*128 + H * (N == 0 ? 0 : causal && M > N ? N : M)
fp8         attention_e4m3  barriers      = H * B * 12
fp8         *  conflicts     = 0
rotated     attention_e4m3  tma_reads     = H * (M*D + G*D + F*128*D + 16*(B + F))
rotated     attention_e4m3  writes        = H * (2*M*d + 4*M)
rotated     attention_e4m3  tensor_flops  = H * F * 128*128 * 4*D
rotated     attention_e4m3  exps         <= H * F * (128*128 + 4*128) + H * (N == 0 ? 0 : causal && M > N ? N : M)
rotated     attention_e4m3  exps         >= H * F * (128*128 + 4*128) - H * L * 4*128 + H * (N == 0 ? 0 : causal && M > N ? N : M)
rotated     attention_e4m3  barriers      = H * B * 12
rotated     *  conflicts     = 0
unpromoted  attention_e4m3  tma_reads     = H * (M*D + G*D + F*128*D + 16*(B + F))
unpromoted  attention_e4m3  writes        = H * (2*M*d + 4*M)
unpromoted  attention_e4m3  tensor_flops  = H * F * 128*128 * 4*D
unpromoted  attention_e4m3  exps         <= H * F * (128*128 + 4*128) + H * (N == 0 ? 0 : causal && M > N ? N : M)
unpromoted  attention_e4m3  exps         >= H * F * (128*128 + 4*128) - H * L * 4*128 + H * (N == 0 ? 0 : causal && M > N ? N : M)
unpromoted  attention_e4m3  barriers      = H * B * 12
unpromoted  *  conflicts     = 0

# prepare reads every number once, and fills up columns of all and keys of V. (The shape with two KV heads to four heads is left out.)
only !(M == 40 && N == 72)
fp8         prepare  reads     = H * (2*M*d + 2*2*N*d)
fp8         prepare  writes    = H * (M*D + N*D + 128*K*D + 16*(B + K)) + 4
fp8         prepare  barriers  = H * D/8 * (B + K + 2*K)
rotated     prepare  reads     = H * (2*M*d + 2*2*N*d)
rotated     prepare  writes    = H * (M*D + N*D + 128*K*D + 16*(B + K)) + 4
rotated     prepare  barriers  = H * D/8 * (B + K + 2*K)
unpromoted  prepare  reads     = H * (2*M*d + 2*2*N*d)
unpromoted  prepare  writes    = H * (M*D + N*D + 128*K*D + 16*(B + K)) + 4
unpromoted  prepare  barriers  = H * D/8 * (B + K + 2*K)
