#include "replay.h"

#include <math.h>
#include <string.h>

enum { MAX_COPIES = 256, LEAST_LAUNCHES = ON_CPU ? 1 : 24, REPETITIONS = ON_CPU ? 3 : 30 };

double kv_bytes(const struct attention *a) {
    double rows = 0;
    for (int n = 0; n < (a->sequences ? a->sequences : 1); ++n) {
        const struct sequence s = sequence_at(a, n);
        if (s.seqlen_q > 0) rows += s.seqlen_k;
    }
    return 2 * rows * a->batch * a->kv_heads * a->head_dim * dtype_bytes(a->dtype);
}

// K and V once more; the first copies are those of the case itself.
struct copies {
    void *k[MAX_COPIES], *v[MAX_COPIES];
    int count;
};

static void *copy_of(const struct buffer *buffer) {
    void *data = NULL;
    if (cudaMalloc(&data, buffer->bytes ? buffer->bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    CUDA_CHECK(cudaMemcpy(data, buffer->data, buffer->bytes, cudaMemcpyDeviceToDevice));
    return data;
}

static void free_copies(struct copies *copies) {
    for (int i = 1; i <= copies->count && i < MAX_COPIES; ++i) {
        if (copies->k[i]) CUDA_CHECK(cudaFree(copies->k[i]));
        if (copies->v[i]) CUDA_CHECK(cudaFree(copies->v[i]));
    }
}

static int make_copies(const struct device_case *c, struct copies *copies, struct message *why) {
    const struct buffer *k = &c->buffer[TENSOR_K], *v = &c->buffer[TENSOR_V];
    double bytes = (double)(k->bytes + v->bytes), wanted = ON_CPU ? 0 : 4 * (double)c->device->l2_bytes;
    double count = bytes > 0 ? fmin(fmax(ceil(wanted / bytes), 2), MAX_COPIES) : 1;
    memset(copies, 0, sizeof *copies);
    copies->k[0] = k->data, copies->v[0] = v->data;
    for (copies->count = 1; copies->count < (int)count; ++copies->count) {
        copies->k[copies->count] = copy_of(k);
        if (copies->k[copies->count]) copies->v[copies->count] = copy_of(v);
        if (copies->v[copies->count]) continue;
        if (copies->count * bytes >= wanted / 2)
            break;  // enough to have left the cache before their next turn
        char need[32];
        fail(why, "%d copies of K and V, %s each, do not fit into the device's memory", (int)count,
             bytes_text(bytes, need));
        free_copies(copies);
        return -1;
    }
    return 0;
}

void replay_enqueue(const struct kernel *kernel, struct attention a, int is_first) {
    if (kernel->plan && is_first) kernel->plan(a);
    CUDA_CHECK(cudaGetLastError());
    a.planned = kernel->plan != NULL;
    kernel->launch(a);
    CUDA_CHECK(cudaGetLastError());
}

cudaGraphExec_t replay_end_capture(cudaStream_t stream, size_t *nodes) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    if (nodes) CUDA_CHECK(cudaGraphGetNodes(graph, NULL, nodes));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return exec;
}

// A graph of `launches` launches, that take the copies in turn.
static cudaGraphExec_t capture(const struct device_case *c, const struct kernel *kernel,
                               const struct copies *copies, int launches, cudaStream_t stream) {
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < launches; ++i) {
        struct attention a = c->on_device;
        a.k.data = copies->k[i % copies->count], a.v.data = copies->v[i % copies->count];
        a.stream = stream;
        replay_enqueue(kernel, a, i == 0);
    }
    return replay_end_capture(stream, NULL);
}

int replay_measure(const struct device_case *c, const struct kernel *kernel, struct timing *timing,
                   struct message *why) {
    struct copies copies;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float ms[REPETITIONS];
    if (make_copies(c, &copies, why) != 0) return -1;
    int launches = (LEAST_LAUNCHES + copies.count - 1) / copies.count * copies.count;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    CUDA_CHECK(cudaDeviceSynchronize());  // the copies are there, and the case's inputs
    cudaGraphExec_t exec = capture(c, kernel, &copies, launches, stream);
    for (int i = ON_CPU ? 0 : -3; i < REPETITIONS; ++i) {
        CUDA_CHECK(cudaEventRecord(begin, stream));
        CUDA_CHECK(cudaGraphLaunch(exec, stream));
        CUDA_CHECK(cudaEventRecord(end, stream));
        CUDA_CHECK(cudaStreamSynchronize(stream));
        if (i >= 0) CUDA_CHECK(cudaEventElapsedTime(&ms[i], begin, end));
    }
    for (int i = 0; i < REPETITIONS; ++i) ms[i] /= (float)launches;
    *timing = timer_summary(ms, REPETITIONS);
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    CUDA_CHECK(cudaStreamDestroy(stream));
    free_copies(&copies);
    return 0;
}
