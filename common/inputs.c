#include "inputs.h"

#include <math.h>
#include <string.h>

#include "parallel.h"
#include "tensors.h"

static const struct {
    const char *name, *purpose;
} kinds[INPUTS_COUNT] = {
    [INPUTS_NORMAL] = {"normal", "N(0,1): the default; tells almost every wrong kernel from a right one"},
    [INPUTS_ZERO_Q] = {"zero-q",
                       "Q = 0: O is the mean of the visible V, LSE = ln(visible keys); masks, lost or extra "
                       "keys, head mapping, base of the LSE"},
    [INPUTS_CONSTANT_V] = {"constant-v",
                           "V = 1 under wide logits: O = 1; a sum and an accumulator rescaled unequally, "
                           "unwritten rows"},
    [INPUTS_ONE_HOT] = {"one-hot",
                        "each query equals one key, often the last visible: O = that V; permuted fragments, "
                        "wrong rows and heads, dropped tails"},
    [INPUTS_LN3] =
        {"ln3",
         "logits 0 and ln 3 in turn, carried by the first and last column: scale, exp2 without log2 e, "
         "part of head_dim ignored"},
    [INPUTS_RISING] = {"rising",
                       "logits grow with the key, so the running maximum moves in every tile: rescaling, "
                       "merging of splits"},
    [INPUTS_FALLING] = {"falling",
                        "logits fall with the key: the maximum comes first, later tiles must not reset it"},
    [INPUTS_LOW] = {"low",
                    "all logits near -200: a maximum that starts at 0, padded keys counted as logit 0"},
    [INPUTS_HUGE] =
        {"huge", "key 0 at logit -57344 (odd KV heads +57344), the rest 1/8 below: O = V of key 0; a finite "
                 "'minus infinity', no max subtraction"},
    [INPUTS_OUTLIERS] = {"outliers",
                         "N(0,1) with one element in 1024 ten times wider: what real activations look like"},
    [INPUTS_TINY] =
        {"tiny", "N(0, 0.02): blinds absolute tolerances; here to show that a check does not rely on them"},
    [INPUTS_NAN] =
        {"nan", "N(0,1) with a NaN in K and V of the last key of the last batch and KV head: seen only by "
                "queries that see that key"},
    [INPUTS_NAN_Q] =
        {"nan-q", "N(0,1) with a NaN in the middle query of the last batch and head: reaches that row only"},
    [INPUTS_NAN_V] =
        {"nan-v",
         "N(0,1) with a NaN in V of the middle key of the last batch and KV head: reaches one column of O, "
         "LSE stays finite"},
    [INPUTS_STEEP] =
        {"steep",
         "logits rise by 2 with each key: exp(score - max) overflows where the maximum stays behind"},
    [INPUTS_UNEVEN] =
        {"uneven",
         "N(0,1), V of the KV heads 16 and 1/64 times as large in turn: small heads behind large ones"},
    [INPUTS_ONE_ROW] =
        {"one-row",
         "N(0,1), and dO is 0 but in the middle row of each head: dQ of the others is 0, dK and dV of keys "
         "that it does not see; masks and head mapping of a backward pass"},
    [INPUTS_ADDED_OUTLIERS] =
        {"added-outliers",
         "N(0,1), and N(0,100) added to one element in 1000: what FlashAttention-3's paper (section 4.3) "
         "measures fp8 on"},
    [INPUTS_STEPS] = {"steps", "N(0,1), Q, K and V times 1, 1/4 and 1/2 in turn from 128 tokens to the next "
                               "128: the scale of another "
                               "block"},
    [INPUTS_PEAK] = {"peak", "V = 1, and key 0 is 2048 times as probable as each other: O = 1; small P that "
                             "count together, which "
                             "8 bits must not lose"},
};

const char *inputs_name(enum input_kind kind) { return kinds[kind].name; }
const char *inputs_purpose(enum input_kind kind) { return kinds[kind].purpose; }

enum input_kind inputs_from_name(const char *name) {
    int kind = 0;
    while (kind < INPUTS_COUNT && strcmp(kinds[kind].name, name) != 0) ++kind;
    return (enum input_kind)kind;
}

// ---------------------------------------------------------------- the generator

// SplitMix64's output function (Steele, Lea, Flood 2014), a bijection that flips about half of the bits for
// each bit flipped in its input. The position enters one coordinate at a time, so an element is the same at
// every shape.
static uint64_t mix(uint64_t state, uint64_t input) {
    uint64_t x = state + 0x9e3779b97f4a7c15u * (input + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t row_state(uint64_t seed, int tensor, int64_t batch, int64_t head, int64_t token) {
    uint64_t state = mix(mix(seed, (uint64_t)tensor), (uint64_t)batch);
    return mix(mix(state, (uint64_t)head), (uint64_t)token);
}

static double normal_at(uint64_t row, int64_t column) {
    uint64_t state = mix(row, (uint64_t)column);
    int64_t sum = 0;
    for (uint64_t draw = 0; draw < 3; ++draw) {
        uint64_t bits = mix(state, draw);
        sum += (int64_t)(bits & 0xffff) + (int64_t)(bits >> 16 & 0xffff) + (int64_t)(bits >> 32 & 0xffff) +
               (int64_t)(bits >> 48);
    }
    // Twelve integers 0 ... 65535 have the mean sum 12 * 32767.5; in units of 65536 the variance is 12 / 12.
    return (double)(sum - 393210) / 65536;
}

double inputs_normal(uint64_t seed, int tensor, int64_t batch, int64_t head, int64_t token, int64_t column) {
    return normal_at(row_state(seed, tensor, batch, head, token), column);
}

// ---------------------------------------------------------------- the kinds

struct fill {
    enum input_kind kind;
    uint64_t seed;
    const struct attention *a;
    struct tensor tensor;
    enum tensor_index id;
    int64_t heads, tokens;
};

// One row being filled: where it is and its random state.
struct row {
    int64_t batch, head, token;
    uint64_t state;
};

// The dot product that a logit asks for (under scale 0 none can be had), and what each column must
// give to it.
static double dot_for(const struct attention *a, double logit) {
    return a->scale == 0 ? 0 : logit / (double)a->scale;
}
static double per_column(const struct attention *a, double logit) { return dot_for(a, logit) / a->head_dim; }

// One-hot: key j's code is +-4 in every column; a query holds the code of its target key.
static double code(const struct fill *f, int64_t batch, int64_t kv_head, int64_t key, int64_t column) {
    return mix(row_state(f->seed, TENSOR_K, batch, kv_head, key), (uint64_t)column) >> 63 ? 4 : -4;
}

static int64_t target_key(const struct fill *f, const struct row *r) {
    struct span seen = visible_span(f->a, f->a->seqlen_q, f->a->seqlen_k, r->token);
    uint64_t draw = mix(r->state, 0), keys = (uint64_t)seen.end - (uint64_t)seen.first;
    if (keys == 0) return 0;
    return draw & 1 ? seen.end - 1 : seen.first + (int64_t)((draw >> 1) % keys);
}

// Rising: a quarter per key, but no more than 128 in all, so that the K that carries it fits
// every storage type.
static double ramp(const struct fill *f, int64_t key) {
    double keys = f->a->seqlen_k, range = 0.25 * (keys - 1);
    if (range > 128) range = 128;
    if (keys <= 1) return 0;
    double at = range * (double)key / (keys - 1);
    return f->kind == INPUTS_FALLING ? range - at : at;
}

// Huge: |scale * q.k| = 57344 = 7/8 of 65536 stays below fp16's largest number, where a plain implementation
// keeps its scores, and above 50000, a popular finite "minus infinity". q and k take about the root of it
// each, q a power of two.
static double huge_q(const struct attention *a) {
    double per_column_product = per_column(a, 57344), q = 1;
    while (q * q * 2 < per_column_product) q *= 2;
    return q;
}

static double value_at(const struct fill *f, const struct row *r, int64_t column) {
    const struct attention *a = f->a;
    int is_q = f->id == TENSOR_Q, is_k = f->id == TENSOR_K, is_v = f->id == TENSOR_V;
    double normal = normal_at(r->state, column);
    if (f->id == TENSOR_DO) return f->kind == INPUTS_ONE_ROW && r->token != a->seqlen_q / 2 ? 0 : normal;
    switch (f->kind) {
    case INPUTS_ZERO_Q:
        return is_q ? 0 : normal;
    case INPUTS_CONSTANT_V:
        return is_v ? 1 : is_q ? 3 * normal : normal;
    case INPUTS_ONE_HOT:
        if (is_k) return code(f, r->batch, r->head, r->token, column);
        if (is_q) return code(f, r->batch, kv_head_of(a, (int)r->head), target_key(f, r), column);
        return normal;
    case INPUTS_LN3: {
        // Two columns carry half of ln 3 each (one column, when there is only one, carries it all).
        const double ln3 = 1.0986122886681098;
        if (is_v) return ((r->token + r->head) & 1) ? 1 : -1;
        if (column != 0 && column != a->head_dim - 1) return 0;
        return is_q ? 1 : r->token & 1 ? dot_for(a, ln3) / (a->head_dim > 1 ? 2 : 1) : 0;
    }
    case INPUTS_STEEP:
        // From -range / 2 to range / 2, so that the scores are half as large, and as exact in fp16 as can be.
        if (is_q) return (r->token + r->head) & 1 ? 1 : 0.5;
        return is_k ? per_column(a, 2 * ((double)r->token - (a->seqlen_k - 1) / 2.0)) : normal;
    case INPUTS_RISING:
    case INPUTS_FALLING:
        if (is_q) return (r->token + r->head) & 1 ? 1 : 0.5;
        return is_k ? per_column(a, ramp(f, r->token)) : normal;
    case INPUTS_LOW:
        return is_q ? 1 : is_k ? per_column(a, -200) : normal;
    case INPUTS_HUGE: {
        double q = huge_q(a), k = per_column(a, 57344) / q;
        if (is_v) return normal;
        // Key 0 wins: it has the largest logit, which is the nearest to 0 where the logits are negative.
        int positive = (is_q ? kv_head_of(a, (int)r->head) : (int)r->head) & 1;
        if (is_q) return positive ? q : -q;
        return r->token == 0 ? k : positive ? 0.875 * k : 1.125 * k;
    }
    case INPUTS_OUTLIERS:
        return mix(r->state, (uint64_t)column + (1u << 30)) >> 54 ? normal : 10 * normal;
    case INPUTS_TINY:
        return 0.02 * normal;
    case INPUTS_NAN: {
        int last = r->batch == a->batch - 1 && r->head == a->kv_heads - 1 && r->token == a->seqlen_k - 1;
        return !is_q && last && column == 0 ? (double)NAN : normal;
    }
    case INPUTS_NAN_Q: {
        int here = r->batch == a->batch - 1 && r->head == a->heads - 1 && r->token == a->seqlen_q / 2;
        return is_q && here && column == a->head_dim - 1 ? (double)NAN : normal;
    }
    case INPUTS_NAN_V: {
        int here = r->batch == a->batch - 1 && r->head == a->kv_heads - 1 && r->token == a->seqlen_k / 2;
        return is_v && here && column == 0 ? (double)NAN : normal;
    }
    case INPUTS_UNEVEN:
        return !is_v ? normal : r->head & 1 ? normal / 64 : 16 * normal;
    case INPUTS_ADDED_OUTLIERS: {
        const int64_t beside = 1 << 29, which = 1 << 30;  // columns that no tensor has
        int rare = mix(r->state, (uint64_t)(column + which)) < UINT64_MAX / 1000;
        return rare ? normal + 10 * normal_at(r->state, column + beside) : normal;
    }
    case INPUTS_PEAK:
        // A power of two: P is a number of every type.
        return !is_k ? 1 : r->token == 0 ? per_column(a, 7.6246189861593985) : 0;
    case INPUTS_STEPS: {
        static const double factors[] = {1, 0.25, 0.5};
        return normal * factors[r->token / 128 % 3];
    }
    default:
        return normal;
    }
}

static void fill_row(void *context, int64_t item, int worker) {
    (void)worker;
    struct fill f = *(const struct fill *)context;
    struct row r = {.token = item % f.tokens, .head = item / f.tokens % f.heads};
    r.batch = item / f.tokens / f.heads;
    int64_t base =
        r.batch * f.tensor.stride_batch + r.head * f.tensor.stride_head + r.token * f.tensor.stride_row;
    struct attention unpacked = *f.a;
    if (f.a->sequences > 0) {
        int of_queries = tensor_is_of_queries(f.id);
        r.batch = sequence_of(of_queries ? f.a->cu_seqlens_q : f.a->cu_seqlens_k, f.a->sequences, r.token);
        struct sequence s = sequence_at(f.a, (int)r.batch);
        r.token -= of_queries ? s.first_query : s.first_key;
        unpacked.batch = f.a->sequences, unpacked.seqlen_q = s.seqlen_q, unpacked.seqlen_k = s.seqlen_k;
        f.a = &unpacked;
    }
    r.state = row_state(f.seed, f.id, r.batch, r.head, r.token);
    for (int64_t c = 0; c < f.a->head_dim; ++c)
        number_store(f.a->dtype, f.tensor.data, base + c, value_at(&f, &r, c));
}

static void fill(enum input_kind kind, uint64_t seed, const struct attention *a, enum tensor_index which) {
    struct fill f = {.kind = kind, .seed = seed, .a = a, .tensor = *tensor_in(a, which), .id = which};
    f.heads = tensor_heads(a, which), f.tokens = tensor_tokens(a, which);
    parallel_for((int64_t)a->batch * f.heads * f.tokens, fill_row, &f);
}

void inputs_fill(enum input_kind kind, uint64_t seed, const struct attention *a) {
    fill(kind, seed, a, TENSOR_Q);
    fill(kind, seed, a, TENSOR_K);
    fill(kind, seed, a, TENSOR_V);
}

void inputs_fill_gradient(enum input_kind kind, uint64_t seed, const struct attention *a) {
    fill(kind, seed, a, TENSOR_DO);
}
