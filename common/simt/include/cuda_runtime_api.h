// cuda_runtime_api.h - the part of the CUDA runtime that the labs and their host code use, on the CPU. Plain
// C.
//
// Names, values and meanings are CUDA's (CUDA Runtime API reference; error numbers as in driver_types.h).
// Everything is synchronous: a launch returns when the grid is done, so streams are always empty and events
// hold the wall clock. An error of a running kernel is sticky as on the GPU: every later call returns it.
// What CUDA does not have is at the end and starts with simt_.
#ifndef SIMT_CUDA_RUNTIME_API_H
#define SIMT_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalState = 401,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorUnknown = 999
} cudaError_t;

typedef struct simt_stream *cudaStream_t;
typedef struct simt_event *cudaEvent_t;
typedef struct simt_graph *cudaGraph_t;
typedef struct simt_graph_exec *cudaGraphExec_t;
typedef struct simt_graph_node *cudaGraphNode_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

// How a kernel is launched besides; of all attributes these two ids are known, and their values as well.
typedef enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6
} cudaLaunchAttributeID;
typedef union cudaLaunchAttributeValue {
    char pad[64];
    int programmaticStreamSerializationAllowed;
} cudaLaunchAttributeValue;
typedef struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
} cudaLaunchAttribute;

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};

enum { cudaEnableDefault = 0, cudaEnableLegacyStream = 1, cudaEnablePerThreadDefaultStream = 2 };

enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, l2CacheSize;
};
#ifndef __cplusplus
typedef struct cudaDeviceProp cudaDeviceProp;
#endif

// Device and errors. cudaGetLastError returns the last error and clears it unless it is sticky.
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

// Memory. Device memory is host memory that only kernels and these functions should touch; each allocation
// starts on a 256-byte boundary and has red zones on both sides.
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMallocHost(void **pointer, size_t bytes);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemset(void *pointer, int value, size_t bytes);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

// Graphs by capture of one stream (common/simt/graph.cpp): launches, memsets and copies between
// BeginCapture and EndCapture are kept and not done; cudaGraphLaunch does them, in their order. A capture by
// several streams through events is not had here.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end);

// Driver functions by name. There is one, "cuTensorMapEncodeTiled" (cuda.h, cudaTypedefs.h); for any other
// name *function is null and *result (may be null) says why.
cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result);
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result);

// Of a kernel, for which code it was compiled (10 * major + minor): for the device that there is.
struct cudaFuncAttributes {
    size_t maxDynamicSharedSizeBytes;
    int ptxVersion, binaryVersion;
};

// C++ callers get these with the default arguments and templates of CUDA's own header (cuda_runtime.h).
#ifndef __cplusplus
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel);
#endif

// ---- Not in CUDA ----

// Marks device memory as allocated but never written, whatever it holds: a kernel that reads it is stopped.
void simt_mark_unwritten(void *pointer, size_t bytes);
// Marks device memory as a guard band: a kernel that touches it is stopped (out of bounds).
void simt_mark_guard(void *pointer, size_t bytes);
// Gives device memory a name for messages: "2 bytes past the end of K". The text must outlive the allocation.
void simt_name_memory(const void *pointer, size_t bytes, const char *name);
// Thread schedule of the following launches: 0 lowest thread first, 1 highest first, any other value a random
// order with that seed.
void simt_set_schedule(uint64_t seed);

// Whether races are looked for in the following launches (slower); each launch prints what it found.
// simt_take_races returns how many pairs of source lines raced since the last call.
void simt_set_sanitizing(int on);
int simt_take_races(void);
// What raced: two accesses in the source, as "FILE:LINE", and how. simt_take_race_lines fills up to max of
// them, of those that simt_take_races counts the first hundred, returns how many, and forgets all of them.
struct simt_race {
    char what[128], first[64], second[64];
};
int simt_take_race_lines(struct simt_race *races, int max);
// Whether the following launches also count requests, sectors and wavefronts, line by line (slower).
void simt_set_profiling(int on);
// Whether the following launches have a clock for kernels that trace themselves (ptx/time.h, sm_clock).
void simt_set_tracing(int on);

// By which instructions: those that every thread has; ldmatrix and stmatrix; cp.async, which reads global and
// writes shared memory; wgmma, its operands; TMA and bulk copies (their global side only).
enum { SIMT_PATH_PLAIN, SIMT_PATH_MATRIX, SIMT_PATH_CP_ASYNC, SIMT_PATH_WGMMA, SIMT_PATH_BULK };

// One load, store or atomic in a kernel's source and what it did in one launch, as Nsight Compute counts: a
// request is a warp's, a sector 32 bytes of global memory, a wavefront one pass over the 32 banks of shared
// memory. `ideal`: the sectors that the lanes would take side by side; the wavefronts without bank conflicts.
struct simt_line {
    const char *position;  // file:line
    int bytes;             // of one lane's access
    int write, shared;
    unsigned long long accesses, requests, sectors, wavefronts, ideal;
    int atomic;  // then `write` is 1 too; Nsight Compute counts it as neither load nor store but RED or ATOM
    int path;    // SIMT_PATH_...
    // Sectors that come from L2, if L1 holds none. A cp.async of 16 bytes takes more of these than Nsight
    // Compute counts sectors of L1 if its rows do not lie alike in both memories
    // (common/simt/wavefronts.cpp).
    unsigned long long fetched;
};

#define SIMT_NOT_COUNTED (~0ull)

// What one launch did. Bytes count each thread's plain accesses; file and line are those of the launch.
struct simt_launch_stats {
    const char *kernel_file;
    int line;
    unsigned long long blocks, threads;
    unsigned long long global_read_bytes, global_write_bytes, shared_read_bytes, shared_write_bytes;
    unsigned long long context_switches;
    // Work by kind. fp32_flops are those of the threads' own arithmetic (common/simt/flops.cpp says what
    // counts), tensor_flops those of tensor cores, exp_count the evaluations of expf and its like; the first
    // and the last only with simt_set_profiling, and SIMT_NOT_COUNTED if objdump is missing. barriers is how
    // many times a warp passed __syncthreads or bar.sync.
    unsigned long long fp32_flops, tensor_flops, exp_count, barriers;
    // Bytes of global memory that asynchronous copies moved: cp.async, and TMA with the bulk copies.
    unsigned long long cp_async_bytes, tma_read_bytes, tma_write_bytes;
    double seconds;
    const char *kernel;  // its name
    const struct simt_line
        *lines;  // with simt_set_profiling: most sectors and wavefronts above the ideal first
    int line_count;
};
// Copies the figures of the launches since the last call, oldest first, at most `max`; returns how many there
// were (older ones than the newest 1024 are dropped). What the pointers in them point to lives until the next
// call.
int simt_take_launch_stats(struct simt_launch_stats *out, int max);

#ifdef __cplusplus
}
#endif

#endif
