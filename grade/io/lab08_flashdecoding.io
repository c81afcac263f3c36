# Budgets of bytes for lab 08. In all but `unsplit`, K and V are read once for all heads of a group: the parts' sums besides are
# few where there are many keys, and a twentieth is left for them and for rows of Q. Up to 16 rows a group, no mask, --splits.
only 1
let D = d <= 64 ? 64 : 128
unsplit     *  writes >= H * (2*M*d + 4*M)
unsplit     *  reads  <= H * (2*2*N*d + 4 * 2*M*d) * 11 / 10
split       decode  reads <= (2 * G*N*d * 2 + H * S*4 * 2*M*d) * 21 / 20
split       *  writes >= H * (2*M*d + 4*M)
split       *  writes <= H * M * (2*d + 4 + S * (4*D + 8)) * 11 / 10
one_launch  *  writes >= H * (2*M*d + 4*M)
one_launch  *  reads  <= (2 * G*N*d * 2 + H * S*4 * 2*M*d + H*M * S * (12 + 4*D)) * 21 / 20
only S == 0
balanced    *  writes >= H * (2*M*d + 4*M)
balanced    *  reads  <= (2 * G*N*d * 2 + H * up(N, 128)*4 * 2*M*d + H*M * up(N, 128) * (12 + 4*D)) * 21 / 20
