// device_main.c - grade_device: says which GPU a run can use here, after using it a little. The grader runs
// it as it runs submissions, and so learns before the first of them what they find.
//
// Exit 0 and the GPU's name; 77 and why there is none; 1 if it is there and does not work.
#include <stdio.h>

#include "common/device.h"

enum { BYTES = 1 << 20 };

int main(void) {
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        fprintf(stderr, "%s\n", status != cudaSuccess ? cudaGetErrorString(status) : "no device");
        return LAB_SKIPPED;
    }
    struct cudaDeviceProp properties;
    void *memory = NULL;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    CUDA_CHECK(cudaMalloc(&memory, BYTES));
    CUDA_CHECK(cudaMemset(memory, 0, BYTES));
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaFree(memory));
    printf("%s\n", properties.name);
    return 0;
}
