// mistakes.h - attention with one mistake in it, in double.
#ifndef MISTAKES_H
#define MISTAKES_H

#include "common/attention.h"

enum mask { MASK_RIGHT, MASK_NONE, MASK_TOP_LEFT, MASK_NOT_ITSELF };
enum kv_head { KV_RIGHT, KV_REMAINDER, KV_BY_COUNT, KV_FIRST };

// What differs from attention as it should be; all 0: nothing.
struct mistake {
    enum mask mask;
    enum kv_head kv_head;
    int scale_is_1;   // scores are not scaled
    int uniform;      // all scores are taken for 0
    int base_2;       // 2^x in place of e^x
    int not_divided;  // O is not divided by the sum
    int keys_of;      // only whole tiles of so many keys
    int zeros_to;     // keys of zeros up to a multiple of this, with score 0
    int tile;         // keys that are taken at a time, for the two that follow; 0: all at once
    int o_kept;       // O is not rescaled when the maximum rises
    int l_kept;       // the sum is not
};

// Multiply-adds that one mistake takes, for who has to decide whether to try many.
double mistake_work(const struct attention *a);

// O [batch][heads][seqlen_q][head_dim] and LSE [batch][heads][seqlen_q] with that mistake. `a` holds host
// pointers. Returns 0, or -1 without memory.
int mistake_compute(const struct attention *a, const struct mistake *mistake, double *o, double *lse);

#endif
