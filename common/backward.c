#include "backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel.h"
#include "rows.h"
#include "backward_sweeps.h"

static double scratch_bytes(const struct attention *a, int64_t tokens) {
    double columns = (double)round_up(a->head_dim, LANES), room = (double)tokens + 2.0 * LANES;
    double floats = 2 * unpacked_floats(a, (double)tokens, KEEP_LANES | KEEP_ROWS) + 2 * room + 3 * columns;
    return (2 * room + columns) * sizeof(double) + floats * sizeof(float) + room * sizeof(struct query);
}

static int scratch_make(const struct attention *a, int64_t tokens, struct scratch *w) {
    int64_t columns = round_up(a->head_dim, LANES), room = unpacked_tokens(tokens);
    w->block = calloc(1, (size_t)scratch_bytes(a, tokens));
    if (!w->block) return -1;
    w->given = w->block;
    void *doubles = w->given + room;
    w->s = doubles, w->ds = w->s + room, w->sum = w->ds + room;
    void *floats = w->sum + columns;
    w->plain_s = floats, w->plain_ds = w->plain_s + room;
    w->plain_sum = w->plain_ds + room, w->x = w->plain_sum + columns, w->y = w->x + columns;
    float *next = place_unpacked(a, tokens, KEEP_LANES | KEEP_ROWS, w->y + columns, &w->left);
    place_unpacked(a, tokens, KEEP_LANES | KEEP_ROWS, next, &w->right);
    w->batch = -1;
    return 0;
}

static double query_total(const struct attention *a) { return (double)query_count(a); }
static double key_total(const struct attention *a) { return (double)key_count(a); }

// How many rows of dQ, and how many of dK and dV, the budget allows; infinity: all.
struct plan {
    double queries, keys;
};
static struct plan plan(const struct attention *a, double budget) {
    // Of seven products, three are for dQ and four for dK and dV; all else that a pair takes is worth 40
    // columns.
    double pairs_of_query = keys_of_row(a);
    double pairs_of_key =
        a->seqlen_k ? pairs_of_query * a->seqlen_q / a->seqlen_k * a->heads / a->kv_heads : 0;
    double query = 3.0 / 2 * (a->head_dim + 40.0) * (pairs_of_query + 64);
    double key = 4.0 / 2 * (a->head_dim + 40.0) * (pairs_of_key + 64);
    if (query_total(a) * query + key_total(a) * key <= budget) return (struct plan){INFINITY, INFINITY};
    return (struct plan){budget / 2 / query, budget / 2 / key};
}

double gradients_bytes(const struct attention *a) {
    struct plan p = plan(a, REFERENCE_BUDGET);
    double queries = rows_count(query_total(a), p.queries), keys = rows_count(key_total(a), p.keys);
    double row = 2.0 * a->head_dim * sizeof(double) + sizeof(struct row_facts);
    int64_t tokens = a->seqlen_q > a->seqlen_k ? a->seqlen_q : a->seqlen_k;
    double kept = queries < query_total(a) ? 0 : queries * sizeof(struct query);
    return queries * row + 2 * keys * row + kept + scratch_bytes(a, tokens);
}

static int gradient_allocate(const struct attention *a, struct gradient *g) {
    size_t values = (size_t)g->rows.count * (size_t)a->head_dim;
    g->exact = malloc((2 * values + 1) * sizeof *g->exact);
    g->facts = malloc(((size_t)g->rows.count + 1) * sizeof *g->facts);
    if (!g->exact || !g->facts) return -1;
    g->plain = g->exact + values;
    return 0;
}

// Runs one sweep over the rows of one gradient, where `group_rows` neighbours share a head of `tokens`.
static int run(struct sweep f, enum gradient_index which, int64_t group_rows, int64_t tokens,
               void (*work)(void *, int64_t, int)) {
    int64_t chunks = 0, *chunk = rows_chunks(&f.out[which].rows, group_rows, &chunks);
    int workers = workers_for(scratch_bytes(f.a, tokens)), status = chunk ? 0 : -1;
    struct scratch scratch[64] = {{.block = NULL}};
    for (int i = 0; i < workers && i < chunks && status == 0; ++i)
        status = scratch_make(f.a, tokens, &scratch[i]);
    f.chunk = chunk, f.scratch = scratch;
    if (status == 0) parallel_for_on(workers, chunks, work, &f);
    for (int i = 0; i < workers; ++i) free(scratch[i].block);
    free(chunk);
    return status;
}

int gradients_make(const struct attention *a, double budget, struct gradient out[GRADIENTS]) {
    memset(out, 0, GRADIENTS * sizeof *out);
    struct plan p = plan(a, budget);
    struct sweep f = {.a = a, .out = out};
    int64_t queries = query_count(a), keys = key_count(a);
    int status = rows_sample(queries, a->seqlen_q, p.queries, &out[GRADIENT_Q].rows);
    for (int i = GRADIENT_K; i <= GRADIENT_V && status == 0; ++i)
        status = rows_sample(keys, a->seqlen_k, p.keys, &out[i].rows);
    for (int i = 0; i < GRADIENTS && status == 0; ++i) status = gradient_allocate(a, &out[i]);
    if (status == 0 && !out[GRADIENT_Q].rows.index) {
        f.queries = malloc(((size_t)queries + 1) * sizeof *f.queries);
        status = f.queries ? 0 : -1;
    }
    if (status == 0)
        status =
            run(f, GRADIENT_Q, (int64_t)a->seqlen_q * (a->heads / a->kv_heads), a->seqlen_k, query_chunk);
    if (status == 0) status = run(f, GRADIENT_K, a->seqlen_k, a->seqlen_q, key_chunk);
    free(f.queries);
    if (status != 0) return gradients_free(out), -1;
    for (int64_t r = 0; r < out[GRADIENT_V].rows.count; ++r)
        out[GRADIENT_V].has_signal |= out[GRADIENT_V].facts[r].o.scale > 0;
    return 0;
}

void gradients_free(struct gradient gradients[GRADIENTS]) {
    for (int i = 0; i < GRADIENTS; ++i) {
        rows_free(&gradients[i].rows);
        free(gradients[i].exact);
        free(gradients[i].facts);
    }
    memset(gradients, 0, GRADIENTS * sizeof *gradients);
}
