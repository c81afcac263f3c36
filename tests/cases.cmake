# cases.cmake - the cases that every lab is tested on, on each backend.
#
#     lab_case(NAME [PROBE] [PERSISTENT] [SPLITS] OPTIONS...)
#                                          a small case. Its inputs, o and lse are written once by ground_truth (the CTest
#                                          test truth.DTYPE.NAME); every lab runs OPTIONS --load those files
#     gpu_case(NAME OPTIONS...)            too big for the simulated device and for a full reference: the lab makes its own
#                                          inputs and checks a fixed sample of rows. gpu backend only; counted as
#                                          skipped where a kernel says that the GPU's memory is too small
#
# OPTIONS are a lab's own options, and say the whole shape; what they leave out is --batch 1 --heads 2 --dim 64 (and, without
# --causal, --full). Only labs with the feature run a case with --window or --seqlens, or with --inputs one-row. PROBE marks
# the cases that the wrong kernels of wrong/ have to survive: cheap ones that between them catch every kind of fault.
# PERSISTENT, SPLITS: only for labs with that feature (tests/CMakeLists.txt), because others would take long.
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

# The tiles of FlashAttention-3 (lab 07): 192 queries at dim 64, 128 at 128 and 256; 128 keys, 80 at dim 256.
lab_case(tiles_q193_k385 PERSISTENT --seqlen-q 193 --seqlen-k 385 --heads 1)
lab_case(tiles_q200_k330_causal PERSISTENT --seqlen-q 200 --seqlen-k 330 --heads 1 --causal)  # 64 queries of 192 see no key of the last tile
lab_case(tiles_q129_k257_dim128 PROBE PERSISTENT --seqlen-q 129 --seqlen-k 257 --dim 128 --heads 1)
lab_case(tiles_q140_k260_dim128_causal PROBE PERSISTENT --seqlen-q 140 --seqlen-k 260 --dim 128 --heads 1 --causal)
lab_case(tiles_empty_rows_dim128_causal PROBE PERSISTENT --seqlen-q 270 --seqlen-k 129 --dim 128 --heads 2 --kv-heads 1 --causal)
lab_case(tiles_q129_k161_dim256 PERSISTENT --seqlen-q 129 --seqlen-k 161 --dim 256 --heads 1)
lab_case(tiles_q70_k170_dim256_causal PROBE PERSISTENT --seqlen-q 70 --seqlen-k 170 --dim 256 --heads 1 --causal)

# Rings of stages (lab 07): more tiles of 128 keys than there are stages. And, for kernels whose blocks take one tile of queries after
# another, more of these than there are multiprocessors.
lab_case(tiles_6 PROBE --seqlen-q 5 --seqlen-k 700 --heads 1 --dim 16)
lab_case(tiles_6_causal PROBE --seqlen-q 20 --seqlen-k 650 --heads 1 --dim 16 --causal)
lab_case(heads_140 PROBE PERSISTENT --batch 5 --heads 28 --kv-heads 7 --seqlen-q 2 --seqlen-k 140 --dim 8 --causal)

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
lab_case(many_tiles_causal PROBE PERSISTENT --heads 280 --seqlen-q 5 --seqlen-k 9 --dim 8 --causal)  # two heads for each multiprocessor, three for some
lab_case(many_tiles_dim256 PROBE PERSISTENT --heads 140 --seqlen-q 3 --seqlen-k 5 --dim 136)

# Layouts: (batch, seq, head, dim) in memory, for all tensors or for some.
lab_case(bshd PROBE --batch 2 --heads 3 --seqlen 18 --dim 24 --layout bshd)
lab_case(mixed_layouts PROBE --batch 2 --heads 3 --seqlen-q 18 --seqlen-k 37 --dim 16 --causal --layout bshd,bhsd,bshd,bhsd)
lab_case(mixed_layouts_gqa --batch 2 --heads 6 --kv-heads 2 --seqlen 35 --dim 24 --layout bhsd,bshd,bhsd,bshd)

# Rows further apart than they are long: NaN lies between them, and nobody may write there.
lab_case(pad_8 PROBE --batch 2 --heads 3 --seqlen-q 18 --seqlen-k 37 --dim 16 --pad 8)
lab_case(pad_8_causal --heads 4 --kv-heads 2 --seqlen-q 70 --seqlen-k 65 --dim 64 --causal --pad 8 --layout bshd)
lab_case(pad_200 PROBE --seqlen 33 --dim 40 --pad 200 --layout bshd,bhsd,bhsd,bshd)
lab_case(pad_dim128 --seqlen-q 20 --seqlen-k 70 --dim 128 --heads 1 --pad 64)
lab_case(pad_1 PROBE --batch 2 --heads 3 --seqlen-q 18 --seqlen-k 37 --dim 16 --pad 1)  # rows off 16 bytes
lab_case(pad_7_causal --heads 4 --kv-heads 2 --seqlen-q 70 --seqlen-k 65 --dim 72 --causal --pad 7 --layout bshd)
lab_case(pad_4 --seqlen 40 --dim 24 --pad 4)

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
# huge_300, overflow_in_some, falling_far: every third, so that all three are lazy_max's turn (LAB_TURNS of lab 07).
lab_case(huge_300 PROBE --seqlen-q 70 --seqlen-k 300 --inputs huge --dim 16 --heads 1)  # lab 07's last tile of keys, with which it begins, leaves fp32 behind in all rows
lab_case(steep PROBE --seqlen-q 4 --seqlen-k 200 --inputs steep --dim 16 --heads 1)  # 2 a key: overflow, if the maximum does not follow
lab_case(falling --seqlen 130 --inputs falling --dim 32 --heads 1)
lab_case(overflow_in_some PROBE --seqlen-q 70 --seqlen-k 300 --heads 1 --scale 6.4)  # ... in one row
lab_case(low PROBE --seqlen 30 --inputs low --dim 32 --heads 1)  # every score near -200: a maximum that starts at 0
lab_case(huge PROBE --seqlen 30 --inputs huge --dim 32 --heads 1)  # scores far beyond where exp overflows
lab_case(falling_far PROBE --seqlen-q 20 --seqlen-k 300 --inputs falling --dim 32 --heads 1)  # ... and fp16
lab_case(huge_one_key PROBE --seqlen 1 --inputs huge --dim 128)
lab_case(huge_causal --seqlen-q 20 --seqlen-k 40 --causal --inputs huge --dim 128 --heads 1)
lab_case(outliers --seqlen 65 --inputs outliers --dim 64)
lab_case(tiny --seqlen 65 --inputs tiny --dim 64 --heads 1)
lab_case(nan PROBE --seqlen 20 --inputs nan --dim 16)  # NaN in a key that is seen reaches the output, masked it does not
lab_case(nan_causal PROBE --seqlen-q 10 --seqlen-k 70 --causal --inputs nan --dim 16)
lab_case(nan_causal_whole_tiles PROBE --seqlen-q 10 --seqlen-k 64 --causal --inputs nan --dim 16)  # the NaN ends a whole tile
lab_case(nan_q PROBE --seqlen 20 --inputs nan-q --dim 16)  # one row of o and lse is NaN
lab_case(nan_q_causal PROBE --seqlen 20 --causal --inputs nan-q --dim 16)  # gradients of keys behind it are finite
lab_case(nan_v PROBE --seqlen-q 10 --seqlen-k 66 --inputs nan-v --dim 16)  # one column of o is NaN, and lse is finite
lab_case(nan_v_causal PROBE --seqlen 40 --causal --inputs nan-v --dim 8)  # in the lower half of the rows
lab_case(steps PROBE --seqlen-q 150 --seqlen-k 300 --heads 1 --dim 16 --inputs steps)  # of blocks of 128 tokens, one scale each
lab_case(added_outliers --seqlen-q 20 --seqlen-k 300 --heads 1 --dim 64 --inputs added-outliers)
lab_case(peak PROBE --seqlen-q 9 --seqlen-k 130 --heads 1 --dim 16 --inputs peak)  # 129 P of 2^-11, below e4m3's smallest number
lab_case(uneven PROBE --seqlen-q 20 --seqlen-k 40 --inputs uneven --dim 16)  # a large head and a small one

# A scale that is not 1/sqrt(head_dim), and another seed.
lab_case(scale PROBE --seqlen 33 --dim 16 --scale 0.7)
lab_case(scale_negative --seqlen 33 --dim 16 --causal --scale -0.3)
lab_case(scale_minus_6 PROBE --seqlen-q 10 --seqlen-k 40 --scale -6)  # the largest score belongs to the smallest q . k
lab_case(scale_3 PROBE --seqlen 20 --dim 16 --scale 3)
lab_case(seed7 --seqlen 65 --dim 24 --causal --seed 7)

# Sliding windows, for labs that have them (LAB_FEATURES): L keys to the left and R to the right of where a query stands, which is
# key i + seqlen_k - seqlen_q, and that one itself. Tiles of keys are 64 or 128 long.
lab_case(window_0_0 PROBE --seqlen 70 --window 0,0 --heads 1 --dim 16)  # o = v
lab_case(window_3_2 PROBE --seqlen-q 20 --seqlen-k 90 --window 3,2 --dim 16)
lab_case(window_63_0 --seqlen 200 --window 63,0 --heads 1 --dim 16)
lab_case(window_64_64 --seqlen 260 --window 64,64 --heads 1 --dim 16)
lab_case(window_63_64 --seqlen-q 70 --seqlen-k 300 --window 63,64 --heads 1 --dim 32)
lab_case(window_100_30 PROBE --seqlen 300 --window 100,30 --heads 1 --dim 16)
lab_case(window_left --seqlen-q 150 --seqlen-k 200 --window 40,-1 --heads 1 --dim 16)
lab_case(window_right PROBE --seqlen-q 200 --seqlen-k 150 --window -1,7 --heads 1 --dim 16)
lab_case(window_right_0 --seqlen-q 40 --seqlen-k 100 --window -1,0 --dim 16)  # what --causal is
lab_case(window_causal PROBE --seqlen 300 --window 70 --causal --heads 1 --dim 16)
lab_case(window_causal_0 --seqlen-q 20 --seqlen-k 70 --window 0 --causal --heads 1 --dim 16)
lab_case(window_causal_right --seqlen 90 --window 20,9 --causal --dim 24)  # nobody looks ahead all the same
lab_case(window_gqa_6_2 PROBE --batch 2 --heads 6 --kv-heads 2 --seqlen-q 19 --seqlen-k 33 --window 9,1 --dim 16)
lab_case(window_dim128 --seqlen-q 70 --seqlen-k 210 --window 66,10 --heads 1 --dim 128)
lab_case(window_pad --seqlen 40 --window 6,3 --dim 24 --pad 8)
lab_case(window_bshd --batch 2 --heads 3 --seqlen 40 --window 6,3 --dim 24 --layout bshd)
lab_case(window_beyond --seqlen-q 50 --seqlen-k 80 --window 2000000000,2147483647 --dim 16)  # everybody sees all
lab_case(window_beyond_causal --seqlen 80 --window 2147483647 --causal --dim 16)
lab_case(window_before_all PROBE --seqlen-q 200 --seqlen-k 20 --window 5,10 --heads 1 --dim 16)  # rows 0 ... 169 see no key
lab_case(window_before_all_causal --seqlen-q 150 --seqlen-k 70 --window 30 --causal --heads 1 --dim 16)
lab_case(window_no_keys --seqlen-q 9 --seqlen-k 0 --window 4,4 --dim 16)
lab_case(window_zero_q PROBE --seqlen-q 70 --seqlen-k 200 --window 65,3 --heads 1 --dim 8 --inputs zero-q)  # lse = ln(keys seen)
lab_case(window_one_hot --seqlen-q 33 --seqlen-k 150 --window 40,20 --heads 1 --dim 64 --inputs one-hot)
lab_case(window_rising PROBE --seqlen 150 --window 70,3 --heads 1 --dim 32 --inputs rising)
lab_case(window_falling --seqlen 150 --window 70,3 --heads 1 --dim 32 --inputs falling)
lab_case(window_low PROBE --seqlen 140 --window 10,2 --heads 1 --dim 32 --inputs low)
lab_case(window_nan PROBE --seqlen 70 --window 20,4 --dim 16 --inputs nan)  # the last key's NaN reaches the last five rows
lab_case(window_nan_v PROBE --seqlen 130 --window 9,9 --heads 1 --dim 16 --inputs nan-v)  # and the middle one's 19 rows
lab_case(window_nan_v_causal --seqlen 130 --window 9 --causal --heads 1 --dim 16 --inputs nan-v)

# Packed sequences, for labs that take them: lengths around tiles of 64 and 128, and none at all. Layout bshd unless it says so.
lab_case(packed PROBE --seqlens 17,0,70 --dim 16)
lab_case(packed_causal PROBE --seqlens 65,0,1,130 --causal --heads 1 --dim 16)
lab_case(packed_tiles --seqlens 63,64,65,128,129 --heads 1 --dim 16)
lab_case(packed_tiles_causal --seqlens 129,128,1,64,63 --causal --heads 1 --dim 16)
lab_case(packed_300 --seqlens 0,300,17 --causal --heads 1 --dim 16)
lab_case(packed_one --seqlens 70 --dim 32)
lab_case(packed_one_causal --seqlens-q 20 --seqlens-k 90 --causal --dim 32)
lab_case(packed_ones PROBE --seqlens 1,1,1,1,1 --dim 8)  # o = v
lab_case(packed_q_and_k PROBE --seqlens-q 5,40,1,9 --seqlens-k 70,3,129,9 --causal --heads 1 --dim 16)  # offsets of its own each
lab_case(packed_q_and_k_full --seqlens-q 70,3,129,9 --seqlens-k 5,40,1,9 --heads 1 --dim 16)
lab_case(packed_no_q --seqlens-q 0,7,0 --seqlens-k 9,20,5 --dim 16)
lab_case(packed_no_k PROBE --seqlens-q 9,20,5 --seqlens-k 0,7,0 --causal --dim 16)  # o = 0, lse = -inf
lab_case(packed_all_empty --seqlens 0,0,0 --dim 16)
lab_case(packed_all_without_keys --seqlens-q 3,70 --seqlens-k 0,0 --dim 16)
lab_case(packed_all_without_queries --seqlens-q 0,0 --seqlens-k 3,70 --dim 16)
string(REPEAT "3,1,0,2," 17 tiny)
lab_case(packed_72 --seqlens ${tiny}1,1,1,4 --heads 1 --dim 8)
lab_case(packed_72_causal PROBE --seqlens ${tiny}0,5,0,70 --causal --heads 1 --dim 8)
# Shapes at which FlashAttention, ROCm's and FlashInfer have failed, scaled down.
lab_case(packed_empty_first_and_last --seqlens-q 0,60,42,0 --seqlens-k 127,87,42,154 --heads 4 --kv-heads 1 --dim 16)
lab_case(packed_one_key_each PROBE --seqlens-q 76,34,146 --seqlens-k 1,1,1 --causal --heads 1 --dim 32)  # the last query sees it
lab_case(packed_one_query_each --seqlens-q 0,1,0,1 --seqlens-k 0,3,0,5 --heads 9 --kv-heads 3 --dim 64)
lab_case(packed_one_query_each_causal PROBE --seqlens-q 0,1,0,1 --seqlens-k 0,3,0,5 --causal --heads 9 --kv-heads 3 --dim 16)
lab_case(packed_second_of_other_length PROBE --seqlens-q 3,5 --seqlens-k 8,2 --dim 16)  # keys do not begin where queries do
lab_case(packed_gqa_6_2 PROBE --seqlens-q 19,2,0,30 --seqlens-k 7,40,3,30 --causal --heads 6 --kv-heads 2 --dim 16)
lab_case(packed_gqa_9_3_bhsd --seqlens 19,2,0,30 --heads 9 --kv-heads 3 --dim 24 --layout bhsd)
lab_case(packed_bhsd PROBE --seqlens-q 5,40,1,9 --seqlens-k 20,3,70,9 --causal --dim 16 --layout bhsd)
lab_case(packed_mixed_layouts --seqlens-q 5,40,9 --seqlens-k 20,3,9 --dim 24 --layout bshd,bhsd,bshd,bhsd)
lab_case(packed_pad --seqlens-q 30,0,9 --seqlens-k 7,4,70 --causal --dim 24 --pad 16)
lab_case(packed_dim128 --seqlens 30,0,99 --causal --heads 1 --dim 128)
lab_case(packed_window PROBE --seqlens 70,9,150 --window 20,3 --heads 1 --dim 16)
lab_case(packed_window_causal PROBE --seqlens-q 9,70,20 --seqlens-k 130,40,20 --window 30 --causal --heads 1 --dim 16)
lab_case(packed_zero_q PROBE --seqlens 65,9,30 --causal --heads 1 --dim 8 --inputs zero-q)  # lse = ln(keys seen)
lab_case(packed_one_hot --seqlens 40,9,66 --causal --dim 64 --heads 1 --inputs one-hot)  # a key of its own sequence
lab_case(packed_huge --seqlens 40,9,66 --dim 32 --heads 1 --inputs huge)
lab_case(packed_nan PROBE --seqlens 40,9,20 --causal --dim 16 --inputs nan)  # the very last key's NaN reaches the very last row
lab_case(packed_nan_v PROBE --seqlens 40,9,20 --dim 16 --inputs nan-v)  # and one in the last sequence that sequence alone

# Keys split among blocks, for labs that do that: one part, as many as tiles of 128 keys, and more than there are.
lab_case(splits_1 PROBE --seqlen-q 1 --seqlen-k 700 --heads 4 --kv-heads 2 --dim 16 --splits 1)
lab_case(splits_2 PROBE --seqlen-q 1 --seqlen-k 700 --heads 6 --kv-heads 2 --dim 16 --splits 2)
lab_case(splits_3 PROBE --seqlen-q 4 --seqlen-k 1000 --heads 6 --kv-heads 2 --dim 40 --splits 3 --causal)
lab_case(splits_7 --seqlen-q 1 --seqlen-k 900 --heads 8 --kv-heads 1 --dim 128 --splits 7)
lab_case(splits_16 --seqlen-q 2 --seqlen-k 2049 --heads 2 --kv-heads 1 --dim 16 --splits 16 --causal)
lab_case(splits_32 --seqlen-q 1 --seqlen-k 4096 --heads 4 --kv-heads 1 --dim 8 --splits 32)
lab_case(splits_64 --seqlen-q 1 --seqlen-k 8192 --heads 1 --dim 8 --splits 64)
lab_case(splits_128 --seqlen-q 1 --seqlen-k 16384 --heads 1 --dim 8 --splits 128)
lab_case(splits_65_rising PROBE --seqlen-q 3 --seqlen-k 8300 --heads 11 --kv-heads 1 --dim 8 --splits 65 --inputs rising)  # merged in turns
lab_case(splits_more_than_tiles PROBE --seqlen-q 3 --seqlen-k 200 --heads 6 --kv-heads 3 --dim 16 --splits 128)
lab_case(splits_one_key --seqlen-q 2 --seqlen-k 1 --heads 2 --kv-heads 1 --dim 16 --splits 7 --causal)
lab_case(splits_no_keys --seqlen-q 3 --seqlen-k 0 --heads 2 --dim 16 --splits 3)
lab_case(splits_tile_borders --seqlen-q 1 --seqlen-k 385 --heads 2 --dim 16 --splits 4)  # a key alone in its part
lab_case(splits_rows_17 PROBE --seqlen-q 17 --seqlen-k 513 --heads 1 --dim 16 --splits 4 --causal)
lab_case(splits_rows_32 --seqlen-q 8 --seqlen-k 700 --heads 8 --kv-heads 2 --dim 128 --splits 2 --causal)
lab_case(splits_rows_33 --seqlen-q 11 --seqlen-k 300 --heads 3 --kv-heads 1 --dim 16 --splits 2 --causal)
lab_case(splits_rows_64 PROBE --seqlen-q 16 --seqlen-k 400 --heads 4 --kv-heads 1 --dim 64 --splits 3 --causal)
lab_case(splits_rows_64_d128 PROBE --seqlen-q 16 --seqlen-k 300 --heads 4 --kv-heads 1 --dim 128 --splits 2)
lab_case(splits_3_many_rows PROBE --batch 3 --seqlen-q 4 --seqlen-k 500 --heads 16 --kv-heads 4 --dim 32 --splits 3 --causal)
lab_case(splits_2_rows_5 PROBE --batch 9 --seqlen-q 1 --seqlen-k 200 --heads 15 --kv-heads 3 --dim 8 --splits 2)  # merged by two warps each, four rows a block and one left
lab_case(splits_rows_65 --seqlen-q 13 --seqlen-k 300 --heads 5 --kv-heads 1 --dim 24 --splits 2 --causal)
lab_case(splits_empty_part PROBE --seqlen-q 200 --seqlen-k 400 --heads 1 --dim 16 --splits 4 --causal)  # hidden from the first rows
lab_case(splits_steep PROBE --seqlen-q 1 --seqlen-k 600 --heads 1 --dim 16 --inputs steep --splits 4)  # parts of far apart maxima
lab_case(splits_steep_falling --seqlen-q 1 --seqlen-k 600 --heads 1 --dim 16 --inputs steep --scale -0.25 --splits 4)
lab_case(splits_zero_q PROBE --seqlen-q 2 --seqlen-k 700 --heads 4 --kv-heads 2 --dim 8 --inputs zero-q --splits 3)  # lse = ln(keys seen)
lab_case(splits_nan --seqlen-q 3 --seqlen-k 500 --heads 2 --dim 16 --inputs nan --splits 3 --causal)
lab_case(splits_nan_v PROBE --seqlen-q 3 --seqlen-k 500 --heads 2 --dim 16 --inputs nan-v --splits 3 --causal)
lab_case(splits_bshd --batch 3 --seqlen-q 2 --seqlen-k 300 --heads 6 --kv-heads 2 --dim 24 --layout bshd --pad 8 --splits 2)
lab_case(splits_ragged PROBE --seqlens-q 1,1,1,1,1,1 --seqlens-k 1,700,129,0,64,300 --heads 6 --kv-heads 2 --dim 16 --splits 3)
lab_case(splits_ragged_causal --seqlens-q 4,0,3,40,1 --seqlens-k 500,9,3,300,0 --heads 4 --kv-heads 2 --dim 16 --splits 2 --causal)
lab_case(splits_1_ragged PROBE --seqlens-q 1,1,1,1,1,1 --seqlens-k 1,700,129,0,64,300 --heads 6 --kv-heads 2 --dim 16 --splits 1)
lab_case(splits_1_ragged_causal --seqlens-q 9,0,30,2,1 --seqlens-k 900,70,140,1,600 --heads 4 --kv-heads 2 --dim 16 --splits 1 --causal)
lab_case(splits_1_ring PROBE --seqlen-q 1 --seqlen-k 1500 --heads 4 --kv-heads 2 --dim 64 --splits 1)  # more tiles than stages
lab_case(splits_1_ring_causal PROBE --seqlen-q 20 --seqlen-k 900 --heads 2 --kv-heads 1 --dim 128 --splits 1 --causal)
lab_case(splits_1_ring_rows_32 PROBE --seqlen-q 8 --seqlen-k 700 --heads 4 --kv-heads 1 --dim 128 --splits 1 --causal)
lab_case(splits_1_ring_goes_on PROBE --seqlens-q 1,1,1,1 --seqlens-k 1792,1000,1000,1000 --heads 1 --dim 128 --splits 1)  # into the next part
lab_case(splits_1_short_parts PROBE --seqlens-q 1,1,1,1,1,1,1 --seqlens-k 900,3,0,130,0,1,700 --heads 6 --kv-heads 3 --dim 16 --splits 1)  # several on their way
lab_case(splits_1_next_head PROBE --seqlens-q 1,1,1 --seqlens-k 4000,600,600 --heads 4 --dim 16 --splits 1)  # a head that a piece has alone, between parts of two others
lab_case(splits_1_one_stage PROBE --seqlen-q 1 --seqlen-k 140 --heads 400 --dim 8 --splits 1)  # in so many waves of blocks that the ring has one stage
lab_case(splits_1_ring_rising --seqlen-q 2 --seqlen-k 1100 --heads 2 --kv-heads 1 --dim 128 --splits 1 --inputs rising)
lab_case(queries_264_heads SPLITS --batch 3 --seqlen-q 2 --seqlen-k 40 --heads 88 --dim 8 --causal)  # whole items, drawn
lab_case(decode_many_heads SPLITS --batch 20 --seqlen-q 1 --seqlen-k 150 --heads 16 --kv-heads 8 --dim 8)  # more items than multiprocessors
lab_case(queries_1188_heads_no_keys PROBE SPLITS --batch 27 --seqlen-q 1 --seqlen-k 0 --heads 44 --dim 8)  # more parts for a block than it looks ahead, and none has a tile
# ... and as each kernel splits by itself: a long one among short ones.
lab_case(ragged --seqlens-q 1,1,1,1,1,1,1 --seqlens-k 5,1900,0,1,128,129,40 --heads 8 --kv-heads 2 --dim 64)
lab_case(ragged_causal --seqlens-q 2,16,1,0,5 --seqlens-k 900,400,1,70,3 --heads 4 --kv-heads 1 --dim 128 --causal)

# dO in one row: what other rows and keys that it does not see get is exactly 0.
lab_case(one_row PROBE --seqlen 70 --heads 6 --kv-heads 3 --dim 24 --inputs one-row)
lab_case(one_row_causal PROBE --seqlen-q 33 --seqlen-k 70 --heads 4 --kv-heads 2 --causal --inputs one-row)
lab_case(one_row_packed PROBE --seqlens-q 9,0,33,5 --seqlens-k 20,3,40,0 --heads 2 --kv-heads 1 --dim 16 --causal --inputs one-row)

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
gpu_case(window_4099 --seqlen-q 4099 --seqlen-k 8200 --window 1000,30 --heads 6 --kv-heads 2 --dim 128)
gpu_case(window_8192_causal --seqlen 8192 --window 512 --causal --heads 2 --dim 64)
gpu_case(packed_mixed --seqlens 17,0,4099,1,2048,300,129 --causal --heads 8 --kv-heads 2 --dim 128)
string(REPEAT "${tiny}" 15 tiny)
gpu_case(packed_1000 --seqlens-q ${tiny}900 --seqlens-k ${tiny}3000 --heads 5 --dim 72)
gpu_case(packed_window_4099 --seqlens-q 4099,300,0,77 --seqlens-k 8200,300,9,1000 --window 200,10 --heads 2 --dim 64)
gpu_case(pad_over_2_31 --seqlen 65 --heads 1 --dim 64 --pad 33600000)  # in one head, offsets beyond 2^31: 17.5 GB
gpu_case(n50000 --seqlen 50000 --heads 1 --dim 64 --causal)  # and N * N alone is
