// core_graph.cu - streams and graphs, on both backends: what a capture keeps is done when the graph is
// launched, each time with the arguments of the capture; and what is not allowed meanwhile is refused with
// CUDA's error.
#include <cuda_runtime.h>

#include "check.h"

#define OK(call) CHECK((call) == cudaSuccess)

// An argument that is larger than a register and aligned to more than malloc gives.
struct alignas(64) amounts {
    int first, second;
};

__global__ void add(int *sum, struct amounts amount) { *sum += amount.first + amount.second; }
__global__ void twice(int *sum) { *sum *= 2; }

static int value_of(const int *device) {
    int host = -1;
    OK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    return host;
}

static void check_replay(unsigned flags) {
    int *sum, *copy;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    OK(cudaMalloc(&sum, sizeof *sum));
    OK(cudaMalloc(&copy, sizeof *copy));
    OK(cudaMemset(sum, 0, sizeof *sum));
    OK(cudaMemset(copy, 0, sizeof *copy));
    OK(cudaStreamCreateWithFlags(&stream, flags));
    OK(cudaStreamIsCapturing(stream, &status));
    CHECK(status == cudaStreamCaptureStatusNone);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaStreamIsCapturing(stream, &status));
    CHECK(status == cudaStreamCaptureStatusActive);
    for (int i = 1; i <= 2; i++) {
        struct amounts amount = {i, 10 * i};  // ends with the block: the graph has a copy
        add<<<1, 1, 0, stream>>>(sum, amount);
    }
    twice<<<1, 1, 0, stream>>>(sum);
    OK(cudaGetLastError());
    OK(cudaMemcpyAsync(copy, sum, sizeof *copy, cudaMemcpyDeviceToDevice, stream));
    OK(cudaMemsetAsync(sum, 0, 1, stream));  // the lowest byte
    OK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 5);
    CHECK(value_of(sum) == 0 && value_of(copy) == 0);  // nothing was done yet
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));  // the executable graph does not need it
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(value_of(copy) == 66 && value_of(sum) == 0);  // (11 + 22) * 2
    OK(cudaMemset(sum, 1, sizeof *sum));                // 0x01010101
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    int expected = 0x01010101;
    for (int i = 0, before = expected; i < 3; i++) {
        expected = (before + 33) * 2;
        before = expected & ~0xff;
    }
    CHECK(value_of(copy) == expected && value_of(sum) == (expected & ~0xff));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(sum));
    OK(cudaFree(copy));
}

// The error of a call, taken from where the next call would find it.
static cudaError_t taken(cudaError_t status) {
    cudaGetLastError();
    return status;
}

static void check_refusals(void) {
    int *sum;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    OK(cudaMalloc(&sum, sizeof *sum));
    OK(cudaMemset(sum, 0, sizeof *sum));
    OK(cudaStreamCreate(&stream));
    CHECK(taken(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeRelaxed)) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK(taken(cudaStreamEndCapture(stream, &graph)) == cudaErrorIllegalState);
    // A launch on the legacy default stream would wait for the captured one.
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(taken(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed)) == cudaErrorIllegalState);
    twice<<<1, 1>>>(sum);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureImplicit);
    CHECK(taken(cudaStreamEndCapture(stream, &graph)) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == NULL);
    // So would a wait for what is not to be done now.
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    twice<<<1, 1, 0, stream>>>(sum);
    OK(cudaGetLastError());
    CHECK(taken(cudaStreamSynchronize(stream)) == cudaErrorStreamCaptureUnsupported);
    CHECK(taken(cudaStreamEndCapture(stream, &graph)) == cudaErrorStreamCaptureInvalidated);
    // After that all is as it was.
    add<<<1, 1, 0, stream>>>(sum, amounts{3, 4});
    OK(cudaGetLastError());
    OK(cudaStreamSynchronize(stream));
    CHECK(value_of(sum) == 7);
    // A stream that does not wait for the legacy one may be captured beside it.
    cudaStream_t apart;
    OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(apart, cudaStreamCaptureModeRelaxed));
    twice<<<1, 1, 0, apart>>>(sum);
    add<<<1, 1>>>(sum, amounts{1, 0});
    OK(cudaGetLastError());
    OK(cudaStreamEndCapture(apart, &graph));
    CHECK(value_of(sum) == 8);
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(apart));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(sum));
}

int main(void) {
    check_replay(cudaStreamDefault);
    check_replay(cudaStreamNonBlocking);
    check_refusals();
    return check_done();
}
