// case.h - for tests of the ground truth: the case that a command line describes, and who sees whom in it, by
// the words of the manual.
#ifndef CASE_H
#define CASE_H

#include "common/problem.h"

#include "unit.h"

static struct problem problem;
static struct message why;
static const struct lab lab = {.name = "unit_test"};
static const struct shape shape = {.batch = 2, .heads = 6, .kv_heads = 3, .seqlen = 21, .head_dim = 24};

// The case that these options describe, with its reference; problem_free frees it.
static inline void make(const char *line) {
    char copy[256], program[] = "unit_test", *argv[32] = {program};
    int argc = 1;
    static struct options options;  // packed sequences are kept there
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (options_parse(argc, argv, &lab, &shape, &options, &why) != 0 ||
        problem_make(&options, &problem, &why) != 0 || problem_reference(&options, &problem, &why) != 0) {
        printf("%s: %s\n", line, why.text);
        exit(1);
    }
}

static inline double load(struct tensor t, int64_t b, int64_t h, int64_t i, int64_t c) {
    return number_load(problem.host.dtype, t.data,
                       b * t.stride_batch + h * t.stride_head + i * t.stride_row + c);
}

// Whether query i sees key j, by the words of the manual: no ranges, no prefix sums.
static inline int sees(const struct attention *a, int i, int j) {
    int seqlen_q = a->seqlen_q, seqlen_k = a->seqlen_k;
    for (int n = 0; n < a->sequences; ++n) {
        seqlen_q = a->cu_seqlens_q[n + 1] - a->cu_seqlens_q[n];
        seqlen_k = a->cu_seqlens_k[n + 1] - a->cu_seqlens_k[n];
        int mine = i < seqlen_q, its = j < seqlen_k;
        if (mine != its) return 0;
        if (mine) break;
        i -= seqlen_q, j -= seqlen_k;
    }
    int ahead = j - (i + seqlen_k - seqlen_q);  // of where the query stands
    if (a->causal && ahead > 0) return 0;
    if (a->window && a->window_left != NO_LIMIT && -ahead > a->window_left) return 0;
    return !(a->window && a->window_right != NO_LIMIT && ahead > a->window_right);
}

static inline int same_error(struct row_error x, struct row_error y) {
    return x.scale == y.scale && x.worst == y.worst && x.sums == y.sums && x.least == y.least;
}

static inline int same_facts(const struct row_facts *x, const struct row_facts *y) {
    return x->keys == y->keys && x->score == y->score && same_error(x->o, y->o) && same_error(x->lse, y->lse);
}

#endif
