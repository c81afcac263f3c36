// device_memory.h - copies between host arrays and device memory for the small test programs. Every call is
// checked.
#ifndef DEVICE_MEMORY_H
#define DEVICE_MEMORY_H

#include <cuda_runtime.h>
#include <stdlib.h>

#include "check.h"

static inline void expect_success(cudaError_t status) {
    if (CHECK(status == cudaSuccess)) return;
    fprintf(stderr, "  %s: %s\n", cudaGetErrorName(status), cudaGetErrorString(status));
    exit(1);
}

// `count` elements of device memory, copied from `host` or, if that is null, filled with zero bytes.
template <class T> static T *to_device(const T *host, size_t count) {
    T *device = nullptr;
    expect_success(cudaMalloc(&device, count * sizeof(T)));
    if (host)
        expect_success(cudaMemcpy(device, host, count * sizeof(T), cudaMemcpyHostToDevice));
    else
        expect_success(cudaMemset(device, 0, count * sizeof(T)));
    return device;
}

// Waits for the kernels launched before, copies back what they wrote and frees the device memory.
template <class T> static void from_device(T *host, T *device, size_t count) {
    expect_success(cudaGetLastError());
    expect_success(cudaDeviceSynchronize());
    expect_success(cudaMemcpy(host, device, count * sizeof(T), cudaMemcpyDeviceToHost));
    expect_success(cudaFree(device));
}

#endif
