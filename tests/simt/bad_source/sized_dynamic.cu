__global__ void k() {
    extern __shared__ int x[4];
}
