#include "problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "machine.h"
#include "problem_files.h"

// ---------------------------------------------------------------- memory

double problem_bytes(const struct attention *a, int backward) {
    double lse = (double)a->batch * a->heads * a->seqlen_q * sizeof(float);
    double all = lse, results = lse, largest = 0;
    for (int i = 0; i < TENSORS; ++i) {
        if (!tensor_exists(i, backward)) continue;
        double bytes = tensor_bytes(a, i);
        all += bytes, largest = fmax(largest, bytes);
        if (i >= TENSOR_O) results += bytes;
    }
    return all + fmax(largest, results) + reference_bytes(a) +
           (backward ? gradients_bytes(a) : reference_quantised_bytes(a));
}

int problem_fits(const struct attention *a, int backward, struct message *why) {
    double need = problem_bytes(a, backward), memory = machine_memory_bytes();
    double width = (double)a->head_dim + a->pad;  // from one row to the next, where rows lie side by side
    char need_text[32], memory_text[32];
    if (width > INT32_MAX)
        return fail(why, "--dim %d and --pad %d make rows longer than %d elements; choose a smaller --pad.",
                    a->head_dim, a->pad, INT32_MAX);
    if (need > memory * USABLE_MEMORY)
        return fail(
            why,
            "This shape needs %s of host memory for inputs, outputs and reference, and the machine has "
            "%s; choose a smaller shape.",
            bytes_text(need, need_text), bytes_text(memory, memory_text));
    // A batch of none needs no memory, but its strides are products of the rest.
    double stride = fmax((double)a->heads * a->seqlen_q, (double)a->kv_heads * a->seqlen_k) * width;
    if (stride > 0x1p62)
        return fail(why,
                    "This shape has %.2g elements in one sequence, more than 64 bits can number; choose "
                    "a smaller shape.",
                    stride);
    return 0;
}

static int allocate(struct problem *p, struct message *why) {
    struct attention *a = &p->host;
    if (problem_fits(a, p->backward, why) != 0) return -1;
    double need = problem_bytes(a, p->backward);
    for (int i = 0; i < TENSORS; ++i) {
        if (!tensor_exists(i, p->backward)) continue;
        p->bytes[i] = (size_t)tensor_bytes(a, i);
        void *data = malloc(p->bytes[i] ? p->bytes[i] : 1);
        *tensor_at(a, i) = tensor_place(a, i, p->layout, data);
        if (!data) return fail(why, "There is no memory left for %.1f GB of inputs.", need / 1e9);
        if (a->pad > 0) memset(data, 0xff, p->bytes[i]);
    }
    a->lse = malloc((size_t)a->batch * (size_t)a->heads * (size_t)a->seqlen_q * sizeof(float) + 1);
    return a->lse ? 0 : fail(why, "There is no memory left for %.1f GB of inputs.", need / 1e9);
}

void problem_free(struct problem *p) {
    for (int i = 0; i < TENSORS; ++i) free(tensor_at(&p->host, i)->data);
    free(p->host.lse);
    rows_free(&p->rows);
    reference_free(&p->reference);
    reference_free(&p->quantised);
    gradients_free(p->gradients);
    memset(p, 0, sizeof *p);
}

enum tensor_index problem_gap_written(const struct problem *p) {
    const struct attention *a = &p->host;
    size_t element = (size_t)dtype_bytes(a->dtype), gap = (size_t)a->pad * element;
    size_t width = (size_t)a->head_dim * element + gap;
    // Of every layout: rows lie side by side, each with its gap behind it.
    for (int i = TENSOR_O; i < TENSORS && gap > 0; ++i)
        for (size_t at = width; at <= p->bytes[i]; at += width) {
            const unsigned char *byte = (const unsigned char *)tensor_in(a, i)->data + at - gap;
            if (byte[0] != 0xff || memcmp(byte, byte + 1, gap - 1) != 0) return i;
        }
    return TENSORS;
}

// ---------------------------------------------------------------- making

static int all_finite(const struct attention *a, enum tensor_index which) {
    const struct tensor *t = tensor_in(a, which);
    if (tensor_bytes(a, which) == 0) return 1;  // and not after 2^31 batches of nothing
    for (int64_t b = 0; b < a->batch; ++b)
        for (int64_t h = 0; h < tensor_heads(a, which); ++h)
            for (int64_t s = 0; s < tensor_tokens(a, which); ++s) {
                int64_t row = b * t->stride_batch + h * t->stride_head + s * t->stride_row;
                for (int64_t c = 0; c < a->head_dim; ++c)
                    if (!isfinite(number_load(a->dtype, t->data, row + c))) return 0;
            }
    return 1;
}

struct attention problem_shape(const struct options *o) {
    return (struct attention){.batch = o->batch,
                              .heads = o->heads,
                              .kv_heads = o->kv_heads,
                              .seqlen_q = o->seqlen_q,
                              .seqlen_k = o->seqlen_k,
                              .head_dim = o->head_dim,
                              .pad = o->pad,
                              .scale = o->scale,
                              .causal = o->causal,
                              .window = o->window,
                              .window_left = o->window_left,
                              .window_right = o->window_right,
                              .splits = o->splits,
                              .dtype = o->dtype,
                              .sequences = o->sequences,
                              .cu_seqlens_q = o->sequences ? o->cu_seqlens_q : NULL,
                              .cu_seqlens_k = o->sequences ? o->cu_seqlens_k : NULL};
}

// Inputs from files, and from the generator what the files leave out.
static int load_inputs(const struct options *o, struct problem *p, struct message *why) {
    struct npy file[INPUT_FILES];
    int status = files_read(o, file, p, why);
    if (status == 0) status = allocate(p, why);
    if (status == 0) status = files_copy(o, file, p, why);
    if (status == 0 && p->backward && !file[TENSOR_DO].data)
        inputs_fill_gradient(INPUTS_NORMAL, o->seed, &p->host);
    files_free(file);
    return status;
}

static int make_inputs(const struct options *o, struct problem *p, struct message *why) {
    if (allocate(p, why) != 0) return -1;
    inputs_fill(o->inputs, o->seed, &p->host);
    if (p->backward) inputs_fill_gradient(o->inputs, o->seed, &p->host);
    return 0;
}

int problem_make(const struct options *o, struct problem *p, struct message *why) {
    memset(p, 0, sizeof *p);
    struct attention *a = &p->host;
    *a = problem_shape(o);
    p->backward = o->backward;
    memcpy(p->layout, o->layout, sizeof p->layout);
    if ((o->load ? load_inputs : make_inputs)(o, p, why) != 0) {
        problem_free(p);
        return -1;
    }
    p->inputs_finite = all_finite(a, TENSOR_Q) && all_finite(a, TENSOR_K) && all_finite(a, TENSOR_V);
    p->d_o_finite = p->backward && all_finite(a, TENSOR_DO);
    return 0;
}

// ---------------------------------------------------------------- reference

// A gradient beside what it should be.
static struct comparison compare_gradient(const struct problem *p, int gradient) {
    const struct attention *a = &p->host;
    const struct gradient *g = &p->gradients[gradient];
    enum tensor_index which = gradient_tensor(gradient);
    return (struct comparison){.actual = *tensor_in(a, which),
                               .heads = tensor_heads(a, which),
                               .seqlen = tensor_tokens(a, which),
                               .rows = &g->rows,
                               .expected = g->exact,
                               .plain = g->plain,
                               .facts = g->facts,
                               .expected_roundoff = p->gradient_roundoff[gradient],
                               .inputs_finite = p->inputs_finite && p->d_o_finite,
                               .has_signal = g->has_signal};
}

struct comparison problem_comparison(const struct problem *p, enum output output, enum quantised as) {
    const struct attention *a = &p->host;
    const struct reference *r = as == QUANTISED_NOT ? &p->reference : &p->quantised;
    struct comparison c = {.actual = a->o,
                           .heads = a->heads,
                           .seqlen = a->seqlen_q,
                           .rows = &p->rows,
                           .expected = r->o,
                           .plain = r->plain_o,
                           .facts = r->facts,
                           .expected_roundoff = p->o_roundoff,
                           .inputs_finite = p->inputs_finite,
                           .has_signal = r->has_signal};
    if (output >= OUTPUT_DQ) c = compare_gradient(p, (int)output - (int)OUTPUT_DQ);
    c.output = output, c.dtype = a->dtype, c.batch = a->batch, c.columns = a->head_dim;
    if (output == OUTPUT_LSE) {
        c.dtype = DTYPE_FP32, c.columns = 1, c.has_signal = 0;
        c.actual = tensor_view(a->lse, LAYOUT_BHSD, a->heads, a->seqlen_q, 1);
        c.expected = r->lse, c.plain = r->plain_lse, c.expected_roundoff = p->lse_roundoff;
    }
    return c;
}

int problem_reference(const struct options *o, struct problem *p, struct message *why) {
    const struct attention *a = &p->host;
    if (rows_choose(a, REFERENCE_BUDGET, &p->rows) != 0 || reference_forward(a, &p->rows, &p->reference) != 0)
        return fail(why, "There is no memory left for the reference; choose a smaller shape.");
    // An answer to inputs that had to be rounded is the answer to other inputs: ours is the one
    // to check against.
    if (!o->load) return 0;
    if (p->inputs_rounded || p->d_o_rounded)
        for (int i = TENSOR_DQ; i < TENSORS; ++i)
            p->answer_ignored |= p->backward && files_have(o->load, tensor_file(i));
    if (p->inputs_rounded) {
        p->answer_ignored |= files_have(o->load, "o") || files_have(o->load, "lse");
        return 0;
    }
    struct reference *r = &p->reference;
    struct comparison as = problem_comparison(p, OUTPUT_O, QUANTISED_NOT);
    int took = files_take(o->load, "o", "q", &as, r->o, &p->o_roundoff, why);
    if (took < 0) return -1;
    p->o_loaded = took;
    as = problem_comparison(p, OUTPUT_LSE, QUANTISED_NOT);
    took = files_take(o->load, "lse", "q", &as, r->lse, &p->lse_roundoff, why);
    if (took < 0) return -1;
    p->lse_loaded = took;
    return 0;
}

int problem_quantised(struct problem *p, enum quantised as, struct message *why) {
    if (as == QUANTISED_NOT || as == p->quantised_as) return 0;
    reference_free(&p->quantised);
    p->quantised_as = QUANTISED_NOT;
    if (reference_quantised(&p->host, &p->rows, as, &p->reference, &p->quantised) != 0)
        return fail(why, "There is no memory left for the reference; choose a smaller shape.");
    p->quantised_as = as;
    return 0;
}

int problem_gradients(const struct options *o, struct problem *p, double budget, struct message *why) {
    static const enum tensor_index like[GRADIENTS] = {TENSOR_Q, TENSOR_K, TENSOR_V};
    gradients_free(p->gradients);
    p->gradients_sampled = 0;
    if (gradients_make(&p->host, budget, p->gradients) != 0)
        return fail(why, "There is no memory left for the reference; choose a smaller shape.");
    for (int i = 0; i < GRADIENTS; ++i) {
        struct gradient *g = &p->gradients[i];
        p->gradients_sampled |= g->rows.count != g->rows.total;
        p->gradient_roundoff[i] = 0;
        if (!o->load || p->inputs_rounded || p->d_o_rounded) continue;
        struct comparison as = problem_comparison(p, OUTPUT_DQ + i, QUANTISED_NOT);
        int took = files_take(o->load, tensor_file(gradient_tensor(i)), tensor_file(like[i]), &as, g->exact,
                              &p->gradient_roundoff[i], why);
        if (took < 0) return -1;
        p->gradient_loaded[i] = took;
    }
    return 0;
}
