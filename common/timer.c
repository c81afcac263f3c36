#include "timer.h"

#include <string.h>

enum { MAX_REPETITIONS = 100 };

static int ascending(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

struct timing timer_summary(float *ms, int count) {
    qsort(ms, (size_t)count, sizeof *ms, ascending);
    struct timing t = {.low_ms = (double)ms[count / 4], .high_ms = (double)ms[count - 1 - count / 4]};
    t.median_ms = (double)(ms[(count - 1) / 2] + ms[count / 2]) / 2;
    t.repetitions = count;
    return t;
}

struct timing timer_measure(void (*launch)(struct attention a), struct attention a,
                            const struct device *device, int repetitions) {
    if (repetitions > MAX_REPETITIONS) repetitions = MAX_REPETITIONS;
    if (repetitions < 1) repetitions = 1;
    size_t flush_bytes = ON_CPU ? 0 : 2 * device->l2_bytes;
    void *flush = NULL;
    if (flush_bytes && cudaMalloc(&flush, flush_bytes) != cudaSuccess) {
        fprintf(stderr,
                "There is no device memory left for the %zu bytes that flush the L2 cache; choose a smaller "
                "shape.\n",
                flush_bytes);
        exit(LAB_USAGE);
    }
    cudaEvent_t start[MAX_REPETITIONS], stop[MAX_REPETITIONS];
    for (int i = 0; i < repetitions; ++i) {
        CUDA_CHECK(cudaEventCreate(&start[i]));
        CUDA_CHECK(cudaEventCreate(&stop[i]));
    }
    if (!ON_CPU) launch(a);
    CUDA_CHECK(cudaGetLastError());
    for (int i = 0; i < repetitions; ++i) {
        if (flush) CUDA_CHECK(cudaMemsetAsync(flush, i & 1, flush_bytes, 0));
        CUDA_CHECK(cudaEventRecord(start[i], 0));
        launch(a);
        CUDA_CHECK(cudaGetLastError());
        CUDA_CHECK(cudaEventRecord(stop[i], 0));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    float ms[MAX_REPETITIONS] = {0};
    for (int i = 0; i < repetitions; ++i) {
        CUDA_CHECK(cudaEventElapsedTime(&ms[i], start[i], stop[i]));
        CUDA_CHECK(cudaEventDestroy(start[i]));
        CUDA_CHECK(cudaEventDestroy(stop[i]));
    }
    if (flush) CUDA_CHECK(cudaFree(flush));
    return timer_summary(ms, repetitions);
}
