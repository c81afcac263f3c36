#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "parallel.h"

// Sixteen keys (or sixteen columns of V) are worked on at once: their sums stay in registers, and no sum is
// split, so the order of additions, hence the result, is the same on every machine.
enum { LANES = 16, ROWS_PER_CHUNK = 64, MIN_SAMPLE = 64 };

static int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// ---------------------------------------------------------------- which rows

static uint64_t scramble(uint64_t x) {  // SplitMix64's output function (Steele, Lea, Flood 2014)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int ascending(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

// Keys that a row sees, at most; in packed sequences on average, as they are of all lengths.
static double keys_of_row(const struct attention *a) {
    double width = INFINITY, pairs = 0;
    int right = a->causal ? 0 : a->window_right;
    if (a->window && a->window_left != NO_LIMIT && right != NO_LIMIT)
        width = (double)a->window_left + right + 1;
    if (a->sequences == 0 || a->seqlen_q == 0) return fmin(a->seqlen_k, width);
    for (int n = 0; n < a->sequences; ++n) {
        struct sequence s = sequence_at(a, n);
        pairs += s.seqlen_q * fmin(s.seqlen_k, width);
    }
    return pairs / a->seqlen_q;
}

// Cost of one row, in multiply-adds of one of its two products.
static double row_cost(const struct attention *a) { return (double)a->head_dim * (keys_of_row(a) + 64.0); }

int rows_choose(const struct attention *a, double budget, struct rows *rows) {
    memset(rows, 0, sizeof *rows);
    rows->total = (int64_t)a->batch * a->heads * a->seqlen_q;
    rows->count = rows->total;
    if ((double)rows->total * row_cost(a) <= budget || rows->total <= MIN_SAMPLE) return 0;

    int64_t wanted = (int64_t)(budget / row_cost(a));
    if (wanted < MIN_SAMPLE) wanted = MIN_SAMPLE;
    if (wanted >= rows->total) return 0;
    rows->index = malloc((size_t)wanted * sizeof *rows->index);
    if (!rows->index) return -1;
    int64_t n = 0;
    rows->index[n++] = 0;
    rows->index[n++] = a->seqlen_q - 1;
    rows->index[n++] = rows->total - a->seqlen_q;
    rows->index[n++] = rows->total - 1;
    for (uint64_t draw = 1; n < wanted; ++draw)
        rows->index[n++] = (int64_t)(scramble(draw * 0x9e3779b97f4a7c15u) % (uint64_t)rows->total);
    qsort(rows->index, (size_t)n, sizeof *rows->index, ascending);
    rows->count = 0;  // a row that was drawn twice is examined once
    for (int64_t i = 0; i < n; ++i)
        if (i == 0 || rows->index[i] != rows->index[i - 1]) rows->index[rows->count++] = rows->index[i];
    return 0;
}

void rows_free(struct rows *rows) {
    free(rows->index);
    memset(rows, 0, sizeof *rows);
}

// ---------------------------------------------------------------- one head, unpacked

// Storage types are subsets of fp32, so a head of K and V unpacked to fp32 serves the double computation
// (which widens it again, exactly) and the plain one.
struct head {
    float *k;                // [seqlen_k / LANES][head_dim][LANES]: LANES keys side by side
    float *v;                // [seqlen_k][columns], columns = head_dim rounded up to LANES
    float *k_norm, *v_max;   // [seqlen_k]: the norm of a row of K, the largest |element| of a row of V
    int64_t batch, kv_head;  // what is in there now; batch -1: nothing
};

static const void *row_of(struct tensor t, int64_t batch, int64_t head, int64_t i, size_t element_bytes) {
    return (const char *)t.data +
           (size_t)(batch * t.stride_batch + head * t.stride_head + i * t.stride_row) * element_bytes;
}

static void unpack_row(const struct attention *a, struct tensor t, int64_t batch, int64_t head, int64_t i,
                       float *to) {
    const void *from = row_of(t, batch, head, i, dtype_bytes(a->dtype));
    for (int c = 0; c < a->head_dim; ++c) to[c] = (float)number_load(a->dtype, from, c);
}

// Euclidean norm of the finite elements.
static float norm(const float *x, int count) {
    double squares = 0;
    for (int c = 0; c < count; ++c)
        if (isfinite(x[c])) squares += (double)x[c] * (double)x[c];
    return (float)sqrt(squares);
}

static void unpack_head(const struct attention *a, int64_t batch, int64_t kv_head, struct head *h,
                        float *row) {
    if (h->batch == batch && h->kv_head == kv_head) return;
    int64_t columns = round_up(a->head_dim, LANES);
    h->batch = batch, h->kv_head = kv_head;
    for (int64_t j = 0; j < a->seqlen_k; ++j) {
        unpack_row(a, a->k, batch, kv_head, j, row);
        float *lane = h->k + j / LANES * LANES * a->head_dim + j % LANES;
        for (int64_t c = 0; c < a->head_dim; ++c) lane[c * LANES] = row[c];
        float *v = h->v + j * columns, v_max = 0;
        unpack_row(a, a->v, batch, kv_head, j, v);
        for (int c = 0; c < a->head_dim; ++c)
            if (isfinite(v[c])) v_max = fmaxf(v_max, fabsf(v[c]));
        h->k_norm[j] = norm(row, a->head_dim);
        h->v_max[j] = v_max;
    }
}

static float largest(const float *values, struct span keys) {
    float largest = 0;
    for (int j = keys.first; j < keys.end; ++j) largest = fmaxf(largest, values[j]);
    return largest;
}

// The two products of one row, in double and in fp32. One text for both: only the type of the sums differs.
//   dots:     s[j] = sum_c x[c] k[j][c]        for j < n (and a few more lanes, never used)
//   weighted: o[c] = sum_{j<n} p[j] v[j][c]
#define DEFINE_PRODUCTS(real)                                                                                \
    static void dots_##real(const float *x, const float *k, int head_dim, int64_t n, real *s) {              \
        for (int64_t j = 0; j < n; j += LANES, k += (int64_t)LANES * head_dim) {                             \
            real sum[LANES] = {0};                                                                           \
            for (int c = 0; c < head_dim; ++c)                                                               \
                for (int lane = 0; lane < LANES; ++lane)                                                     \
                    sum[lane] += (real)x[c] * (real)k[c * LANES + lane];                                     \
            memcpy(s + j, sum, sizeof sum);                                                                  \
        }                                                                                                    \
    }                                                                                                        \
    static void weighted_##real(const real *p, const float *v, int head_dim, int64_t n, real *o) {           \
        int64_t columns = round_up(head_dim, LANES);                                                         \
        for (int64_t c = 0; c < columns; c += LANES) {                                                       \
            real sum[LANES] = {0};                                                                           \
            for (int64_t j = 0; j < n; ++j)                                                                  \
                for (int lane = 0; lane < LANES; ++lane)                                                     \
                    sum[lane] += p[j] * (real)v[j * columns + c + lane];                                     \
            memcpy(o + c, sum, sizeof sum);                                                                  \
        }                                                                                                    \
    }
DEFINE_PRODUCTS(double)
DEFINE_PRODUCTS(float)

// ---------------------------------------------------------------- forward

// Memory of one worker; each pointer is into one block.
struct scratch {
    struct head head;
    float *x, *row;            // one row of Q; one row of K on its way into head.k
    double *s, *o;             // [seqlen_k + LANES], [columns]
    float *plain_s, *plain_o;  // the same
    void *block;
};

static double scratch_bytes(const struct attention *a) {
    double columns = (double)round_up(a->head_dim, LANES);
    double keys = (double)round_up(a->seqlen_k, LANES) + LANES;
    double doubles = keys + columns, floats = keys * a->head_dim + keys * columns + 3 * keys + 3 * columns;
    return doubles * sizeof(double) + floats * sizeof(float);
}

static int scratch_make(const struct attention *a, struct scratch *w) {
    size_t columns = (size_t)round_up(a->head_dim, LANES),
           keys = (size_t)round_up(a->seqlen_k, LANES) + LANES;
    // Zero-filled: lanes past the last key or column hold 0, not what was there before.
    w->block = calloc(1, (size_t)scratch_bytes(a));
    if (!w->block) return -1;
    w->s = w->block, w->o = w->s + keys;
    void *floats = w->o + columns;
    w->head.k = floats;
    w->head.v = w->head.k + keys * (size_t)a->head_dim;
    w->plain_s = w->head.v + keys * columns, w->plain_o = w->plain_s + keys;
    w->x = w->plain_o + columns, w->row = w->x + columns;
    w->head.k_norm = w->row + columns, w->head.v_max = w->head.k_norm + keys;
    w->head.batch = -1;
    return 0;
}

struct forward {
    const struct attention *a;
    const struct rows *rows;
    struct reference *out;
    const int64_t *chunk;  // chunk n: rows chunk[n] ... chunk[n + 1] - 1, all of one batch and KV head
    struct scratch *scratch;
    int *signal;  // one per worker
};

// The keys that one row sees, in scratch memory. Scores are worked out from `k` on, where a group of LANES
// begins: `before` of them belong to keys that it does not see.
struct seen {
    const float *k, *v;
    int64_t before, n;
};

static struct seen seen_in(const struct attention *a, const struct head *h, struct span keys) {
    struct seen seen = {.before = keys.first % LANES, .n = keys.end - keys.first};
    seen.k = h->k + (keys.first - seen.before) * a->head_dim;
    seen.v = h->v + keys.first * round_up(a->head_dim, LANES);
    return seen;
}

static void exact_row(const struct attention *a, struct scratch *w, const struct seen *seen, double *o,
                      double *lse, double *largest_score) {
    int64_t n = seen->n;
    dots_double(w->x, seen->k, a->head_dim, seen->before + n, w->s);
    double max = -INFINITY, sum = 0, largest = 0, *s = w->s + seen->before;
    for (int64_t j = 0; j < n; ++j) {
        s[j] *= (double)a->scale;
        if (isfinite(s[j])) largest = fmax(largest, fabs(s[j]));
        if (s[j] > max) max = s[j];  // a NaN is passed over here and comes back through exp below
    }
    for (int64_t j = 0; j < n; ++j) sum += s[j] = exp(s[j] - max);
    weighted_double(s, seen->v, a->head_dim, n, w->o);
    for (int c = 0; c < a->head_dim; ++c) o[c] = w->o[c] / sum;
    *lse = max + log(sum);
    *largest_score = largest;
}

// The type that the plain implementation keeps the scores of a row in.
static enum dtype score_type(const struct attention *a, double largest_score) {
    return dtype_bytes(a->dtype) == 1 || largest_score > dtype_max_finite(a->dtype) ? DTYPE_FP32 : a->dtype;
}

static struct row_facts facts_of(const struct attention *a, const struct scratch *w, struct span keys,
                                 double largest_score) {
    int64_t n = keys.end - keys.first;
    double v = (double)largest(w->head.v_max, keys), k = (double)largest(w->head.k_norm, keys);
    double u = dtype_unit_roundoff(a->dtype), sums = (double)n * 0x1p-24;
    double product = fabs((double)a->scale) * (double)norm(w->x, a->head_dim) * k;
    double score_error = (a->head_dim + 4) * 0x1p-24 * product +
                         dtype_unit_roundoff(score_type(a, largest_score)) * largest_score;
    double p_scale = dtype_bytes(a->dtype) == 1 ? 256 : 1;
    double subnormal = (double)n * dtype_min_positive(a->dtype) / 2 / p_scale;
    double share = expm1(2 * score_error) + 2 * u + subnormal + 2 * sums;
    return (struct row_facts){
        .keys = n,
        .score = largest_score,
        .o = {.scale = v, .worst = v * fmin(share, 2), .sums = v * fmax(product, 1)},
        .lse = {.scale = largest_score, .worst = score_error + sums, .sums = fmax(product, 1)}};
}

static void plain_row(const struct attention *a, struct scratch *w, const struct seen *seen,
                      double largest_score, double *o, double *lse) {
    enum dtype dtype = a->dtype, score_dtype = score_type(a, largest_score);
    int is_8_bit = dtype_bytes(dtype) == 1;
    int64_t n = seen->n;
    dots_float(w->x, seen->k, a->head_dim, seen->before + n, w->plain_s);
    float max = -INFINITY, sum = 0, *s = w->plain_s + seen->before;
    for (int64_t j = 0; j < n; ++j) {
        s[j] = (float)number_round(score_dtype, s[j] * a->scale);
        if (s[j] > max) max = s[j];
    }
    for (int64_t j = 0; j < n; ++j) sum += s[j] = expf(s[j] - max);
    for (int64_t j = 0; j < n; ++j) s[j] = (float)number_round(dtype, is_8_bit ? s[j] * 256 : s[j] / sum);
    weighted_float(s, seen->v, a->head_dim, n, w->plain_o);
    for (int c = 0; c < a->head_dim; ++c)
        o[c] = number_round(dtype, is_8_bit ? w->plain_o[c] / (256 * sum) : w->plain_o[c]);
    *lse = max + logf(sum);
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
        unpack_head(a, batch, kv_head_of(a, (int)head), &w->head, w->row);
        f->signal[worker] |= largest(w->head.v_max, keys) > 0;
        unpack_row(a, a->q, batch, head, i, w->x);
        double largest_score;
        struct seen seen = seen_in(a, &w->head, keys);
        exact_row(a, w, &seen, o, &f->out->lse[r], &largest_score);
        plain_row(a, w, &seen, largest_score, plain_o, &f->out->plain_lse[r]);
        f->out->facts[r] = facts_of(a, w, keys, largest_score);
    }
}

// Splits the rows into chunks that one worker does in one go with one head of K and V unpacked.
static int64_t *make_chunks(const struct attention *a, const struct rows *rows, int64_t *chunks) {
    int64_t *start = malloc(((size_t)rows->count + 1) * sizeof *start), n = 0;
    if (!start) return NULL;
    int64_t group_rows = (int64_t)a->seqlen_q * (a->heads / a->kv_heads), last_group = 0;
    for (int64_t r = 0; r < rows->count; ++r) {
        int64_t group = rows_at(rows, r) / group_rows;
        if (n == 0 || group != last_group || r - start[n - 1] == ROWS_PER_CHUNK) start[n++] = r;
        last_group = group;
    }
    start[n] = rows->count;
    *chunks = n;
    return start;
}

double reference_bytes(const struct attention *a) {
    double total = (double)a->batch * a->heads * a->seqlen_q;
    double rows = fmin(total, fmax(REFERENCE_BUDGET / row_cost(a), MIN_SAMPLE));
    if (rows == 0) return 0;
    return rows * (2 * (a->head_dim + 2.0) * sizeof(double) + sizeof(struct row_facts)) + scratch_bytes(a);
}

// As many threads as a quarter of the machine's memory has scratch for.
static int reference_workers(const struct attention *a) {
    double fit = machine_memory_bytes() / 4 / scratch_bytes(a);
    return fit < 1 ? 1 : fit < parallel_workers() ? (int)fit : parallel_workers();
}

int reference_forward(const struct attention *a, const struct rows *rows, struct reference *out) {
    memset(out, 0, sizeof *out);
    size_t values = (size_t)rows->count * (size_t)a->head_dim, lines = (size_t)rows->count;
    out->o = malloc((2 * values + 2 * lines + 1) * sizeof(double));
    out->facts = malloc((lines + 1) * sizeof *out->facts);
    if (!out->o || !out->facts) return reference_free(out), -1;
    out->plain_o = out->o + values, out->lse = out->plain_o + values, out->plain_lse = out->lse + lines;

    int workers = reference_workers(a), status = 0, signal[64] = {0};
    int64_t chunks = 0;
    struct scratch scratch[64] = {{.block = NULL}};
    struct forward f = {.a = a, .rows = rows, .out = out, .scratch = scratch, .signal = signal};
    int64_t *chunk = make_chunks(a, rows, &chunks);
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

// ---------------------------------------------------------------- backward

// Two sweeps, each writing only its own rows, so no sum is ever shared between threads: one over queries
// (LSE, delta, dQ), one over keys (dK, dV), which works the probabilities out once more.
struct backward {
    const struct attention *a;
    struct tensor d_o;
    double *lse, *delta;  // [batch][heads][seqlen_q]
    double *dq, *dk, *dv;
};

static double dot_rows(const struct attention *a, const void *x, const void *y) {
    double sum = 0;
    for (int c = 0; c < a->head_dim; ++c) sum += number_load(a->dtype, x, c) * number_load(a->dtype, y, c);
    return sum;
}

static void add_row(const struct attention *a, double factor, const void *x, double *sum) {
    for (int c = 0; c < a->head_dim; ++c) sum[c] += factor * number_load(a->dtype, x, c);
}

static double score(const struct attention *a, const void *q, const void *k) {
    return (double)a->scale * dot_rows(a, q, k);
}

static void backward_query(void *context, int64_t row, int worker) {
    (void)worker;
    const struct backward *b = context;
    const struct attention *a = b->a;
    size_t bytes = dtype_bytes(a->dtype);
    int64_t i = row % a->seqlen_q, head = row / a->seqlen_q % a->heads, batch = row / a->seqlen_q / a->heads;
    int64_t kv_head = kv_head_of(a, (int)head);
    struct span keys = visible_range(a, i);
    int sees = keys.first < keys.end;
    double *dq = b->dq + row * a->head_dim, max = -INFINITY, sum = 0, delta = 0;
    for (int c = 0; c < a->head_dim; ++c) dq[c] = 0;
    const void *q = row_of(a->q, batch, head, i, bytes), *d_o = row_of(b->d_o, batch, head, i, bytes);
    for (int64_t j = keys.first; j < keys.end; ++j)
        max = fmax(max, score(a, q, row_of(a->k, batch, kv_head, j, bytes)));
    for (int64_t j = keys.first; j < keys.end; ++j) {
        double e = exp(score(a, q, row_of(a->k, batch, kv_head, j, bytes)) - max);
        sum += e;
        delta += e * dot_rows(a, d_o, row_of(a->v, batch, kv_head, j, bytes));
    }
    b->lse[row] = sees ? max + log(sum) : -INFINITY;
    b->delta[row] = delta = sees ? delta / sum : 0;
    for (int64_t j = keys.first; j < keys.end; ++j) {
        const void *k = row_of(a->k, batch, kv_head, j, bytes);
        double p = exp(score(a, q, k) - b->lse[row]);
        double dp = dot_rows(a, d_o, row_of(a->v, batch, kv_head, j, bytes));
        add_row(a, (double)a->scale * p * (dp - delta), k, dq);
    }
}

static void backward_key(void *context, int64_t row, int worker) {
    (void)worker;
    const struct backward *b = context;
    const struct attention *a = b->a;
    size_t bytes = dtype_bytes(a->dtype);
    int64_t j = row % a->seqlen_k, kv_head = row / a->seqlen_k % a->kv_heads,
            batch = row / a->seqlen_k / a->kv_heads;
    double *dk = b->dk + row * a->head_dim, *dv = b->dv + row * a->head_dim;
    for (int c = 0; c < a->head_dim; ++c) dk[c] = dv[c] = 0;
    const void *k = row_of(a->k, batch, kv_head, j, bytes), *v = row_of(a->v, batch, kv_head, j, bytes);
    int64_t group = a->heads / a->kv_heads;
    struct sequence s = sequence_at(a, a->sequences ? sequence_of(a->cu_seqlens_k, a->sequences, j) : 0);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t i = s.first_query; i < s.first_query + s.seqlen_q; ++i) {
            struct span keys = visible_range(a, i);
            if (j < keys.first || j >= keys.end) continue;
            int64_t query = (batch * a->heads + head) * a->seqlen_q + i;
            const void *q = row_of(a->q, batch, head, i, bytes), *d_o = row_of(b->d_o, batch, head, i, bytes);
            double p = exp(score(a, q, k) - b->lse[query]);
            add_row(a, p, d_o, dv);
            add_row(a, (double)a->scale * p * (dot_rows(a, d_o, v) - b->delta[query]), q, dk);
        }
    }
}

int reference_backward(const struct attention *a, struct tensor d_o, double *dq, double *dk, double *dv) {
    int64_t queries = (int64_t)a->batch * a->heads * a->seqlen_q;
    struct backward b = {.a = a, .d_o = d_o, .dq = dq, .dk = dk, .dv = dv};
    b.lse = malloc((2 * (size_t)queries + 1) * sizeof(double));
    if (!b.lse) return -1;
    b.delta = b.lse + queries;
    parallel_for(queries, backward_query, &b);
    parallel_for((int64_t)a->batch * a->kv_heads * a->seqlen_k, backward_key, &b);
    free(b.lse);
    return 0;
}
