# No formula holds, so nothing is tested: io.sh must not take that for a success.
only N < 0
fused   *               writes  = H * (2*M*d + 4*M)
