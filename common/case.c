#include "case.h"

#include <string.h>

#include "preflight.h"

void *case_host(const struct device_case *c, int i) {
    const struct attention *host = &c->problem.host;
    if (i < TENSORS) return tensor_in(host, i)->data;
    return i == BUFFER_LSE            ? (void *)host->lse
           : i == BUFFER_CU_SEQLENS_Q ? (void *)host->cu_seqlens_q
           : i == BUFFER_CU_SEQLENS_K ? (void *)host->cu_seqlens_k
                                      : NULL;
}

void case_free(struct device_case *c) {
    for (int i = 0; i < BUFFERS; ++i) buffer_free(&c->buffer[i]);
    problem_free(&c->problem);
}

static int make_buffers(struct device_case *c, struct message *why) {
    static const char *const names[] = {"LSE", "cu_seqlens_q", "cu_seqlens_k"};
    const struct problem *p = &c->problem;
    size_t lse_bytes = (size_t)query_count(&p->host) * sizeof(float);
    size_t cu_seqlens_bytes = ((size_t)p->host.sequences + 1) * sizeof *p->host.cu_seqlens_q;
    for (int i = 0; i < BUFFER_WORKSPACE; ++i) {
        const char *name = i < TENSORS ? tensor_name(i) : names[i - TENSORS];
        size_t bytes = i < TENSORS ? p->bytes[i] : i == BUFFER_LSE ? lse_bytes : cu_seqlens_bytes;
        if (i < TENSORS ? !tensor_exists(i, p->backward) : i > BUFFER_LSE && p->host.sequences == 0) continue;
        if (buffer_make(&c->buffer[i], bytes, name, why) != 0) return -1;
    }
    return 0;
}

int case_make(struct device_case *c, const struct options *options, const struct device *device,
              struct message *why) {
    memset(c, 0, sizeof *c);
    c->options = options, c->device = device;
    struct problem *p = &c->problem;
    if (problem_make(options, p, why) != 0) return -1;
    if (preflight_case(&p->host, p->backward, &c->left, why) != 0) {
        problem_free(p);
        return -1;
    }
    if (make_buffers(c, why) != 0) {
        struct message reason = *why;
        case_free(c);
        return fail(why, "%.600s; choose a smaller shape.", reason.text);
    }
    c->on_device = p->host;
    for (int i = 0; i < TENSORS; ++i) tensor_at(&c->on_device, i)->data = c->buffer[i].data;
    c->on_device.lse = c->buffer[BUFFER_LSE].data;
    c->on_device.cu_seqlens_q = c->buffer[BUFFER_CU_SEQLENS_Q].data;
    c->on_device.cu_seqlens_k = c->buffer[BUFFER_CU_SEQLENS_K].data;
    for (int i = TENSOR_Q; i <= TENSOR_DO; ++i) case_upload(c, i);
    case_upload(c, BUFFER_CU_SEQLENS_Q);
    case_upload(c, BUFFER_CU_SEQLENS_K);
    return 0;
}

void case_upload(const struct device_case *c, int i) { buffer_upload(&c->buffer[i], case_host(c, i)); }

static void fetch(struct device_case *c, int i) { buffer_download(&c->buffer[i], case_host(c, i)); }

void case_fetch(struct device_case *c, const struct kernel *kernel) {
    if (!kernel->forward) {
        fetch(c, TENSOR_O);
        fetch(c, BUFFER_LSE);
        return;
    }
    for (int i = TENSOR_DQ; i <= TENSOR_DV; ++i) fetch(c, i);
}

int case_has_work(const struct device_case *c, const struct kernel *kernel) {
    const struct attention *a = &c->on_device;
    return query_count(a) > 0 || (kernel->forward && key_count(a) > 0);
}

static void finish(void) {
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceSynchronize());
}

void case_begin(struct device_case *c, const struct kernel *kernel) {
    for (int i = TENSOR_O; i <= TENSOR_DV; ++i) buffer_poison(&c->buffer[i]);
    buffer_poison(&c->buffer[BUFFER_LSE]);
    buffer_fill(&c->buffer[BUFFER_WORKSPACE], c->runs++ % 2 ? 0x40 : 0xff);
    if (!kernel->forward) return;
    if (query_count(&c->on_device) > 0) kernel->forward(c->on_device);
    finish();
    fetch(c, TENSOR_O);
    fetch(c, BUFFER_LSE);
}

void case_launch(struct device_case *c, const struct kernel *kernel) {
    if (c->counted) device_set_counted(1);
    if (case_has_work(c, kernel)) kernel->launch(c->on_device);
    finish();
    if (c->counted) device_set_counted(0);
    case_fetch(c, kernel);
}
