#include "mistakes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double mistake_work(const struct attention *a) {
    return 2.0 * a->batch * a->heads * a->seqlen_q * (double)a->seqlen_k * a->head_dim;
}

static int kv_head(const struct attention *a, enum kv_head which, int head) {
    switch (which) {
    case KV_REMAINDER:
        return head % a->kv_heads;
    case KV_BY_COUNT:
        return head / a->kv_heads % a->kv_heads;
    case KV_FIRST:
        return 0;
    case KV_RIGHT:
        break;
    }
    return kv_head_of(a, head);
}

static struct span seen_by(const struct attention *a, const struct mistake *mistake, int64_t i) {
    struct span span = visible_range(a, i);
    struct sequence s = sequence_at(a, a->sequences ? sequence_of(a->cu_seqlens_q, a->sequences, i) : 0);
    int keys_end = s.first_key + s.seqlen_k;
    int64_t end = span.end;
    if (mistake->mask == MASK_NONE) span.first = s.first_key, end = keys_end;
    if (mistake->mask == MASK_TOP_LEFT) end = s.first_key + (i - s.first_query) + 1;
    if (mistake->mask == MASK_NOT_ITSELF) end = span.end - 1;
    if (end > keys_end) end = keys_end;
    if (mistake->keys_of && end > keys_end - s.seqlen_k % mistake->keys_of)
        end = keys_end - s.seqlen_k % mistake->keys_of;
    span.end = (int)(end < span.first ? span.first : end);
    return span;
}

static const struct tensor *address(const struct tensor *t, int64_t batch, int64_t head, int64_t i,
                                    int64_t *at) {
    *at = batch * t->stride_batch + head * t->stride_head + i * t->stride_row;
    return t;
}

static double dot(const struct attention *a, const double *q, int64_t batch, int64_t head, int64_t key) {
    int64_t at;
    const struct tensor *k = address(&a->k, batch, head, key, &at);
    double sum = 0;
    for (int c = 0; c < a->head_dim; ++c) sum += q[c] * number_load(a->dtype, k->data, at + c);
    return sum;
}

// One row. `score` has room for a score of each key.
static double compute_row(const struct attention *a, const struct mistake *mistake, struct position p,
                          double *q, double *score, double *o) {
    int64_t at;
    const struct tensor *t = address(&a->q, p.batch, p.head, p.i, &at);
    for (int c = 0; c < a->head_dim; ++c) q[c] = number_load(a->dtype, t->data, at + c);
    struct span seen = seen_by(a, mistake, p.i);
    int head = kv_head(a, mistake->kv_head, p.head);
    int tile = mistake->tile ? mistake->tile : a->seqlen_k + 1;
    double m = -INFINITY, l = 0, scale = mistake->scale_is_1 ? 1 : (double)a->scale;
    double base = mistake->base_2 ? log(2.0) : 1;
    memset(o, 0, (size_t)a->head_dim * sizeof *o);
    for (int first = seen.first / tile * tile; first < seen.end; first += tile) {
        int begin = first > seen.first ? first : seen.first, end = first + tile;
        double before = m;
        if (end > seen.end) end = seen.end;
        for (int key = begin; key < end; ++key) {
            score[key] = mistake->uniform ? 0 : base * scale * dot(a, q, p.batch, head, key);
            m = fmax(m, score[key]);
        }
        double factor = l == 0 ? 1 : exp(before - m);
        if (!mistake->l_kept) l *= factor;
        for (int c = 0; c < a->head_dim && !mistake->o_kept; ++c) o[c] *= factor;
        for (int key = begin; key < end; ++key) {
            double weight = exp(score[key] - m);
            const struct tensor *v = address(&a->v, p.batch, head, key, &at);
            l += weight;
            for (int c = 0; c < a->head_dim; ++c) o[c] += weight * number_load(a->dtype, v->data, at + c);
        }
    }
    int padding =
        mistake->zeros_to ? (mistake->zeros_to - a->seqlen_k % mistake->zeros_to) % mistake->zeros_to : 0;
    if (l > 0) l += padding * exp(-m);
    for (int c = 0; c < a->head_dim && l > 0 && !mistake->not_divided; ++c) o[c] /= l;
    return l > 0 ? m + log(l) : -INFINITY;
}

int mistake_compute(const struct attention *a, const struct mistake *mistake, double *o, double *lse) {
    double *q = malloc(((size_t)a->head_dim + (size_t)a->seqlen_k + 1) * sizeof *q);
    if (!q) return -1;
    for (int64_t query = 0; query < query_count(a); ++query)
        lse[query] =
            compute_row(a, mistake, position_of(a, query), q, q + a->head_dim, o + query * a->head_dim);
    free(q);
    return 0;
}
