# Budgets that lab 02 does not keep: too little to write, and more than it reads.
only 1
fused   *   writes <= H * (2*M*d + 4*M) - 1
fused   *   reads  >= 8 * H * (2*d*M + 2*d*V + 2*d*V)
