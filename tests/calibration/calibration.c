// calibration.c - runs every kernel of the calibration once.
//
// On the cpu backend it prints a CSV of what the simulated device counted: kernel,counter,value. compare.sh
// holds that to h200.csv, which has what Nsight Compute counted for the same kernels on an H200. On the gpu
// backend it prints the names in the order of the launches, for refresh.sh, which runs it under ncu.
#include "calibration.h"

#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_SKIPPED = 77 };

static void require(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return;
    fprintf(stderr, "calibration: %s failed: %s\n", what, cudaGetErrorString(status));
    exit(EXIT_WRONG);
}

#ifdef SIMT_CPU
struct counters {
    long long requests, sectors, wavefronts, conflicts;
};

static void print_counter(const char *name, const char *counter, long long value) {
    printf("%s,%s,%lld\n", name, counter, value);
}

static void report(const char *name) {
    struct simt_launch_stats stats;
    if (simt_take_launch_stats(&stats, 1) != 1) {
        fprintf(stderr, "calibration: '%s' is not one launch; launched() must follow each of them\n", name);
        exit(EXIT_WRONG);
    }
    size_t length = strlen(stats.kernel);
    if (strncmp(name, stats.kernel, length) != 0 || (name[length] != '_' && name[length] != '\0')) {
        fprintf(stderr, "calibration: '%s' must start with the name of its kernel, '%s'\n", name,
                stats.kernel);
        exit(EXIT_WRONG);
    }
    enum { LOAD, STORE, ATOMIC, KINDS };
    struct counters sum[2][KINDS] = {0};  // of global and of shared memory
    for (int i = 0; i < stats.line_count; i++) {
        const struct simt_line *line = &stats.lines[i];
        struct counters *it = &sum[line->shared][line->atomic ? ATOMIC : line->write ? STORE : LOAD];
        it->requests += (long long)line->requests;
        it->sectors += (long long)line->sectors;
        it->wavefronts += (long long)line->wavefronts;
        if (line->shared) it->conflicts += (long long)(line->wavefronts - line->ideal);
    }
    print_counter(name, "global_load_requests", sum[0][LOAD].requests);
    print_counter(name, "global_load_sectors", sum[0][LOAD].sectors);
    print_counter(name, "global_store_requests", sum[0][STORE].requests);
    print_counter(name, "global_store_sectors", sum[0][STORE].sectors);
    print_counter(name, "shared_load_requests", sum[1][LOAD].requests);
    print_counter(name, "shared_load_wavefronts", sum[1][LOAD].wavefronts);
    print_counter(name, "shared_load_conflicts", sum[1][LOAD].conflicts);
    print_counter(name, "shared_store_requests", sum[1][STORE].requests);
    print_counter(name, "shared_store_wavefronts", sum[1][STORE].wavefronts);
    print_counter(name, "shared_store_conflicts", sum[1][STORE].conflicts);
    // As in h200.csv, only where there are any.
    if (sum[0][ATOMIC].requests) print_counter(name, "global_atomic_requests", sum[0][ATOMIC].requests);
    if (sum[0][ATOMIC].requests) print_counter(name, "global_atomic_sectors", sum[0][ATOMIC].sectors);
    if (sum[1][ATOMIC].requests) print_counter(name, "shared_atomic_requests", sum[1][ATOMIC].requests);
    if (sum[1][ATOMIC].requests) print_counter(name, "shared_atomic_wavefronts", sum[1][ATOMIC].wavefronts);
}
#else
static void report(const char *name) { printf("%s\n", name); }
#endif

void launched(const char *format, ...) {
    char name[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    require(cudaGetLastError(), name);
    require(cudaDeviceSynchronize(), name);
    report(name);
}

// Copies `bytes` of host memory to new device memory. Not cudaMemset: that may be a kernel to a profiler.
static void *on_device(const void *host, size_t bytes) {
    void *memory = NULL;
    require(cudaMalloc(&memory, bytes), "cudaMalloc");
    require(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return memory;
}

static struct buffers make_buffers(void) {
    static float ones[BUFFER_FLOATS];
    static int trips[INDICES], permutation[INDICES], sums[INDICES];
    for (int i = 0; i < BUFFER_FLOATS; i++) ones[i] = 1.0f;
    unsigned state = 7;  // the same numbers in every run
    for (int i = 0; i < INDICES; i++) {
        state = state * 1664525u + 1013904223u;
        trips[i] = 1 + (int)(state >> 16) % 7;
        int other = (int)((state >> 8) % (unsigned)(i + 1));
        permutation[i] = permutation[other];
        permutation[other] = i;
    }
    struct buffers b;
    b.in = on_device(ones, sizeof ones);
    b.out = on_device(ones, sizeof ones);
    b.trips = on_device(trips, sizeof trips);
    b.permutation = on_device(permutation, sizeof permutation);
    b.sums = on_device(sums, sizeof sums);
    return b;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        fprintf(stderr, "calibration: unknown argument '%s': it takes none\n", argv[1]);
        return EXIT_USAGE;
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "calibration: skipped: there is no GPU here; the cpu backend needs none\n");
        return EXIT_SKIPPED;
    }
#ifdef SIMT_CPU
    simt_set_profiling(1);
    printf("kernel,counter,value\n");
#endif
    struct buffers b = make_buffers();
    run_global_memory(b);
    run_shared_memory(b);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "calibration: standard output cannot be written\n");
        return EXIT_WRONG;
    }
    return 0;
}
