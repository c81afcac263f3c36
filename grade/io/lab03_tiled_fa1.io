# Budgets of bytes for lab 03: O, m and l travel once for each tile of keys, of which the shared memory of an H200 takes
# F / 4d. A quarter more than the reference solution moves.
only 1
let F = 58112
let B = up(F, 4*d)
let T = up(N, B)
fa1        *   writes >= H * (2*M*d + 4*M)
fa1        *   writes <= 5 * H * (T * (4*M*d + 8*M) + 6*M*d + 12*M) / 4
fa1        *   reads  <= 5 * H * (T * (6*M*d + 8*M) + 4*N*d + 4*M*d + 8*M) / 4
fa1_padded *   writes >= H * (2*M*d + 4*M)
fa1_padded *   writes <= 5 * H * (T * (4*M*d + 8*M) + 6*M*d + 12*M) / 4
fa1_padded *   reads  <= 5 * H * (T * (6*M*d + 8*M) + 4*N*d + 4*M*d + 8*M) / 4
