# Hidden cases, a sample: copy this folder to where no student sees it, and change the numbers. The form is that of
# tests/cases.cmake, whose names may be used in points.csv as well.
lab_case(seed_1009 --seqlen-q 37 --seqlen-k 91 --heads 4 --kv-heads 2 --dim 48 --seed 1009)
lab_case(seed_2003_causal --seqlen-q 83 --seqlen-k 101 --heads 3 --dim 40 --causal --seed 2003)
lab_case(long_rows_causal --seqlen-q 9 --seqlen-k 317 --heads 2 --dim 24 --causal --seed 77)
lab_case(scale --seqlen 53 --dim 32 --scale 0.31 --seed 5)
lab_case(huge_keys --seqlen-q 33 --seqlen-k 200 --dim 16 --inputs huge --seed 9)
