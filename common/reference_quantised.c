// reference_quantised.c - the plain implementation for kernels that quantise to e4m3 (quantise.h).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "e4m3_sum.h"
#include "parallel.h"
#include "products.h"
#include "reference.h"
#include "rows.h"

// One head of K and V as a quantising kernel has them, in fp32: of K the stored numbers times their scales,
// of V without, as its products are cut off before they are scaled.
struct quantised_head {
    int64_t batch, kv_head;  // which one; batch -1: none yet
    struct unpacked k, v;    // of K the lanes, `width` numbers a key; of V the rows
    float *v_scale;          // [blocks]
    float *k_off;            // [tokens]: Euclidean norm of what quantising changed in the row
    float *v_off;            // [tokens]: the largest |element| of that
    int infinite;            // K or V holds an infinity
};

// The same of one block of Q.
struct quantised_queries {
    int64_t first;  // the first row's number through [batch][heads][seqlen_q]; -1: none yet
    float *rows;    // [QUANTISE_BLOCK][width]
    float *off;     // [QUANTISE_BLOCK], as k_off
    int infinite;
};

// Memory of one worker; each pointer is into `floats`.
struct scratch {
    struct quantised_head head;
    struct quantised_queries q;
    float *flat;     // [tokens][width], K or V on the way to `head`
    float *s;        // [tokens + LANES]
    float *sum, *o;  // [columns]
    float *floats;
};

struct emulation {
    const struct attention *a;
    int rotated;
    int width;                    // columns of Q and K: head_dim, or those of the rotation
    struct attention wide, flat;  // for products.h: a in fp32, with rows of `width` and of head_dim elements
    const struct rows *rows;
    const struct reference *truth;
    struct reference *out;
    const int64_t *chunk;  // chunk n: rows chunk[n] ... chunk[n + 1] - 1, all of one batch and KV head
    struct scratch *scratch;
};

static struct emulation emulation_of(const struct attention *a, enum quantised as) {
    struct emulation e = {.a = a, .rotated = as == QUANTISED_E4M3_ROTATED, .wide = *a, .flat = *a};
    e.width = e.rotated ? quantise_columns(a->head_dim) : a->head_dim;
    e.wide.dtype = e.flat.dtype = DTYPE_FP32;
    e.wide.head_dim = e.width;
    return e;
}

// ---------------------------------------------------------------- memory

static double scratch_bytes(const struct emulation *e) {
    double tokens = e->a->seqlen_k, block = QUANTISE_BLOCK, width = e->width;
    double rows = tokens * (width + 4) + 1 + 2 * LANES + block * (width + 1) + 2 * (width + LANES);
    return sizeof(float) * (rows + unpacked_floats(&e->wide, tokens, KEEP_LANES) +
                            unpacked_floats(&e->flat, tokens, KEEP_ROWS));
}

static int scratch_make(const struct emulation *e, struct scratch *w) {
    int64_t tokens = e->a->seqlen_k, width = e->width;
    w->floats = calloc(1, (size_t)scratch_bytes(e));
    if (!w->floats) return -1;
    w->flat = w->floats;
    w->s = w->flat + tokens * width, w->o = w->s + unpacked_tokens(tokens);
    w->sum = w->o + round_up(width, LANES), w->q.rows = w->sum + round_up(width, LANES);
    w->q.off = w->q.rows + QUANTISE_BLOCK * width, w->head.k_off = w->q.off + QUANTISE_BLOCK;
    w->head.v_off = w->head.k_off + tokens, w->head.v_scale = w->head.v_off + tokens;
    float *next = w->head.v_scale + quantise_blocks(tokens);
    next = place_unpacked(&e->wide, tokens, KEEP_LANES, next, &w->head.k);
    place_unpacked(&e->flat, tokens, KEEP_ROWS, next, &w->head.v);
    w->head.batch = w->q.first = -1;
    return 0;
}

double reference_quantised_bytes(const struct attention *a) {
    struct emulation e = emulation_of(a, QUANTISED_E4M3_ROTATED);
    return reference_row_bytes(a) + (reference_row_bytes(a) > 0 ? scratch_bytes(&e) : 0);
}

// ---------------------------------------------------------------- quantising

// What quantising did to a row.
struct off {
    float norm, max;
};

// `width` numbers of a block whose amax is known, to e4m3 and back; or only to e4m3.
static struct off round_trip(float *x, int width, float amax, int back) {
    float scale = quantise_scale(amax), inverse = quantise_inverse(amax), max = 0;
    double squares = 0;
    for (int c = 0; c < width; ++c) {
        float stored = float_from_e4m3(e4m3_from_float(quantise_scaled(x[c], inverse)));
        float off = fabsf(stored * scale - x[c]);
        if (off > max) max = off;
        if (off > 0) squares += (double)off * (double)off;  // false of NaN
        x[c] = back ? stored * scale : stored;
    }
    return (struct off){(float)sqrt(squares), max};
}

// One block of a head: its tokens, from memory to what a quantising kernel has of them, [tokens][width]. With
// `scale`, that is left to be multiplied by it. Returns whether there is an infinity among them; `off` has
// room for each.
static int quantise_block(const struct emulation *e, struct tensor t, int64_t batch, int64_t head,
                          struct span tokens, int width, int rotate, float *to, struct off *off,
                          float *scale) {
    const struct attention *a = e->a;
    int infinite = 0, count = tokens.end - tokens.first;
    float amax = 0;
    for (int i = 0; i < count; ++i) {
        float *x = to + (int64_t)i * width;
        unpack_row(a, t, batch, head, tokens.first + i, x);
        for (int c = 0; c < a->head_dim; ++c) infinite |= isinf(x[c]) != 0;
        for (int c = a->head_dim; c < width; ++c) x[c] = 0;
        if (rotate) quantise_rotate(x, width);
        for (int c = 0; c < width; ++c) amax = quantise_amax(amax, x[c]);
    }
    for (int i = 0; i < count; ++i) off[i] = round_trip(to + (int64_t)i * width, width, amax, !scale);
    if (scale) *scale = quantise_scale(amax);
    return infinite;
}

static struct span block_at(int first, int tokens) {
    return (struct span){first, tokens - first < QUANTISE_BLOCK ? tokens : first + QUANTISE_BLOCK};
}

static void take_head(const struct emulation *e, int64_t batch, int64_t kv_head, struct scratch *w) {
    const struct attention *a = e->a;
    struct quantised_head *h = &w->head;
    if (h->batch == batch && h->kv_head == kv_head) return;
    h->batch = batch, h->kv_head = kv_head, h->infinite = 0;
    for (int of_v = 0; of_v < 2; ++of_v) {
        int width = of_v ? a->head_dim : e->width;
        for (int first = 0; first < a->seqlen_k; first += QUANTISE_BLOCK) {
            struct off off[QUANTISE_BLOCK];
            struct span block = block_at(first, a->seqlen_k);
            h->infinite |= quantise_block(e, of_v ? a->v : a->k, batch, kv_head, block, width,
                                          !of_v && e->rotated, w->flat + (int64_t)first * width, off,
                                          of_v ? &h->v_scale[first / QUANTISE_BLOCK] : NULL);
            for (int j = first; j < block.end; ++j)
                if (of_v)
                    h->v_off[j] = off[j - first].max;
                else
                    h->k_off[j] = off[j - first].norm;
        }
        struct tensor quantised = {.data = w->flat, .stride_row = width};
        unpack_head(of_v ? &e->flat : &e->wide, quantised, 0, 0, a->seqlen_k, of_v ? &h->v : &h->k);
    }
}

// The block of Q that query (batch, head, i) is in; returns the query's place in it.
static int take_query(const struct emulation *e, int64_t batch, int64_t head, int64_t i, struct scratch *w) {
    const struct attention *a = e->a;
    struct quantised_queries *q = &w->q;
    struct off off[QUANTISE_BLOCK];
    int at = (int)(i % QUANTISE_BLOCK);
    int64_t first = (batch * a->heads + head) * a->seqlen_q + i - at;
    if (q->first == first) return at;
    q->first = first;
    struct span block = block_at((int)i - at, a->seqlen_q);
    q->infinite = quantise_block(e, a->q, batch, head, block, e->width, e->rotated, q->rows, off, NULL);
    for (int n = 0; n < block.end - block.first; ++n) q->off[n] = off[n].norm;
    return at;
}

// ---------------------------------------------------------------- one row

// p, in [0, 256], as e4m3; adds to *squares that of what rounding it changes where its place between two
// numbers is as good as random: of numbers `step` apart step / sqrt(12) in the mean, of what becomes 0 all.
// exact: that is 256 in every order of the keys.
static float store_p(float p, float v_max, int exact, double *squares) {
    float stored = float_from_e4m3(e4m3_from_float(p));
    int exponent = (int)(bits_of_float(stored) >> 23) - 127;
    double step = ldexp(1, (exponent > -6 ? exponent : -6) - 3),
           size = stored > 0 ? step / sqrt(12) : (double)p;
    if (!exact) *squares += size * size * (double)v_max * (double)v_max;
    return stored;
}

// What the tensor cores cut off of 32 products and of their sum with *sum, in a column in which V has the
// largest of each row, v_max: where its place is as good as random half a unit in the mean, and of what is
// smaller all. (A product has 8 bits: nothing is cut off of the larger ones.)
static double cut_off(const struct e4m3_row *p, const float *v_max, int count, double *sum) {
    int top = *sum > 0 ? ilogb(*sum) : E4M3_LOWEST - 2 * E4M3_BIAS;
    double cut = 0, terms = *sum;
    for (int k = 0; k < count; ++k) {
        int exponent = p->exponent[k] + e4m3_exponent(v_max[k]) - 2 * E4M3_BIAS;
        if (exponent > top) top = exponent;
    }
    for (int k = 0; k < count; ++k) {
        double product = (double)p->value[k] * (double)v_max[k];
        int lowest = p->exponent[k] + e4m3_exponent(v_max[k]) - 2 * E4M3_BIAS - 6;
        if (lowest < top - E4M3_KEPT) cut += fmin(product, ldexp(1, top - E4M3_KEPT - 1));
        terms += product;
    }
    *sum = terms;
    return cut + (terms > 0 ? ldexp(1, ilogb(terms) - E4M3_KEPT - 1) : 0);
}

// O = P V of one row, as the tensor cores sum it: see e4m3_sum.h. After QUANTISE_SUMMED keys fp32 goes on
// from 0. In between a sum changes its unit with the scale of V. Returns what part of it cut_off says is
// lost: as signs do not go by size, it is the same part of every column.
static double sum_p_v(const struct quantised_head *h, struct span keys, const float *p, int head_dim,
                      float *sum, float *o) {
    int columns = (int)round_up(head_dim, LANES), count;
    double cut = 0, all = 0, of_largest = 0;
    memset(sum, 0, sizeof *sum * (size_t)columns), memset(o, 0, sizeof *o * (size_t)columns);
    for (int j = keys.first; j < keys.end; j += count) {
        struct e4m3_row row;
        struct e4m3_columns v;
        float scale = h->v_scale[j / QUANTISE_BLOCK];
        int end = j - j % E4M3_TERMS + E4M3_TERMS;
        count = (end < keys.end ? end : keys.end) - j;
        e4m3_set_row(p + j - keys.first, 1, count, &row);
        cut += (double)scale * cut_off(&row, h->v.max + j, count, &of_largest);
        for (int c = 0; c < columns; c += E4M3_COLUMNS) {
            e4m3_set_columns(h->v.rows + j * h->v.row_step + c, (int)h->v.row_step, count, &v);
            e4m3_add(&row, &v, sum + c);
        }
        if (end % QUANTISE_BLOCK && end < keys.end) continue;
        // The next block's unit is 1 / by of this one's.
        float by = end < keys.end ? scale / h->v_scale[end / QUANTISE_BLOCK] : 0;
        int promoted = end % QUANTISE_SUMMED == 0 || end >= keys.end || by > 0x1p60f;
        for (int c = 0; c < columns; ++c) {
            if (promoted) o[c] += sum[c] * scale;
            sum[c] = promoted ? 0 : sum[c] * by;
        }
        if (promoted) all += of_largest * (double)scale;
        of_largest = promoted ? 0 : of_largest * (double)by;
    }
    return all > 0 ? cut / all : 0;
}

// Returns what O has to be allowed to be off by, however lucky this order of the keys is: twice what P's
// rounding is off by in the mean, as that goes either way; and what is cut off in the mean, as all of it goes
// the same way, and no term loses more than twice as much.
static double emulate_row(const struct emulation *e, struct scratch *w, struct span keys, const float *x,
                          double *o, double *lse) {
    const struct attention *a = e->a;
    const struct quantised_head *h = &w->head;
    struct seen k = seen_in(&e->wide, &h->k, keys);
    dots_float(x, k.lanes, e->width, k.before + k.n, w->s);
    float *p = w->s + k.before;
    struct softmax row = softmax_float(p, k.n, a->scale, DTYPE_FP32);
    float sum = (float)row.sum;
    double squares = 0;
    int largest = 0;
    for (int64_t j = 0; j < k.n; ++j) largest += p[j] == 1;
    // The row's largest is exact in every order of the keys. But of several in different blocks one may be
    // all that is: a kernel may have the scale of V in P, and a maximum that stays behind a little.
    int exact = largest == 1 || keys.end - keys.first <= QUANTISE_BLOCK;
    for (int j = keys.first; j < keys.end; ++j) {
        float v_max = h->v.max[j] * h->v_scale[j / QUANTISE_BLOCK];
        float *at = &p[j - keys.first];
        *at = store_p(*at * QUANTISE_P_MAX, v_max, exact && *at == 1, &squares);
    }
    double part = sum_p_v(h, keys, p, a->head_dim, w->sum, w->o);
    for (int c = 0; c < a->head_dim; ++c)
        o[c] = number_round(a->dtype, (double)(w->o[c] / (QUANTISE_P_MAX * sum)));
    *lse = (double)((float)row.max + logf(sum));
    return (2 * sqrt(squares) + part * (double)max_of(w->o, a->head_dim)) / (double)(QUANTISE_P_MAX * sum);
}

// The worst cases of row_error: see reference_quantised.
static void worst_cases(const struct emulation *e, const struct scratch *w, struct span keys, int query,
                        struct row_facts *facts) {
    const struct attention *a = e->a;
    double n = (double)facts->keys, scale = fabs((double)a->scale), p_unit = dtype_unit_roundoff(DTYPE_E4M3);
    double q = (double)norm_of(w->q.rows + (int64_t)query * e->width, e->width),
           q_off = (double)w->q.off[query];
    double k = (double)largest(w->head.k.norm, keys), k_off = (double)largest(w->head.k_off, keys);
    double v_off = (double)largest(w->head.v_off, keys), sums = n * 0x1p-24;
    double error = score_error(&e->wide, scale * q * k, facts->score, DTYPE_FP32) +
                   scale * (q * k_off + q_off * k + q_off * k_off);
    double cut = (n + 2 * ceil(n / E4M3_TERMS) + 2) * ldexp(1, -E4M3_KEPT);
    double subnormal = n * dtype_min_positive(DTYPE_E4M3) / 2 / (double)QUANTISE_P_MAX;
    double share = expm1(2 * error) + p_unit + 2 * dtype_unit_roundoff(a->dtype) + subnormal + 2 * sums + cut;
    facts->o.worst = (facts->o.scale + v_off) * fmin(share, 2 + p_unit) + v_off;
    facts->lse.worst = error + sums;
}

static void emulate_chunk(void *context, int64_t chunk, int worker) {
    const struct emulation *e = context;
    const struct attention *a = e->a;
    struct scratch *w = &e->scratch[worker];
    for (int64_t r = e->chunk[chunk]; r < e->chunk[chunk + 1]; ++r) {
        int64_t row = rows_at(e->rows, r), i = row % a->seqlen_q;
        int64_t head = row / a->seqlen_q % a->heads, batch = row / a->seqlen_q / a->heads;
        double *o = e->out->o + r * a->head_dim, *plain_o = e->out->plain_o + r * a->head_dim;
        double *lse = &e->out->lse[r], *plain_lse = &e->out->plain_lse[r];
        struct span keys = visible_range(a, i);
        memcpy(o, e->truth->o + r * a->head_dim, (size_t)a->head_dim * sizeof *o);
        *lse = e->truth->lse[r], e->out->facts[r] = e->truth->facts[r];
        if (keys.first == keys.end) {
            for (int c = 0; c < a->head_dim; ++c) plain_o[c] = 0;
            *plain_lse = -INFINITY;
            continue;
        }
        take_head(e, batch, kv_head_of(a, (int)head), w);
        int query = take_query(e, batch, head, i, w);
        double off = emulate_row(e, w, keys, w->q.rows + (int64_t)query * e->width, plain_o, plain_lse);
        struct row_facts *facts = &e->out->facts[r];
        worst_cases(e, w, keys, query, facts);
        facts->o.least = isfinite(off) ? fmin(off, facts->o.worst) : 0;
        if (!w->head.infinite && !w->q.infinite) continue;
        for (int c = 0; c < a->head_dim; ++c)
            if (isnan(plain_o[c])) o[c] = NAN;
        if (isnan(*plain_lse)) *lse = NAN;
    }
}

int reference_quantised(const struct attention *a, const struct rows *rows, enum quantised as,
                        const struct reference *truth, struct reference *out) {
    if (reference_make(a, rows, out) != 0) return -1;
    struct scratch scratch[64] = {{.floats = NULL}};
    struct emulation e = emulation_of(a, as);
    int workers = workers_for(scratch_bytes(&e)), status = 0;
    int64_t chunks = 0, *chunk = rows_chunks(rows, (int64_t)a->seqlen_q * (a->heads / a->kv_heads), &chunks);
    e.rows = rows, e.truth = truth, e.out = out, e.chunk = chunk, e.scratch = scratch;
    if (!chunk) status = -1;
    for (int i = 0; i < workers && i < chunks && status == 0; ++i) status = scratch_make(&e, &scratch[i]);
    if (status == 0) parallel_for_on(workers, chunks, emulate_chunk, &e);
    for (int i = 0; i < workers; ++i) free(scratch[i].floats);
    free(chunk);
    if (status != 0) reference_free(out);
    out->has_signal = truth->has_signal, out->largest_score = truth->largest_score;
    return status;
}
