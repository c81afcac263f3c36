#include "case.h"

#include <string.h>

#include "preflight.h"

struct buffer *case_buffer(struct device_case *c, int i) {
    struct buffer *const buffers[BUFFERS] = {&c->q, &c->k,   &c->v,        &c->cu_seqlens_q, &c->cu_seqlens_k,
                                             &c->o, &c->lse, &c->workspace};
    return buffers[i];
}
const void *case_input(const struct device_case *c, int i) {
    const struct attention *host = &c->problem.host;
    const void *const inputs[INPUT_BUFFERS] = {host->q.data, host->k.data, host->v.data, host->cu_seqlens_q,
                                               host->cu_seqlens_k};
    return inputs[i];
}

void case_free(struct device_case *c) {
    for (int i = 0; i < BUFFERS; ++i) buffer_free(case_buffer(c, i));
    problem_free(&c->problem);
}

static size_t cu_seqlens_bytes(const struct attention *a) {
    return ((size_t)a->sequences + 1) * sizeof *a->cu_seqlens_q;
}
static size_t lse_bytes(const struct attention *a) { return (size_t)query_count(a) * sizeof(float); }

int case_make(struct device_case *c, const struct options *options, const struct device *device,
              struct message *why) {
    memset(c, 0, sizeof *c);
    c->options = options, c->device = device;
    struct problem *p = &c->problem;
    if (problem_make(options, p, why) != 0) return -1;
    if (preflight_case(&p->host, &c->left, why) != 0) {
        problem_free(p);
        return -1;
    }
    if (buffer_make(&c->q, p->bytes[0], "Q", why) != 0 || buffer_make(&c->k, p->bytes[1], "K", why) != 0 ||
        buffer_make(&c->v, p->bytes[2], "V", why) != 0 || buffer_make(&c->o, p->bytes[3], "O", why) != 0 ||
        buffer_make(&c->lse, lse_bytes(&p->host), "LSE", why) != 0 ||
        (p->host.sequences > 0 &&
         (buffer_make(&c->cu_seqlens_q, cu_seqlens_bytes(&p->host), "cu_seqlens_q", why) != 0 ||
          buffer_make(&c->cu_seqlens_k, cu_seqlens_bytes(&p->host), "cu_seqlens_k", why) != 0))) {
        struct message reason = *why;
        case_free(c);
        return fail(why, "%.600s; choose a smaller shape.", reason.text);
    }
    for (int i = 0; i < INPUT_BUFFERS; ++i) buffer_upload(case_buffer(c, i), case_input(c, i));
    c->on_device = p->host;
    c->on_device.q.data = c->q.data, c->on_device.k.data = c->k.data, c->on_device.v.data = c->v.data;
    c->on_device.o.data = c->o.data, c->on_device.lse = c->lse.data;
    c->on_device.cu_seqlens_q = c->cu_seqlens_q.data, c->on_device.cu_seqlens_k = c->cu_seqlens_k.data;
    return 0;
}

void case_poison(const struct device_case *c) {
    buffer_poison(&c->o);
    buffer_poison(&c->lse);
}

void case_download(struct device_case *c) {
    buffer_download(&c->o, c->problem.host.o.data);
    buffer_download(&c->lse, c->problem.host.lse);
}

void case_launch(struct device_case *c, const struct kernel *kernel) {
    case_poison(c);
    buffer_poison(&c->workspace);
    // Nothing to compute is done already, and a grid of no blocks would be an error.
    if (c->counted) device_set_counted(1);
    if (query_count(&c->on_device) > 0) kernel->launch(c->on_device);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceSynchronize());
    if (c->counted) device_set_counted(0);
    case_download(c);
}
