#include "tensors.h"

// `like`: the tensor of q, k, v, o that it has the shape and the layout of.
enum { LIKE_Q, LIKE_K, LIKE_V, LIKE_O };
static const struct {
    const char *name, *file;
    int like, of_backward;
} facts[TENSORS] = {
    [TENSOR_Q] = {"Q", "q", LIKE_Q, 0},    [TENSOR_K] = {"K", "k", LIKE_K, 0},
    [TENSOR_V] = {"V", "v", LIKE_V, 0},    [TENSOR_DO] = {"dO", "do", LIKE_O, 1},
    [TENSOR_O] = {"O", "o", LIKE_O, 0},    [TENSOR_DQ] = {"dQ", "dq", LIKE_Q, 1},
    [TENSOR_DK] = {"dK", "dk", LIKE_K, 1}, [TENSOR_DV] = {"dV", "dv", LIKE_V, 1},
};

const char *tensor_name(enum tensor_index which) { return facts[which].name; }
const char *tensor_file(enum tensor_index which) { return facts[which].file; }
int tensor_exists(enum tensor_index which, int backward) { return backward || !facts[which].of_backward; }

const struct tensor *tensor_in(const struct attention *a, enum tensor_index which) {
    const struct tensor *const tensors[TENSORS] = {&a->q, &a->k,  &a->v,  &a->d_o,
                                                   &a->o, &a->dq, &a->dk, &a->dv};
    return tensors[which];
}
struct tensor *tensor_at(struct attention *a, enum tensor_index which) {
    return (struct tensor *)tensor_in(a, which);
}

int tensor_is_of_queries(enum tensor_index which) {
    return facts[which].like == LIKE_Q || facts[which].like == LIKE_O;
}
int tensor_heads(const struct attention *a, enum tensor_index which) {
    return tensor_is_of_queries(which) ? a->heads : a->kv_heads;
}
int tensor_tokens(const struct attention *a, enum tensor_index which) {
    return tensor_is_of_queries(which) ? a->seqlen_q : a->seqlen_k;
}

double tensor_bytes(const struct attention *a, enum tensor_index which) {
    double rows = (double)a->batch * tensor_heads(a, which) * tensor_tokens(a, which);
    return rows * ((double)a->head_dim + a->pad) * dtype_bytes(a->dtype);
}

struct tensor tensor_view(void *data, enum layout layout, int heads, int seqlen, int head_dim) {
    int64_t h = heads, s = seqlen, d = head_dim;
    struct tensor t = {.data = data, .stride_batch = h * s * d};
    t.stride_head = layout == LAYOUT_BHSD ? s * d : d;
    t.stride_row = layout == LAYOUT_BHSD ? d : h * d;
    return t;
}

struct tensor tensor_place(const struct attention *a, enum tensor_index which, const enum layout layout[4],
                           void *data) {
    return tensor_view(data, layout[facts[which].like], tensor_heads(a, which), tensor_tokens(a, which),
                       a->head_dim + a->pad);
}
