// calibration.h - what the parts of the program calibration share. C11 and CUDA C.
#ifndef CALIBRATION_H
#define CALIBRATION_H

#ifdef __cplusplus
extern "C" {
#endif

// The side of the square matrices of the larger kernels, whose elements are BUFFER_FLOATS.
#define MATRIX_SIDE 64
#define BUFFER_FLOATS (4 * MATRIX_SIDE * MATRIX_SIDE)
#define INDICES 1024

// Device memory, all of it written; each starts on a 256-byte boundary.
struct buffers {
    float *in, *out;   // [BUFFER_FLOATS]
    int *trips;        // [INDICES], each 1 ... 7
    int *permutation;  // [INDICES], of 0 ... INDICES - 1
    int *sums;         // [INDICES], for atomics
};

// Launch their kernels one by one, each followed by launched().
void run_global_memory(struct buffers b);
void run_shared_memory(struct buffers b);
void run_matrix(struct buffers b);
void run_copies(struct buffers b);

// To be called after each launch, with a name for it that starts with the kernel's and a '_', or is the
// kernel's: refresh.sh, which sees only the names of kernels, relies on that. Ends the program if the launch
// failed. Prints the launch's counters (cpu backend) or its name (gpu backend).
__attribute__((format(printf, 1, 2))) void launched(const char *format, ...);

#ifdef __cplusplus
}
#endif

#endif
