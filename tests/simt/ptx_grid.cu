// ptx_grid.cu - ptx/grid.h and cudaLaunchKernelEx on both backends: launches that may begin early, each of
// which needs all that the one before has written.
#include <cuda_runtime.h>

#include "check.h"
#include "common/ptx.h"

constexpr int BLOCKS = 300, THREADS = 64, LAUNCHES = 8, COUNT = BLOCKS * THREADS;

// Thread i writes `from` of the thread that is as far from the end, and 1 more: early or late, by blocks.
__global__ void __launch_bounds__(THREADS) mirror(const int *from, int *to, int one) {
    griddepcontrol_launch_dependents();
    int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    griddepcontrol_wait();  // `from` is written, and nobody still reads `to`
    to[i] = from[COUNT - 1 - i] + one;
}

static cudaError_t launch(const int *from, int *to, cudaStream_t stream, int allowed) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeIgnore;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = allowed;
    cudaLaunchConfig_t config = {};
    config.gridDim = BLOCKS;
    config.blockDim = THREADS;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, mirror, from, to, 1);
}

// data holds i at i. `times` launches, to and fro, an even number.
static void check_data(int *data, int times) {
    static int host[COUNT];
    CHECK(cudaMemcpy(host, data, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += host[i] != i + times;
    CHECK(wrong == 0);
}

int main(void) {
    static int host[COUNT];
    for (int i = 0; i < COUNT; i++) host[i] = i;
    int *data, *other, capability = 0;
    CHECK(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
    int allowed = capability >= 9;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMalloc(&data, sizeof host) == cudaSuccess && cudaMalloc(&other, sizeof host) == cudaSuccess);
    CHECK(cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaStreamCreate(&stream) == cudaSuccess);
    for (int i = 0; i < LAUNCHES; i++) {
        CHECK(launch(data, other, stream, allowed) == cudaSuccess);
        CHECK(launch(other, data, stream, allowed) == cudaSuccess);
    }
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    check_data(data, 2 * LAUNCHES);

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    for (int i = 0; i < LAUNCHES; i++) {
        CHECK(launch(data, other, stream, allowed) == cudaSuccess);
        CHECK(launch(other, data, stream, allowed) == cudaSuccess);
    }
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    check_data(data, 8 * LAUNCHES);

    cudaLaunchConfig_t empty = {};  // refused, and not to be met again
    empty.gridDim = dim3(0);
    CHECK(cudaLaunchKernelEx(&empty, mirror, (const int *)data, other, 1) != cudaSuccess);
    CHECK(cudaGetLastError() != cudaSuccess && cudaGetLastError() == cudaSuccess);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaFree(data) == cudaSuccess && cudaFree(other) == cudaSuccess);
    return check_done();
}
