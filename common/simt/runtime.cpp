// runtime.cpp - the rest of the CUDA runtime: errors, the device's description, streams, events.
#include <chrono>
#include <cstring>

#include "internal.h"

namespace simt {

static std::atomic<cudaError_t> last_error{
    cudaSuccess};  // of a call or a refused launch; cudaGetLastError clears it
static std::atomic<cudaError_t> broken_error{cudaSuccess};  // of a kernel that was stopped; stays

void set_error(cudaError_t error, bool sticky) { (sticky ? broken_error : last_error) = error; }

cudaError_t sticky_error() { return broken_error; }

long long clock_ticks() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction", "an illegal instruction was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

unsigned long long global_timer() { return (unsigned long long)clock_ticks(); }

}  // namespace simt

using namespace simt;

// Events: everything has already happened when a call returns. (Streams: graph.cpp.)
struct simt_event {
    std::chrono::steady_clock::time_point time;
    bool recorded = false;
};

// A call on a context that a kernel has broken returns that kernel's error, whatever the call.
#define RETURN_IF_BROKEN                                                                                     \
    if (sticky_error() != cudaSuccess) return sticky_error()

extern "C" {

const char *cudaGetErrorName(cudaError_t error) {
    for (const auto &it : errors)
        if (it.error == error) return it.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    for (const auto &it : errors)
        if (it.error == error) return it.text;
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void) {
    RETURN_IF_BROKEN;
    return last_error.exchange(cudaSuccess);
}

cudaError_t cudaPeekAtLastError(void) {
    RETURN_IF_BROKEN;
    return last_error;
}

cudaError_t cudaDeviceSynchronize(void) {
    RETURN_IF_BROKEN;
    return not_while_capturing();
}

// The one way out of a broken state here; allocations stay.
cudaError_t cudaDeviceReset(void) {
    last_error = cudaSuccess;
    broken_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *it, int device) {
    if (device != 0) return cudaErrorInvalidDevice;
    memset(it, 0, sizeof *it);
    strcpy(it->name, "CPU, simulating an H200 (sm_90)");
    size_t available = 0;
    cudaMemGetInfo(&available, &it->totalGlobalMem);
    it->sharedMemPerBlock = shared_default_bytes;
    it->sharedMemPerBlockOptin = shared_optin_bytes;
    it->sharedMemPerMultiprocessor = shared_optin_bytes + 1024;
    it->regsPerBlock = 65536;
    it->warpSize = warp_size;
    it->maxThreadsPerBlock = max_threads_per_block;
    it->maxThreadsDim[0] = it->maxThreadsDim[1] = max_threads_per_block;
    it->maxThreadsDim[2] = 64;
    it->maxGridSize[0] = 0x7fffffff;
    it->maxGridSize[1] = it->maxGridSize[2] = 65535;
    it->major = 9;
    it->minor = 0;
    it->multiProcessorCount = multiprocessors;
    it->maxThreadsPerMultiProcessor = 2048;
    it->l2CacheSize = 60 * 1024 * 1024;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    struct cudaDeviceProp it;
    cudaError_t error = cudaGetDeviceProperties(&it, device);
    if (error != cudaSuccess) return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = it.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = int(it.sharedMemPerBlock);
        break;
    case cudaDevAttrWarpSize:
        *value = it.warpSize;
        break;
    case cudaDevAttrClockRate:
        *value = 0;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = it.multiProcessorCount;
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 0;
        break;
    case cudaDevAttrL2CacheSize:
        *value = it.l2CacheSize;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = it.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = it.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = it.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = int(it.sharedMemPerMultiprocessor);
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = int(it.sharedMemPerBlockOptin);
        break;
    default:
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = new simt_event;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    RETURN_IF_BROKEN;
    auto record = [event] {
        event->time = std::chrono::steady_clock::now();
        event->recorded = true;
        return cudaSuccess;
    };
    return do_or_keep(stream, record);
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaDeviceSynchronize(); }

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (!start->recorded || !end->recorded) return cudaErrorInvalidResourceHandle;
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return cudaSuccess;
}

}  // extern "C"
