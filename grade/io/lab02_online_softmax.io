# Budgets of bytes for lab 02, in the words of tests/io/io.sh. Twice what the reference solution moves: room for another way
# through the same idea, and none for a matrix of N x N. All results come out of a kernel's stores.
only 1
fused   *   writes >= H * (2*M*d + 4*M)
fused   *   writes <= 2 * H * (2*M*d + 4*M)
fused   *   reads  <= 2 * H * (4 * 2*d*M + 2*d*V + 2*d*V)
