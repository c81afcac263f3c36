// graph.cpp - streams, and graphs made by capturing one.
//
// Here all work is done when the call that enqueues it returns, so a stream has no other state than whether
// it is being captured. What a capture takes is kept in order, as one stream would do it.
#include "internal.h"

using Step = std::function<cudaError_t()>;

struct simt_graph {
    std::vector<Step> steps;
};
struct simt_graph_exec {
    std::vector<Step> steps;
};
struct simt_stream {
    bool blocking = true;         // it waits for the legacy default stream, and that one for it
    simt_graph *graph = nullptr;  // of the capture that has begun
    bool invalid = false;         // an error has ended what is kept, until cudaStreamEndCapture
};

namespace simt {

static std::vector<simt_stream *> capturing;

static cudaError_t refused(cudaError_t error) {
    set_error(error, false);
    return error;
}

static bool waits_for_a_capture(cudaStream_t stream) {
    if (stream) return false;
    for (const simt_stream *it : capturing)
        if (it->blocking) return true;
    return false;
}

bool is_captured(cudaStream_t stream) { return waits_for_a_capture(stream) || (stream && stream->graph); }

cudaError_t do_or_keep(cudaStream_t stream, Step step) {
    if (waits_for_a_capture(stream)) {
        for (simt_stream *it : capturing)
            if (it->blocking) it->invalid = true;
        return refused(cudaErrorStreamCaptureImplicit);
    }
    if (!stream || !stream->graph) return step();
    if (stream->invalid) return refused(cudaErrorStreamCaptureInvalidated);
    stream->graph->steps.push_back(std::move(step));
    return cudaSuccess;
}

cudaError_t not_while_capturing() {
    if (capturing.empty()) return cudaSuccess;
    for (simt_stream *it : capturing) it->invalid = true;
    return refused(cudaErrorStreamCaptureUnsupported);
}

}  // namespace simt

using namespace simt;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    if (!stream || flags > cudaStreamNonBlocking) return refused(cudaErrorInvalidValue);
    *stream = new simt_stream;
    (*stream)->blocking = flags == cudaStreamDefault;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (!stream) return refused(cudaErrorInvalidResourceHandle);
    if (stream->graph) cudaStreamEndCapture(stream, nullptr);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (sticky_error() != cudaSuccess) return sticky_error();
    if (!is_captured(stream)) return cudaSuccess;
    return not_while_capturing();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode) {
    if (sticky_error() != cudaSuccess) return sticky_error();
    if (!stream) return refused(cudaErrorStreamCaptureUnsupported);
    if (stream->graph) return refused(cudaErrorIllegalState);
    stream->graph = new simt_graph;
    stream->invalid = false;
    capturing.push_back(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    if (graph) *graph = nullptr;
    if (!stream || !stream->graph) return refused(cudaErrorIllegalState);
    for (size_t i = 0; i < capturing.size(); i++)
        if (capturing[i] == stream) capturing.erase(capturing.begin() + long(i--));
    std::unique_ptr<simt_graph> kept(stream->graph);
    stream->graph = nullptr;
    if (stream->invalid) return refused(cudaErrorStreamCaptureInvalidated);
    if (graph) *graph = kept.release();
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    if (waits_for_a_capture(stream)) return refused(cudaErrorStreamCaptureImplicit);
    *status = !stream || !stream->graph ? cudaStreamCaptureStatusNone
              : stream->invalid         ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

// Their number; the nodes themselves are not to be had here.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    if (!graph || !count || nodes) return refused(cudaErrorInvalidValue);
    *count = graph->steps.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    if (!exec || !graph || flags) return refused(cudaErrorInvalidValue);
    *exec = new simt_graph_exec{graph->steps};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (sticky_error() != cudaSuccess) return sticky_error();
    if (!exec) return refused(cudaErrorInvalidValue);
    for (const Step &step : exec->steps) {
        cudaError_t error = do_or_keep(stream, step);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    if (!exec) return refused(cudaErrorInvalidValue);
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (!graph) return refused(cudaErrorInvalidValue);
    delete graph;
    return cudaSuccess;
}

}  // extern "C"
