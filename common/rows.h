// rows.h - which rows of an output are examined, where their reference is kept, and how they are shared out
// among threads: what reference.c, reference_quantised.c and backward.c have in common. Only these include
// it.
#ifndef ROWS_H
#define ROWS_H

#include "reference.h"

enum { MIN_SAMPLE = 64 };

// Keys that a row sees, at most; in packed sequences on average, as they are of all lengths.
double keys_of_row(const struct attention *a);

// `wanted` of total = (heads of all batches) * seqlen rows, but at least MIN_SAMPLE: the same on every
// machine, with the first and last row of the first and last head. All rows if they are no more than that.
// Returns 0, or -1 without memory. rows_count: how many that is, at most.
static inline double rows_count(double total, double wanted) {
    return total <= MIN_SAMPLE || wanted >= total ? total : wanted < MIN_SAMPLE ? MIN_SAMPLE : wanted;
}
int rows_sample(int64_t total, int64_t seqlen, double wanted, struct rows *rows);

// Splits the rows into chunks that one worker does in one go, each within `group_rows` neighbours (those that
// share what a worker unpacks): chunk n is rows [n] ... [n + 1] - 1 of what is returned, malloced; null
// without memory.
int64_t *rows_chunks(const struct rows *rows, int64_t group_rows, int64_t *chunks);

// Room for the reference of these rows, not filled in; 0, or -1 without memory. Its bytes, of the rows that
// REFERENCE_BUDGET chooses.
int reference_make(const struct attention *a, const struct rows *rows, struct reference *out);
double reference_row_bytes(const struct attention *a);

// As many threads as a quarter of the machine's memory has scratch for; at least one.
int workers_for(double scratch_bytes);

#endif
