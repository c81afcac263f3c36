# Wrong formulas for lab 02, of which io.sh must find out every one: as if the fused kernel still wrote S; as if it read P; a
# function that is never launched; arithmetic that is none; as if each product of the scores were one operation; one exponential
# too many a row; barriers that are not there.
only 1
fused   *               writes  = H * (2*M*d + 4*M + 2*M*N)
fused   *               reads   = H * (4 * 2*d*M + 2*d*V + 2*d*V + 2*V)
fused   scores          reads   = 0
fused   *               writes  = H * (2*M*d + 4*M
safe    scores          flops   = H * M*N*d
safe    softmax_safe    exps    = H * (2*V + M)
fused   *               barriers = H * M
