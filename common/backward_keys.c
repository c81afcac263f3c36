#include <string.h>

#include "backward_sweeps.h"

// The queries that see key j of its sequence; both numbered as in their tensors.
static struct span seen_by(const struct attention *a, int64_t j) {
    struct sequence s = sequence_at(a, a->sequences ? sequence_of(a->cu_seqlens_k, a->sequences, j) : 0);
    int64_t at = j - s.first_key - s.seqlen_k + s.seqlen_q, first = 0, end = s.seqlen_q;
    int right = a->causal ? 0 : a->window ? a->window_right : NO_LIMIT;
    if (right != NO_LIMIT && at - right > first) first = at - right;
    if (a->window && a->window_left != NO_LIMIT && at + a->window_left + 1 < end)
        end = at + a->window_left + 1;
    if (end < 0) end = 0;
    if (first > end) first = end;
    return (struct span){(int)first + s.first_query, (int)end + s.first_query};
}

// One head of Q and dO; and, where they are given, LSE and delta of its queries.
static void unpack_queries(const struct sweep *f, struct scratch *w, int64_t batch, int64_t head) {
    const struct attention *a = f->a;
    if (w->batch == batch && w->head == head) return;
    w->batch = batch, w->head = head;
    unpack_head(a, a->q, batch, head, a->seqlen_q, &w->left);
    unpack_head(a, a->d_o, batch, head, a->seqlen_q, &w->right);
    for (int64_t i = 0; i < a->seqlen_q && !f->queries; ++i) {
        const float *d_o = w->right.rows + i * w->right.row_step, *o = w->plain_sum;
        struct query query = {.lse = (double)a->lse[(batch * a->heads + head) * a->seqlen_q + i],
                              .score_type = a->dtype};
        query.plain_max = (float)query.lse, query.plain_sum = 1;
        unpack_row(a, a->o, batch, head, i, w->plain_sum);
        for (int c = 0; c < a->head_dim; ++c) {
            double term = (double)d_o[c] * (double)o[c];
            query.delta += term, query.terms += fabs(term), query.plain_delta += d_o[c] * o[c];
            query.delta_error += term * term;
        }
        query.delta_error = unit(a) * sqrt(query.delta_error);
        w->given[i] = query;
    }
}

// The plain implementation keeps the scores of a query in fp32 where one is too large for the storage type.
// Of a given query it is not known whether one is, so it is this one that decides.
static enum dtype score_type(const struct attention *a, const struct query *at, double score) {
    return at->score_type == DTYPE_FP32 ? DTYPE_FP32 : kept_type(a, fabs(score));
}

// Adds what one pair gives to the errors of dK and dV (`least` squared); i is the query's place in what is
// unpacked, `terms` how many pairs there are.
struct pair {
    double score, p, dp;
};
static void add_pair(const struct attention *a, const struct scratch *w, const struct query *at,
                     struct pair pair, int64_t i, int64_t terms, struct row_error *k, struct row_error *v) {
    double scale = fabs((double)a->scale), u = unit(a), d_o = (double)w->right.norm[i];
    double q_max = (double)w->left.max[i], d_o_max = (double)w->right.max[i];
    double product = scale * w->x_norm * (double)w->left.norm[i], magnitude = d_o * w->y_norm + at->terms;
    double reach = product > at->product ? product : at->product;
    if (reach < 1) reach = 1;
    double share =
        growth(score_error(a, product, pair.score, score_type(a, at, pair.score)) + at->lse_error) + u;
    double of_p = pair.p * (share + u + (double)terms * 0x1p-24),
           of_ds = pair.p * share_of_ds(a, share, terms);
    double of_delta = q_max * scale * pair.p * at->delta_error;
    v->scale += d_o_max * pair.p;
    v->worst += d_o_max * ((of_p < 1 ? of_p : 1) + dtype_min_positive(a->dtype) / 2);
    v->sums += d_o_max * pair.p * reach;
    k->scale += q_max * scale * pair.p * (fabs(pair.dp) + fabs(at->delta));
    k->worst += q_max * (scale * magnitude * (of_ds < 2 ? of_ds : 2) + lost(a, magnitude, d_o));
    k->sums += q_max * scale * pair.p * magnitude * reach;
    k->least += of_delta * of_delta;
}

// Adds what the queries of one head give to dK and dV of the key in w->x and w->y.
static void exact_key(const struct attention *a, struct scratch *w, const struct query *query,
                      struct span queries, struct row_facts *k_facts, struct row_facts *v_facts, double *dk,
                      double *dv) {
    struct seen q = seen_in(a, &w->left, queries), d_o = seen_in(a, &w->right, queries);
    double *s = w->s + q.before, *ds = w->ds + q.before;
    struct row_error k = k_facts->o, v = v_facts->o;
    dots_double(w->x, q.lanes, a->head_dim, q.before + q.n, w->s);
    dots_double(w->y, d_o.lanes, a->head_dim, q.before + q.n, w->ds);
    for (int64_t i = 0; i < q.n; ++i) {
        struct pair pair = {.score = (double)a->scale * s[i], .dp = ds[i]};
        pair.p = exp(pair.score - query[i].lse);
        add_pair(a, w, &query[i], pair, queries.first + i, q.n, &k, &v);
        s[i] = pair.p, ds[i] = (double)a->scale * pair.p * (pair.dp - query[i].delta);
    }
    k_facts->o = k, v_facts->o = v, k_facts->keys += q.n;
    weighted_double(ds, q.rows, a->head_dim, q.n, w->sum);
    for (int c = 0; c < a->head_dim; ++c) dk[c] += w->sum[c];
    weighted_double(s, d_o.rows, a->head_dim, q.n, w->sum);
    for (int c = 0; c < a->head_dim; ++c) dv[c] += w->sum[c];
}

// The same in the plain implementation: dk and dv hold sums in fp32.
static void plain_key(const struct attention *a, struct scratch *w, const struct query *query,
                      struct span queries, double *dk, double *dv) {
    struct seen q = seen_in(a, &w->left, queries), d_o = seen_in(a, &w->right, queries);
    float *s = w->plain_s + q.before, *ds = w->plain_ds + q.before;
    dots_float(w->x, q.lanes, a->head_dim, q.before + q.n, w->plain_s);
    dots_float(w->y, d_o.lanes, a->head_dim, q.before + q.n, w->plain_ds);
    for (int64_t i = 0; i < q.n; ++i) {
        const struct query *at = &query[i];
        float score = s[i] * a->scale;
        score = rounded(score_type(a, at, (double)score), score);
        s[i] = rounded(a->dtype, expf(score - at->plain_max) / at->plain_sum);
        float dp = rounded(kept_type(a, fabs((double)ds[i])), ds[i]);
        ds[i] = rounded(a->dtype, s[i] * (dp - at->plain_delta) * a->scale);
    }
    weighted_float(ds, q.rows, a->head_dim, q.n, w->plain_sum);
    for (int c = 0; c < a->head_dim; ++c) dk[c] = (double)((float)dk[c] + w->plain_sum[c]);
    weighted_float(s, d_o.rows, a->head_dim, q.n, w->plain_sum);
    for (int c = 0; c < a->head_dim; ++c) dv[c] = (double)((float)dv[c] + w->plain_sum[c]);
}

void key_chunk(void *context, int64_t chunk, int worker) {
    const struct sweep *f = context;
    const struct attention *a = f->a;
    struct scratch *w = &f->scratch[worker];
    struct gradient *k = &f->out[GRADIENT_K], *v = &f->out[GRADIENT_V];
    int64_t begin = f->chunk[chunk], end = f->chunk[chunk + 1], dim = a->head_dim;
    size_t bytes = (size_t)((end - begin) * dim) * sizeof(double);
    memset(k->exact + begin * dim, 0, bytes), memset(k->plain + begin * dim, 0, bytes);
    memset(v->exact + begin * dim, 0, bytes), memset(v->plain + begin * dim, 0, bytes);
    memset(k->facts + begin, 0, (size_t)(end - begin) * sizeof *k->facts);
    memset(v->facts + begin, 0, (size_t)(end - begin) * sizeof *v->facts);
    int64_t head_of_all = rows_at(&k->rows, begin) / a->seqlen_k, group = a->heads / a->kv_heads;
    int64_t batch = head_of_all / a->kv_heads, kv_head = head_of_all % a->kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        unpack_queries(f, w, batch, head);
        const struct query *queries =
            f->queries ? f->queries + (batch * a->heads + head) * a->seqlen_q : w->given;
        for (int64_t r = begin; r < end; ++r) {
            int64_t j = rows_at(&k->rows, r) % a->seqlen_k, at = r * dim;
            struct span span = seen_by(a, j);
            unpack_rows(a, w, a->k, a->v, batch, kv_head, j);
            exact_key(a, w, queries + span.first, span, &k->facts[r], &v->facts[r], k->exact + at,
                      v->exact + at);
            plain_key(a, w, queries + span.first, span, k->plain + at, v->plain + at);
        }
    }
    for (int64_t r = begin; r < end; ++r) {
        k->facts[r].o.least = sqrt(k->facts[r].o.least);
        finish(&k->facts[r].o), finish(&v->facts[r].o);
        v->facts[r].keys = k->facts[r].keys;
    }
    for (int64_t i = begin * dim; i < end * dim; ++i) {
        k->plain[i] = number_round(a->dtype, k->plain[i]);
        v->plain[i] = number_round(a->dtype, v->plain[i]);
    }
}
