#include "rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "parallel.h"

enum { ROWS_PER_CHUNK = 64 };

static uint64_t scramble(uint64_t x) {  // SplitMix64's output function (Steele, Lea, Flood 2014)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int ascending(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

double keys_of_row(const struct attention *a) {
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

int rows_sample(int64_t total, int64_t seqlen, double wanted, struct rows *rows) {
    memset(rows, 0, sizeof *rows);
    rows->total = rows->count = total;
    int64_t room = (int64_t)rows_count((double)total, wanted), n = 0;
    if (room >= total) return 0;
    rows->index = malloc((size_t)room * sizeof *rows->index);
    if (!rows->index) return -1;
    rows->index[n++] = 0;
    rows->index[n++] = seqlen - 1;
    rows->index[n++] = total - seqlen;
    rows->index[n++] = total - 1;
    for (uint64_t draw = 1; n < room; ++draw)
        rows->index[n++] = (int64_t)(scramble(draw * 0x9e3779b97f4a7c15u) % (uint64_t)total);
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

// Few rows are many chunks all the same, so that each thread has some. (What is computed of a row does not
// depend on its chunk.)
int64_t *rows_chunks(const struct rows *rows, int64_t group_rows, int64_t *chunks) {
    int64_t *start = malloc(((size_t)rows->count + 1) * sizeof *start), n = 0, last_group = 0;
    if (!start) return NULL;
    int64_t size = rows->count / (2 * (int64_t)parallel_workers());
    size = size < 1 ? 1 : size < ROWS_PER_CHUNK ? size : ROWS_PER_CHUNK;
    for (int64_t r = 0; r < rows->count; ++r) {
        int64_t group = rows_at(rows, r) / group_rows;
        if (n == 0 || group != last_group || r - start[n - 1] == size) start[n++] = r;
        last_group = group;
    }
    start[n] = rows->count;
    *chunks = n;
    return start;
}

int workers_for(double scratch_bytes) {
    double fit = machine_memory_bytes() / 4 / scratch_bytes;
    return fit < 1 ? 1 : fit < parallel_workers() ? (int)fit : parallel_workers();
}
