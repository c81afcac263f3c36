# Lab 08's kernels have no bank conflicts. (Of a program that g++ compiled: clang reads two fp32 numbers side by side one after the
# other, which does have.)
only S == 0
unsplit     *       conflicts  = 0
split       *       conflicts  = 0
one_launch  *       conflicts  = 0
balanced    *       conflicts  = 0
