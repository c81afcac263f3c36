// calibration.c - runs every kernel of a group of the calibration once:
//
//     calibration memory    plain loads, stores and atomics (global_memory.cu, shared_memory.cu)
//     calibration copies    ldmatrix, stmatrix, wgmma, cp.async, bulk copies, TMA (matrix.cu, copies.cu;
//     sm_90)
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

static int copies;  // whether it is that group

#ifdef SIMT_CPU
struct counters {
    long long requests, sectors, fetched, wavefronts, conflicts;
};

static void print_counter(const char *name, const char *counter, long long value) {
    printf("%s,%s,%lld\n", name, counter, value);
}

// Two counters of a kind of instruction, if there are any requests.
static void print_some(const char *name, const char *kind, long long requests, const char *what,
                       long long value) {
    char counter[40];
    if (!requests) return;
    snprintf(counter, sizeof counter, "%s_requests", kind);
    print_counter(name, counter, requests);
    snprintf(counter, sizeof counter, "%s_%s", kind, what);
    print_counter(name, counter, value);
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
    struct counters sum[SIMT_PATH_BULK + 1][2][KINDS] = {0};  // of global and of shared memory
    for (int i = 0; i < stats.line_count; i++) {
        const struct simt_line *line = &stats.lines[i];
        struct counters *it = &sum[line->path][line->shared][line->atomic  ? ATOMIC
                                                             : line->write ? STORE
                                                                           : LOAD];
        it->requests += (long long)line->requests;
        it->sectors += (long long)line->sectors;
        it->fetched += (long long)line->fetched;
        it->wavefronts += (long long)line->wavefronts;
        if (line->shared) it->conflicts += (long long)(line->wavefronts - line->ideal);
    }
    // Nsight Compute adds cp.async to the loads from global memory, and each of them three times to the
    // requests of loads from shared memory; wavefronts of ldmatrix and stmatrix to those of loads and stores,
    // but not their requests.
    struct counters(*plain)[KINDS] = sum[SIMT_PATH_PLAIN], (*matrix)[KINDS] = sum[SIMT_PATH_MATRIX],
           (*cp_async)[KINDS] = sum[SIMT_PATH_CP_ASYNC], (*bulk)[KINDS] = sum[SIMT_PATH_BULK];
    const struct counters *wgmma = &sum[SIMT_PATH_WGMMA][1][LOAD];
    const struct counters *from = &cp_async[0][LOAD], *to = &cp_async[1][STORE];
    const struct counters *load = &matrix[1][LOAD], *store = &matrix[1][STORE];
    print_counter(name, "global_load_requests", plain[0][LOAD].requests + from->requests);
    print_counter(name, "global_load_sectors", plain[0][LOAD].sectors + from->sectors);
    print_counter(name, "global_store_requests", plain[0][STORE].requests);
    print_counter(name, "global_store_sectors", plain[0][STORE].sectors);
    print_counter(name, "shared_load_requests", plain[1][LOAD].requests + 3 * to->requests);
    print_counter(name, "shared_load_wavefronts", plain[1][LOAD].wavefronts + load->wavefronts);
    print_counter(name, "shared_load_conflicts", plain[1][LOAD].conflicts + load->conflicts);
    print_counter(name, "shared_store_requests", plain[1][STORE].requests);
    print_counter(name, "shared_store_wavefronts", plain[1][STORE].wavefronts + store->wavefronts);
    print_counter(name, "shared_store_conflicts", plain[1][STORE].conflicts + store->conflicts);
    // As in the CSVs of the GPU, these only of kernels that have such an instruction.
    print_some(name, "global_atomic", plain[0][ATOMIC].requests, "sectors", plain[0][ATOMIC].sectors);
    print_some(name, "shared_atomic", plain[1][ATOMIC].requests, "wavefronts", plain[1][ATOMIC].wavefronts);
    print_some(name, "ldmatrix", load->requests, "wavefronts", load->wavefronts);
    if (load->requests) print_counter(name, "ldmatrix_conflicts", load->conflicts);
    print_some(name, "stmatrix", store->requests, "wavefronts", store->wavefronts);
    if (store->requests) print_counter(name, "stmatrix_conflicts", store->conflicts);
    print_some(name, "wgmma", wgmma->requests, "wavefronts", wgmma->wavefronts);
    print_some(name, "cp_async", to->requests, "sectors", from->fetched);
    if (to->requests) print_counter(name, "cp_async_wavefronts", to->wavefronts);
    if (to->requests) print_counter(name, "cp_async_conflicts", to->conflicts);
    print_some(name, "bulk_load", bulk[0][LOAD].requests, "sectors", bulk[0][LOAD].sectors);
    print_some(name, "bulk_store", bulk[0][STORE].requests, "sectors", bulk[0][STORE].sectors);
    print_some(name, "bulk_add", bulk[0][ATOMIC].requests, "sectors", bulk[0][ATOMIC].sectors);
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
    if (argc != 2 || (strcmp(argv[1], "memory") != 0 && strcmp(argv[1], "copies") != 0)) {
        fprintf(stderr, "usage: calibration memory|copies\n");
        return EXIT_USAGE;
    }
    copies = argv[1][0] == 'c';
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "calibration: skipped: there is no GPU here; the cpu backend needs none\n");
        return EXIT_SKIPPED;
    }
    int major = 0;
    require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
    if (copies && major < 9) {
        fprintf(stderr, "calibration: skipped: this GPU is older than sm_90\n");
        return EXIT_SKIPPED;
    }
#ifdef SIMT_CPU
    simt_set_profiling(1);
    printf("kernel,counter,value\n");
#endif
    struct buffers b = make_buffers();
    if (copies) {
        run_matrix(b);
        run_copies(b);
    } else {
        run_global_memory(b);
        run_shared_memory(b);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "calibration: standard output cannot be written\n");
        return EXIT_WRONG;
    }
    return 0;
}
