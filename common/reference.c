#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel.h"
#include "products.h"
#include "rows.h"

// Cost of one row, in multiply-adds of one of its two products.
static double row_cost(const struct attention *a) { return (double)a->head_dim * (keys_of_row(a) + 64.0); }

int rows_choose(const struct attention *a, double budget, struct rows *rows) {
    int64_t total = (int64_t)a->batch * a->heads * a->seqlen_q;
    return rows_sample(total, a->seqlen_q, budget / row_cost(a), rows);
}

// Memory of one worker; each pointer is into one block.
struct scratch {
    struct unpacked k, v;      // one head; of K the lanes, of V the rows
    int64_t batch, kv_head;    // which one; batch -1: none yet
    float *x;                  // one row of Q
    double *s, *o;             // [seqlen_k + LANES], [columns]
    float *plain_s, *plain_o;  // the same
    void *block;
};

static double scratch_bytes(const struct attention *a) {
    double columns = (double)round_up(a->head_dim, LANES), keys = a->seqlen_k + 2.0 * LANES;
    double floats = unpacked_floats(a, a->seqlen_k, KEEP_LANES) + unpacked_floats(a, a->seqlen_k, KEEP_ROWS);
    return (keys + columns) * sizeof(double) + (floats + keys + 2 * columns) * sizeof(float);
}

static int scratch_make(const struct attention *a, struct scratch *w) {
    int64_t columns = round_up(a->head_dim, LANES), keys = unpacked_tokens(a->seqlen_k);
    w->block = calloc(1, (size_t)scratch_bytes(a));
    if (!w->block) return -1;
    w->s = w->block, w->o = w->s + keys;
    void *floats = w->o + columns;
    w->plain_s = floats, w->plain_o = w->plain_s + keys, w->x = w->plain_o + columns;
    float *next = place_unpacked(a, a->seqlen_k, KEEP_LANES, w->x + columns, &w->k);
    place_unpacked(a, a->seqlen_k, KEEP_ROWS, next, &w->v);
    w->batch = -1;
    return 0;
}

static void unpack(const struct attention *a, int64_t batch, int64_t kv_head, struct scratch *w) {
    if (w->batch == batch && w->kv_head == kv_head) return;
    w->batch = batch, w->kv_head = kv_head;
    unpack_head(a, a->k, batch, kv_head, a->seqlen_k, &w->k);
    unpack_head(a, a->v, batch, kv_head, a->seqlen_k, &w->v);
}

struct forward {
    const struct attention *a;
    const struct rows *rows;
    struct reference *out;
    const int64_t *chunk;  // chunk n: rows chunk[n] ... chunk[n + 1] - 1, all of one batch and KV head
    struct scratch *scratch;
    int *signal;  // one per worker
};

// Returns the largest finite |score|.
static double exact_row(const struct attention *a, struct scratch *w, struct span keys, double *o,
                        double *lse) {
    struct seen k = seen_in(a, &w->k, keys), v = seen_in(a, &w->v, keys);
    dots_double(w->x, k.lanes, a->head_dim, k.before + k.n, w->s);
    struct softmax row = softmax_double(w->s + k.before, k.n, (double)a->scale);
    weighted_double(w->s + k.before, v.rows, a->head_dim, k.n, w->o);
    for (int c = 0; c < a->head_dim; ++c) o[c] = w->o[c] / row.sum;
    *lse = row.max + log(row.sum);
    return row.largest;
}

static struct row_facts facts_of(const struct attention *a, const struct scratch *w, struct span keys,
                                 double largest_score) {
    int64_t n = keys.end - keys.first;
    double v = (double)largest(w->v.max, keys), k = (double)largest(w->k.norm, keys);
    double u = dtype_unit_roundoff(a->dtype), sums = (double)n * 0x1p-24;
    double product = fabs((double)a->scale) * (double)norm_of(w->x, a->head_dim) * k;
    double error = score_error(a, product, largest_score, kept_type(a, largest_score));
    double p_scale = dtype_bytes(a->dtype) == 1 ? 256 : 1;
    double subnormal = (double)n * dtype_min_positive(a->dtype) / 2 / p_scale;
    double share = expm1(2 * error) + 2 * u + subnormal + 2 * sums;
    return (struct row_facts){
        .keys = n,
        .score = largest_score,
        .o = {.scale = v, .worst = v * fmin(share, 2), .sums = v * fmax(product, 1)},
        .lse = {.scale = largest_score, .worst = error + sums, .sums = fmax(product, 1)}};
}

static void plain_row(const struct attention *a, struct scratch *w, struct span keys, double largest_score,
                      double *o, double *lse) {
    enum dtype dtype = a->dtype;
    int is_8_bit = dtype_bytes(dtype) == 1;
    struct seen k = seen_in(a, &w->k, keys), v = seen_in(a, &w->v, keys);
    dots_float(w->x, k.lanes, a->head_dim, k.before + k.n, w->plain_s);
    float *p = w->plain_s + k.before;
    struct softmax row = softmax_float(p, k.n, a->scale, kept_type(a, largest_score));
    float sum = (float)row.sum;
    for (int64_t j = 0; j < k.n; ++j) p[j] = rounded(dtype, is_8_bit ? p[j] * 256 : p[j] / sum);
    weighted_float(p, v.rows, a->head_dim, k.n, w->plain_o);
    for (int c = 0; c < a->head_dim; ++c)
        o[c] = number_round(dtype, is_8_bit ? w->plain_o[c] / (256 * sum) : w->plain_o[c]);
    *lse = (double)((float)row.max + logf(sum));
}

static void forward_chunk(void *context, int64_t chunk, int worker) {
    const struct forward *f = context;
    const struct attention *a = f->a;
    struct scratch *w = &f->scratch[worker];
    for (int64_t r = f->chunk[chunk]; r < f->chunk[chunk + 1]; ++r) {
        int64_t row = rows_at(f->rows, r), i = row % a->seqlen_q;
        int64_t head = row / a->seqlen_q % a->heads, batch = row / a->seqlen_q / a->heads;
        double *o = f->out->o + r * a->head_dim, *plain_o = f->out->plain_o + r * a->head_dim;
        struct span keys = visible_range(a, i);
        if (keys.first == keys.end) {
            for (int c = 0; c < a->head_dim; ++c) o[c] = plain_o[c] = 0;
            f->out->lse[r] = f->out->plain_lse[r] = -INFINITY;
            f->out->facts[r] = (struct row_facts){.keys = 0};
            continue;
        }
        unpack(a, batch, kv_head_of(a, (int)head), w);
        f->signal[worker] |= largest(w->v.max, keys) > 0;
        unpack_row(a, a->q, batch, head, i, w->x);
        double largest_score = exact_row(a, w, keys, o, &f->out->lse[r]);
        plain_row(a, w, keys, largest_score, plain_o, &f->out->plain_lse[r]);
        f->out->facts[r] = facts_of(a, w, keys, largest_score);
    }
}

double reference_row_bytes(const struct attention *a) {
    double total = (double)a->batch * a->heads * a->seqlen_q;
    double rows = rows_count(total, REFERENCE_BUDGET / row_cost(a));
    return rows * (2 * (a->head_dim + 2.0) * sizeof(double) + sizeof(struct row_facts));
}

double reference_bytes(const struct attention *a) {
    double of_rows = reference_row_bytes(a);
    return of_rows > 0 ? of_rows + scratch_bytes(a) : 0;
}

int reference_make(const struct attention *a, const struct rows *rows, struct reference *out) {
    memset(out, 0, sizeof *out);
    size_t values = (size_t)rows->count * (size_t)a->head_dim, lines = (size_t)rows->count;
    out->o = malloc((2 * values + 2 * lines + 1) * sizeof(double));
    out->facts = malloc((lines + 1) * sizeof *out->facts);
    if (!out->o || !out->facts) return reference_free(out), -1;
    out->plain_o = out->o + values, out->lse = out->plain_o + values, out->plain_lse = out->lse + lines;
    return 0;
}

int reference_forward(const struct attention *a, const struct rows *rows, struct reference *out) {
    if (reference_make(a, rows, out) != 0) return -1;
    int workers = workers_for(scratch_bytes(a)), status = 0, signal[64] = {0};
    int64_t chunks = 0;
    struct scratch scratch[64] = {{.block = NULL}};
    struct forward f = {.a = a, .rows = rows, .out = out, .scratch = scratch, .signal = signal};
    int64_t *chunk = rows_chunks(rows, (int64_t)a->seqlen_q * (a->heads / a->kv_heads), &chunks);
    if (!chunk) status = -1;
    for (int i = 0; i < workers && i < chunks && status == 0; ++i) status = scratch_make(a, &scratch[i]);
    if (status == 0) {
        f.chunk = chunk;
        parallel_for_on(workers, chunks, forward_chunk, &f);
        for (int i = 0; i < workers; ++i) out->has_signal |= signal[i];
        for (int64_t r = 0; r < rows->count; ++r)
            out->largest_score = fmax(out->largest_score, out->facts[r].score);
    }
    for (int i = 0; i < workers; ++i) free(scratch[i].block);
    free(chunk);
    if (status != 0) reference_free(out);
    return status;
}

void reference_free(struct reference *out) {
    free(out->o);
    free(out->facts);
    memset(out, 0, sizeof *out);
}
