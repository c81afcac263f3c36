#include <string.h>

#include "backward_sweeps.h"

static struct row_facts exact_query(const struct attention *a, struct scratch *w, struct span keys,
                                    struct query *query, double *dq) {
    struct seen k = seen_in(a, &w->left, keys), v = seen_in(a, &w->right, keys);
    double *p = w->s + k.before, *ds = w->ds + k.before, delta = 0, magnitude = 0, v_norm = 0;
    dots_double(w->x, k.lanes, a->head_dim, k.before + k.n, w->s);
    dots_double(w->y, v.lanes, a->head_dim, k.before + k.n, w->ds);
    struct softmax row = softmax_double(p, k.n, (double)a->scale);
    for (int64_t j = 0; j < k.n; ++j) {
        double term = (p[j] /= row.sum) * ds[j];
        delta += term, magnitude += fabs(term);
        v_norm += p[j] * (double)w->right.norm[keys.first + j];
    }
    for (int64_t j = 0; j < k.n; ++j) ds[j] = (double)a->scale * p[j] * (ds[j] - delta);
    weighted_double(ds, k.rows, a->head_dim, k.n, w->sum);
    memcpy(dq, w->sum, (size_t)a->head_dim * sizeof *dq);

    double d_o = w->y_norm, scale = fabs((double)a->scale), k_max = (double)largest(w->left.max, keys);
    double product = scale * w->x_norm * (double)largest(w->left.norm, keys);
    enum dtype score_type = kept_type(a, row.largest);
    double error = score_error(a, product, row.largest, score_type);
    *query = (struct query){.lse = row.max + log(row.sum),
                            .delta = delta,
                            .lse_error = error + (double)k.n * 0x1p-24,
                            .delta_error = magnitude,  // and more in least_of_query
                            .terms = d_o * v_norm,
                            .product = product,
                            .score_type = score_type};
    double dp_max = d_o * (double)largest(w->right.norm, keys);
    double share = share_of_ds(a, growth(error + query->lse_error) + unit(a), k.n);
    return (struct row_facts){.keys = k.n,
                              .score = row.largest,
                              .o = {.scale = scale * k_max * (magnitude + fabs(delta)),
                                    .worst = k_max * (scale * fmin(2 * query->terms * share, 4 * dp_max) +
                                                      (double)k.n * lost(a, 2 * dp_max, d_o)),
                                    .sums = scale * k_max * 2 * query->terms * fmax(product, 1)}};
}

static void plain_query(const struct attention *a, struct scratch *w, struct span keys, struct query *query,
                        double *dq) {
    struct seen k = seen_in(a, &w->left, keys), v = seen_in(a, &w->right, keys);
    float *p = w->plain_s + k.before, *ds = w->plain_ds + k.before, delta = 0;
    dots_float(w->x, k.lanes, a->head_dim, k.before + k.n, w->plain_s);
    dots_float(w->y, v.lanes, a->head_dim, k.before + k.n, w->plain_ds);
    struct softmax row = softmax_float(p, k.n, a->scale, query->score_type);
    for (int64_t j = 0; j < k.n; ++j) {
        p[j] = rounded(a->dtype, p[j] / (float)row.sum);
        ds[j] = rounded(kept_type(a, fabs((double)ds[j])), ds[j]);
        delta += p[j] * ds[j];
    }
    for (int64_t j = 0; j < k.n; ++j) ds[j] = rounded(a->dtype, p[j] * (ds[j] - delta) * a->scale);
    weighted_float(ds, k.rows, a->head_dim, k.n, w->plain_sum);
    for (int c = 0; c < a->head_dim; ++c) dq[c] = number_round(a->dtype, (double)w->plain_sum[c]);
    query->plain_max = (float)row.max, query->plain_sum = (float)row.sum, query->plain_delta = delta;
}

// What least is of dQ; completes delta_error. After both of the above.
static double least_of_query(const struct attention *a, struct scratch *w, struct span keys,
                             struct query *query) {
    struct seen k = seen_in(a, &w->left, keys), v = seen_in(a, &w->right, keys);
    double of_o = 0;
    weighted_float(w->plain_s + k.before, v.rows, a->head_dim, k.n, w->plain_sum);  // O
    for (int c = 0; c < a->head_dim; ++c) {
        double term = (double)w->y[c] * (double)w->plain_sum[c];
        of_o += term * term;
    }
    query->delta_error = unit(a) * hypot(query->delta_error, sqrt(of_o));
    weighted_float(w->plain_s + k.before, k.rows, a->head_dim, k.n, w->plain_sum);  // the mean key
    return fabs((double)a->scale) * query->delta_error * (double)max_of(w->plain_sum, a->head_dim);
}

void query_chunk(void *context, int64_t chunk, int worker) {
    const struct sweep *f = context;
    const struct attention *a = f->a;
    struct scratch *w = &f->scratch[worker];
    struct gradient *g = &f->out[GRADIENT_Q];
    for (int64_t r = f->chunk[chunk]; r < f->chunk[chunk + 1]; ++r) {
        int64_t row = rows_at(&g->rows, r);
        struct position at = position_of(a, row);
        struct span keys = visible_range(a, at.i);
        double *dq = g->exact + r * a->head_dim, *plain = g->plain + r * a->head_dim;
        struct query query;
        if (keys.first == keys.end) {
            for (int c = 0; c < a->head_dim; ++c) dq[c] = plain[c] = 0;
            g->facts[r] = (struct row_facts){.keys = 0};
            continue;  // and no key will ask for it
        }
        int kv_head = kv_head_of(a, at.head);
        if (w->batch != at.batch || w->head != kv_head) {
            unpack_head(a, a->k, at.batch, kv_head, a->seqlen_k, &w->left);
            unpack_head(a, a->v, at.batch, kv_head, a->seqlen_k, &w->right);
            w->batch = at.batch, w->head = kv_head;
        }
        unpack_rows(a, w, a->q, a->d_o, at.batch, at.head, at.i);
        g->facts[r] = exact_query(a, w, keys, &query, dq);
        plain_query(a, w, keys, &query, plain);
        g->facts[r].o.least = least_of_query(a, w, keys, &query);
        finish(&g->facts[r].o);
        if (f->queries) f->queries[row] = query;
    }
}
