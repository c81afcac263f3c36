# Wrong formulas for lab 02, of which io.sh must find out every one: as if the fused kernel still wrote S; as if it read P; a
# function that is never launched; arithmetic that is none.
only 1
fused   *               writes  = H * (2*M*d + 4*M + 2*M*N)
fused   *               reads   = H * (4 * 2*d*M + 2*d*V + 2*d*V + 2*V)
fused   scores          reads   = 0
fused   *               writes  = H * (2*M*d + 4*M
