extern __shared__ int x[4];
