#include "model.h"

#include <string.h>

#include "machine.h"

// ---------------------------------------------------------------- the layers

static size_t row_bytes(const struct attention *a, int heads) {
    return (size_t)heads * (size_t)a->head_dim * (size_t)dtype_bytes(a->dtype);
}

static int make_buffers(struct model_layer *l, int sequences, struct message *why) {
    static const char *const names[LAYER_BUFFERS] = {
        "K", "V", "Q", "O", "LSE", "the table of Q", "the table of K", "the table of V"};
    const struct attention *host = &l->problem.host;
    size_t q_row = row_bytes(host, host->heads), k_row = row_bytes(host, host->kv_heads);
    const size_t bytes[LAYER_BUFFERS] = {
        k_row * (size_t)host->seqlen_k,
        k_row * (size_t)host->seqlen_k,
        q_row * (size_t)sequences,
        q_row * (size_t)sequences,
        sizeof(float) * (size_t)host->heads * (size_t)sequences,
        q_row * (size_t)host->seqlen_q,
        k_row * (size_t)host->seqlen_q,
        k_row * (size_t)host->seqlen_q,
    };
    for (int i = 0; i < LAYER_BUFFERS; ++i)
        if (buffer_make(&l->buffer[i], bytes[i], names[i], why) != 0) return -1;
    return 0;
}

// The rows of K or V that the steps bring, behind each other, as the table has them.
static void upload_table(const struct model_layer *l, int sequences, int steps, const void *all,
                         const struct buffer *table) {
    const struct attention *host = &l->problem.host;
    size_t row = row_bytes(host, host->kv_heads), bytes = row * (size_t)steps;
    for (int s = 0; s < sequences; ++s) {
        size_t first = (size_t)(host->cu_seqlens_k[s + 1] - steps);
        CUDA_CHECK(cudaMemcpy((char *)table->data + (size_t)s * bytes, (const char *)all + first * row, bytes,
                              cudaMemcpyHostToDevice));
    }
}

static int layer_make(struct model_layer *l, const struct model *m, int number, struct message *why) {
    struct options *o = malloc(sizeof *o);
    if (!o) return fail(why, "There is no memory left for --generate; choose a smaller shape.");
    *o = *m->options;
    o->seed += (uint64_t)number;
    int status = problem_make(o, &l->problem, why);
    free(o);
    if (status != 0) return -1;
    struct problem *p = &l->problem;
    // The copy of the options ends here; those of the caller say the same.
    p->host.cu_seqlens_q = m->options->cu_seqlens_q, p->host.cu_seqlens_k = m->options->cu_seqlens_k;
    if (rows_choose(&p->host, REFERENCE_BUDGET / m->layers, &p->rows) != 0 ||
        reference_forward(&p->host, &p->rows, &p->reference) != 0)
        return fail(why, "There is no memory left for the reference; choose a smaller shape.");
    if (make_buffers(l, m->sequences, why) != 0) return -1;
    l->a = p->host;
    l->a.seqlen_q = m->sequences;
    l->a.causal = 0;  // one query sees all keys that there are
    l->a.q = tensor_view(l->buffer[STEP_Q].data, LAYOUT_BSHD, l->a.heads, m->sequences, l->a.head_dim);
    l->a.o = tensor_view(l->buffer[STEP_O].data, LAYOUT_BSHD, l->a.heads, m->sequences, l->a.head_dim);
    l->a.k.data = l->buffer[CACHE_K].data, l->a.v.data = l->buffer[CACHE_V].data;
    l->a.lse = l->buffer[STEP_LSE].data;
    l->a.cu_seqlens_q = m->buffer[SHARED_CU_SEQLENS_Q].data;
    l->a.cu_seqlens_k = m->buffer[SHARED_CU_SEQLENS_K].data;
    l->a.seqused_k = m->buffer[SHARED_SEQUSED_K].data;
    l->a.stream = m->stream;
    buffer_upload(&l->buffer[TABLE_Q], p->host.q.data);
    upload_table(l, m->sequences, m->steps, p->host.k.data, &l->buffer[TABLE_K]);
    upload_table(l, m->sequences, m->steps, p->host.v.data, &l->buffer[TABLE_V]);
    l->tokens = (struct tokens){.q = l->buffer[TABLE_Q].data,
                                .k = l->buffer[TABLE_K].data,
                                .v = l->buffer[TABLE_V].data,
                                .steps = m->steps,
                                .step = m->buffer[SHARED_STEP].data,
                                .seqused_k = m->buffer[SHARED_SEQUSED_K].data};
    return 0;
}

static void layer_free(struct model_layer *l) {
    for (int i = 0; i < LAYER_BUFFERS; ++i) buffer_free(&l->buffer[i]);
    problem_free(&l->problem);
}

static void start_layer(const struct model *m, const struct model_layer *l) {
    const struct attention *host = &l->problem.host;
    size_t row = row_bytes(host, host->kv_heads);
    for (int i = CACHE_K; i <= STEP_LSE; ++i) buffer_poison(&l->buffer[i]);
    for (int s = 0; s < m->sequences; ++s) {
        size_t first = (size_t)host->cu_seqlens_k[s] * row;
        size_t bytes = (size_t)(host->cu_seqlens_k[s + 1] - m->steps) * row - first;
        for (int i = CACHE_K; i <= CACHE_V && bytes > 0; ++i)
            CUDA_CHECK(cudaMemcpy((char *)l->buffer[i].data + first,
                                  (const char *)(i == CACHE_K ? host->k.data : host->v.data) + first, bytes,
                                  cudaMemcpyHostToDevice));
    }
}

// ---------------------------------------------------------------- the model

static int needs_too_much(const struct model *m, const struct attention *a, struct message *why) {
    double k_row = (double)row_bytes(a, a->kv_heads), q_row = (double)row_bytes(a, a->heads);
    double device = m->layers * (2 * k_row * a->seqlen_k + (q_row + 2 * k_row) * a->seqlen_q);
    double host = m->layers * problem_bytes(a, 0) + (ON_CPU ? 2 * device : 0);
    double memory = machine_memory_bytes() * USABLE_MEMORY, free_bytes = (double)device_free_bytes();
    char need[32], have[32];
    if (host > memory)
        return fail(
            why,
            "%d layers of this shape need %s of host memory, and the machine has %s; choose a smaller shape.",
            m->layers, bytes_text(host, need), bytes_text(memory, have));
    if (device > free_bytes)
        return fail(
            why, "The caches of %d layers need %s of device memory, and %s are free; choose a smaller shape.",
            m->layers, bytes_text(device, need), bytes_text(free_bytes, have));
    return 0;
}

// Writes one number a sequence to the device: these, or 0, 1, 2, ...
static void upload_numbers(const struct model *m, int which, const int *from) {
    size_t count = m->buffer[which].bytes / sizeof(int);
    int *numbers = malloc(count * sizeof *numbers);
    CUDA_CHECK(numbers ? cudaSuccess : cudaErrorMemoryAllocation);
    for (size_t i = 0; i < count; ++i) numbers[i] = from ? from[i] : (int)i;
    buffer_upload(&m->buffer[which], numbers);
    free(numbers);
}

int model_make(struct model *m, const struct lab *lab, const struct options *o, struct message *why) {
    *m = (struct model){.layers = o->layers,
                        .steps = o->generate,
                        .sequences = o->sequences,
                        .options = o,
                        .growth = lab->growth};
    const struct attention shape = problem_shape(o);
    if (needs_too_much(m, &shape, why) != 0) return -1;
    const size_t counts[SHARED_WORKSPACE] = {(size_t)m->sequences + 1, (size_t)m->sequences + 1,
                                             (size_t)m->sequences, 1};
    static const char *const names[SHARED_WORKSPACE] = {"cu_seqlens_q", "cu_seqlens_k", "seqused_k",
                                                        "the step's number"};
    for (int i = 0; i < SHARED_WORKSPACE; ++i)
        if (buffer_make(&m->buffer[i], counts[i] * sizeof(int), names[i], why) != 0) return -1;
    upload_numbers(m, SHARED_CU_SEQLENS_Q, NULL);  // a query each
    upload_numbers(m, SHARED_CU_SEQLENS_K, o->cu_seqlens_k);
    CUDA_CHECK(cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking));
    m->layer = calloc((size_t)m->layers, sizeof *m->layer);
    if (!m->layer) return fail(why, "There is no memory left for --generate; choose a smaller shape.");
    for (int n = 0; n < m->layers; ++n)
        if (layer_make(&m->layer[n], m, n, why) != 0) return -1;
    for (int step = 0; step < m->steps; ++step)
        m->kv_bytes += 2.0 * m->layers * (double)row_bytes(&shape, shape.kv_heads) *
                       (shape.seqlen_k - (double)m->sequences * (m->steps - 1 - step));
    return 0;
}

void model_free(struct model *m) {
    for (int n = 0; m->layer && n < m->layers; ++n) layer_free(&m->layer[n]);
    free(m->layer);
    for (int i = 0; i < SHARED_BUFFERS; ++i) buffer_free(&m->buffer[i]);
    if (m->stream) CUDA_CHECK(cudaStreamDestroy(m->stream));
}

void model_start(const struct model *m) {
    int *used = malloc(((size_t)m->sequences + 1) * sizeof *used), zero = 0;
    CUDA_CHECK(used ? cudaSuccess : cudaErrorMemoryAllocation);
    for (int s = 0; s < m->sequences; ++s)
        used[s] = m->options->cu_seqlens_k[s + 1] - m->options->cu_seqlens_k[s] - m->steps + 1;
    buffer_upload(&m->buffer[SHARED_SEQUSED_K], used);
    buffer_upload(&m->buffer[SHARED_STEP], &zero);
    buffer_fill(&m->buffer[SHARED_WORKSPACE], 0xff);
    for (int n = 0; n < m->layers; ++n) start_layer(m, &m->layer[n]);
    CUDA_CHECK(cudaDeviceSynchronize());
    free(used);
}

void model_fetch_step(const struct model *m, const struct model_layer *l, int step, void *o, float *lse) {
    const struct attention *host = &l->problem.host;
    size_t row = row_bytes(host, host->heads), sequences = (size_t)m->sequences;
    char *step_o = malloc(row * sequences + 1);
    float *step_lse = malloc(((size_t)host->heads * sequences + 1) * sizeof *step_lse);
    CUDA_CHECK(step_o && step_lse ? cudaSuccess : cudaErrorMemoryAllocation);
    buffer_download(&l->buffer[STEP_O], step_o);
    buffer_download(&l->buffer[STEP_LSE], step_lse);
    for (size_t s = 0; s < sequences; ++s) {
        size_t at = s * (size_t)m->steps + (size_t)step;
        memcpy((char *)o + at * row, step_o + s * row, row);
        for (size_t h = 0; h < (size_t)host->heads; ++h)
            lse[h * (size_t)host->seqlen_q + at] = step_lse[h * sequences + s];
    }
    free(step_o);
    free(step_lse);
}
