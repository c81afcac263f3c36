# cases.cmake - the cases that every lab is tested on, on each backend.
#
#     lab_case(NAME [PROBE] OPTIONS...)    a small case. Its inputs, o and lse are written once by ground_truth (the CTest
#                                          test truth.DTYPE.NAME); every lab runs OPTIONS --load those files
#     gpu_case(NAME OPTIONS...)            too big for the simulated device and for a full reference: the lab makes its own
#                                          inputs and checks a fixed sample of rows. gpu backend only; counted as
#                                          skipped where a kernel says that the GPU's memory is too small
#
# OPTIONS are a lab's own options, and say the whole shape; what they leave out is --batch 1 --heads 2 --dim 64. PROBE marks
# the cases that the wrong kernels of wrong/ have to survive: cheap ones that between them catch every kind of fault.
# A new case is a line here and nothing else.

# Lengths around the tile sizes that kernels use (16, 32, 64, 128), where tails and masks go wrong.
lab_case(n1 --seqlen 1)  # o = v, lse = scale * q . k
lab_case(n1_causal --seqlen 1 --causal --dim 8 --heads 1)
lab_case(n7 PROBE --seqlen 7)
lab_case(n17 --seqlen 17)
lab_case(n17_causal --seqlen 17 --causal)
lab_case(n63 --seqlen 63)
lab_case(n63_causal --seqlen 63 --causal)
lab_case(n64 --seqlen 64)
lab_case(n64_causal --seqlen 64 --causal)
lab_case(n65 --seqlen 65)
lab_case(n65_causal PROBE --seqlen 65 --causal --heads 1)
lab_case(n127_causal --seqlen 127 --causal --heads 1)
lab_case(n128 --seqlen 128 --heads 1)
lab_case(n128_causal --seqlen 128 --causal --heads 1 --dim 128)
lab_case(n130 --seqlen 130 --heads 1)
lab_case(n130_causal --seqlen 130 --causal --heads 1)
lab_case(n200 --seqlen 200 --heads 1 --dim 16)
lab_case(n250_causal --seqlen 250 --causal --heads 1 --dim 24)
lab_case(n257 --seqlen 257 --heads 1 --dim 16)
lab_case(n257_causal --seqlen 257 --causal --heads 1 --dim 32)
lab_case(n300 PROBE --seqlen-q 300 --seqlen-k 3 --heads 1 --dim 8)  # rows past 256, a block's worth

# The tiles of FlashAttention-1 (lab 03) are as large as shared memory lets them: on an H200, 227 keys at dim 64, and 112 keys and
# queries at dim 128. Lengths at their borders, and several tiles, which a row's maximum and sum have to get through.
lab_case(tile227 --seqlen-q 20 --seqlen-k 227 --heads 1)
lab_case(tile227_and_1_causal --seqlen-q 70 --seqlen-k 228 --heads 1 --causal)
lab_case(tile112 --seqlen 112 --dim 128 --heads 1)
lab_case(tile112_less_1_causal --seqlen 111 --dim 128 --heads 1 --causal)
lab_case(tile112_and_1 --seqlen-q 20 --seqlen-k 113 --dim 128 --heads 1)
lab_case(tiles_2_of_each_causal PROBE --seqlen-q 114 --seqlen-k 117 --dim 128 --heads 1 --causal)
lab_case(tiles_3 PROBE --seqlen-q 18 --seqlen-k 240 --dim 128 --heads 1)
lab_case(tiles_3_causal PROBE --seqlen-q 18 --seqlen-k 240 --dim 128 --heads 2 --kv-heads 1 --causal)
lab_case(tiles_3_rising PROBE --seqlen-q 4 --seqlen-k 240 --dim 128 --heads 1 --inputs rising)
lab_case(tiles_3_falling PROBE --seqlen-q 4 --seqlen-k 240 --dim 128 --heads 1 --inputs falling)
lab_case(tiles_2_empty_rows_causal --seqlen-q 130 --seqlen-k 115 --dim 128 --heads 1 --causal)  # rows 0 ... 14 see no key

# Queries and keys of different number. Causal is aligned bottom right: query i sees keys j <= i + seqlen_k - seqlen_q.
lab_case(q1_k257 --seqlen-q 1 --seqlen-k 257)
lab_case(q1_k8_causal PROBE --seqlen-q 1 --seqlen-k 8 --causal)  # sees all 8; aligned top left it would see one
lab_case(q2_k5_causal PROBE --seqlen-q 2 --seqlen-k 5 --causal)  # 4 and 5 keys
lab_case(q20_k130_causal PROBE --seqlen-q 20 --seqlen-k 130 --causal --dim 24)
lab_case(q40_k20_causal PROBE --seqlen-q 40 --seqlen-k 20 --causal --dim 16)  # rows 0 ... 19 see no key
lab_case(q5_k1 --seqlen-q 5 --seqlen-k 1)
lab_case(q33_k1_causal --seqlen-q 33 --seqlen-k 1 --causal)  # only the last query sees the key
lab_case(q64_k192_causal --seqlen-q 64 --seqlen-k 192 --causal --heads 1)  # row 0 sees 129
lab_case(q70_k200 --seqlen-q 70 --seqlen-k 200 --dim 32)
lab_case(q70_k200_causal --seqlen-q 70 --seqlen-k 200 --causal --dim 32)
lab_case(q200_k70 --seqlen-q 200 --seqlen-k 70 --dim 32)
lab_case(q200_k70_causal --seqlen-q 200 --seqlen-k 70 --causal --dim 32)  # rows 0 ... 129 see no key
lab_case(q130_k64_causal --seqlen-q 130 --seqlen-k 64 --causal)  # tiles in which every row is empty

# Nothing to do, or no keys at all: o = 0, lse = -inf.
lab_case(no_keys --seqlen-q 5 --seqlen-k 0)
lab_case(no_keys_causal --seqlen-q 65 --seqlen-k 0 --causal)
lab_case(no_queries --seqlen-q 0 --seqlen-k 9)
lab_case(no_queries_no_keys --seqlen-q 0 --seqlen-k 0)
lab_case(no_batch --batch 0 --seqlen 9)

# Head dimensions: any multiple of 8 up to 256. 65 keys leave a tail of one.
lab_case(dim8 --seqlen 65 --dim 8)
lab_case(dim24 --seqlen 65 --dim 24 --causal)
lab_case(dim40 --seqlen 65 --dim 40)
lab_case(dim56 --seqlen 33 --dim 56)
lab_case(dim72 --seqlen 65 --dim 72 --heads 1)
lab_case(dim96 --seqlen 65 --dim 96 --causal --heads 1)
lab_case(dim120 --seqlen 33 --dim 120)
lab_case(dim128 PROBE --seqlen-q 10 --seqlen-k 65 --dim 128 --heads 1)
lab_case(dim136 PROBE --seqlen-q 5 --seqlen-k 33 --dim 136 --heads 1)
lab_case(dim256 PROBE --seqlen-q 5 --seqlen-k 40 --dim 256 --heads 1)

# Heads and batches. 6/2, 6/3 and 8/1: where heads / kv_heads equals kv_heads (4/2), two wrong mappings look right.
lab_case(gqa_6_2 PROBE --batch 2 --heads 6 --kv-heads 2 --seqlen 19 --dim 16)
lab_case(gqa_6_2_causal --heads 6 --kv-heads 2 --seqlen 65 --dim 32 --causal)
lab_case(gqa_6_3 --heads 6 --kv-heads 3 --seqlen-q 20 --seqlen-k 70 --dim 32 --causal)
lab_case(gqa_8_1 --batch 2 --heads 8 --kv-heads 1 --seqlen 33 --dim 24)
lab_case(batch3_heads5 --batch 3 --heads 5 --seqlen 21 --dim 40)
lab_case(many_heads --batch 3 --heads 24 --seqlen 3 --dim 8)

# Layouts: (batch, seq, head, dim) in memory, for all tensors or for some.
lab_case(bshd PROBE --batch 2 --heads 3 --seqlen 18 --dim 24 --layout bshd)
lab_case(mixed_layouts PROBE --batch 2 --heads 3 --seqlen-q 18 --seqlen-k 37 --dim 16 --causal --layout bshd,bhsd,bshd,bhsd)
lab_case(mixed_layouts_gqa --batch 2 --heads 6 --kv-heads 2 --seqlen 35 --dim 24 --layout bhsd,bshd,bhsd,bshd)

# Inputs that show what random numbers hide; common/inputs.h says what each is.
lab_case(zero_q PROBE --seqlen-q 20 --seqlen-k 130 --heads 1 --dim 32 --inputs zero-q)  # o = mean of v, lse = ln(keys seen)
lab_case(zero_q_causal PROBE --seqlen-q 20 --seqlen-k 50 --causal --heads 6 --kv-heads 2 --dim 8 --inputs zero-q)
lab_case(constant_v --seqlen 130 --heads 1 --dim 32 --inputs constant-v)  # o = 1
lab_case(constant_v_causal --seqlen-q 70 --seqlen-k 100 --causal --heads 1 --dim 32 --inputs constant-v)
lab_case(one_hot PROBE --seqlen-q 20 --seqlen-k 65 --inputs one-hot --dim 64 --heads 1)  # o = one row of v
lab_case(one_hot_causal --seqlen-q 33 --seqlen-k 70 --causal --inputs one-hot --dim 64)
lab_case(ln3 PROBE --seqlen-q 20 --seqlen-k 65 --inputs ln3 --dim 64 --heads 1)  # weights 1 and 3: the one exact probe of the scale
lab_case(ln3_dim128 --seqlen 65 --inputs ln3 --dim 128 --heads 1)
lab_case(rising PROBE --seqlen-q 20 --seqlen-k 130 --inputs rising --dim 32 --heads 1)  # the maximum moves at every key
lab_case(rising_causal --seqlen 130 --causal --inputs rising --dim 32 --heads 1)
lab_case(steep PROBE --seqlen-q 4 --seqlen-k 200 --inputs steep --dim 16 --heads 1)  # 2 a key: overflow, if the maximum does not follow
lab_case(falling --seqlen 130 --inputs falling --dim 32 --heads 1)
lab_case(low PROBE --seqlen 30 --inputs low --dim 32 --heads 1)  # every score near -200: a maximum that starts at 0
lab_case(huge PROBE --seqlen 30 --inputs huge --dim 32 --heads 1)  # scores far beyond where exp overflows
lab_case(huge_one_key PROBE --seqlen 1 --inputs huge --dim 128)
lab_case(huge_causal --seqlen-q 20 --seqlen-k 40 --causal --inputs huge --dim 128 --heads 1)
lab_case(outliers --seqlen 65 --inputs outliers --dim 64)
lab_case(tiny --seqlen 65 --inputs tiny --dim 64 --heads 1)
lab_case(nan PROBE --seqlen 20 --inputs nan --dim 16)  # NaN in a key that is seen reaches the output, masked it does not
lab_case(nan_causal PROBE --seqlen-q 10 --seqlen-k 70 --causal --inputs nan --dim 16)
lab_case(nan_causal_whole_tiles PROBE --seqlen-q 10 --seqlen-k 64 --causal --inputs nan --dim 16)  # the NaN ends a whole tile
lab_case(nan_q PROBE --seqlen 20 --inputs nan-q --dim 16)  # one row of o and lse is NaN
lab_case(nan_v PROBE --seqlen-q 10 --seqlen-k 66 --inputs nan-v --dim 16)  # one column of o is NaN, and lse is finite
lab_case(nan_v_causal PROBE --seqlen 40 --causal --inputs nan-v --dim 8)  # in the lower half of the rows
lab_case(uneven PROBE --seqlen-q 20 --seqlen-k 40 --inputs uneven --dim 16)  # a large head and a small one

# A scale that is not 1/sqrt(head_dim), and another seed.
lab_case(scale PROBE --seqlen 33 --dim 16 --scale 0.7)
lab_case(scale_negative --seqlen 33 --dim 16 --causal --scale -0.3)
lab_case(scale_minus_6 PROBE --seqlen-q 10 --seqlen-k 40 --scale -6)  # the largest score belongs to the smallest q . k
lab_case(scale_3 PROBE --seqlen 20 --dim 16 --scale 3)
lab_case(seed7 --seqlen 65 --dim 24 --causal --seed 7)

# ---- gpu only ----------------------------------------------------------------------------------------------------------
gpu_case(n1024 --seqlen 1024 --heads 4)
gpu_case(n1023_causal --seqlen 1023 --heads 4 --dim 128 --causal)
gpu_case(n2049_gqa --seqlen 2049 --heads 6 --kv-heads 2 --dim 72 --causal)
gpu_case(n4096_bshd --batch 2 --heads 4 --seqlen 4096 --layout bshd)
gpu_case(q113_k4099_causal --seqlen-q 113 --seqlen-k 4099 --heads 8 --kv-heads 1 --dim 128 --causal)
gpu_case(q4099_k113_causal --seqlen-q 4099 --seqlen-k 113 --heads 3 --dim 104 --causal)
gpu_case(n8192 --seqlen 8192 --dim 128)
gpu_case(n8192_causal --seqlen 8192 --dim 64 --causal)
gpu_case(rising_8192 --seqlen 8192 --dim 64 --heads 1 --inputs rising)
gpu_case(heads_70000 --batch 1000 --heads 70 --seqlen 5 --dim 24)  # more than 65535: the limit of grid.y and grid.z
gpu_case(batch_70000 --batch 70000 --heads 1 --seqlen 4 --dim 8 --causal)
gpu_case(heads_65536 --heads 65536 --seqlen 10 --dim 16)
gpu_case(scores_over_2_31 --heads 9 --seqlen 16384 --dim 8)  # batch * heads * N * N is beyond 32 bits
gpu_case(n50000 --seqlen 50000 --heads 1 --dim 64 --causal)  # and N * N alone is
