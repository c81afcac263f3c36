// gradients.cu - a lab of the plainest backward passes, for tests of what lab_main does with one: fp32
// throughout, one warp for each query or key, nothing of size N x N kept. lab06_backward is the lab about it.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"

constexpr int WARP = 32;

// x . y of two rows of head_dim, the same number in every lane.
__device__ static float dot(const half *x, const half *y, int head_dim) {
    float sum = 0.0f;
    for (int c = threadIdx.x; c < head_dim; c += WARP) sum += __half2float(x[c]) * __half2float(y[c]);
    for (int step = WARP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

// The forward pass: O and LSE of one query.
__global__ void forward(struct attention a) {
    struct position at = position_of(&a, blockIdx.x);
    int kv_head = kv_head_of(&a, at.head);
    const half *q = row<half>(a.q, at.batch, at.head, at.i);
    struct span keys = visible_range(&a, at.i);
    float max = -INFINITY, sum = 0.0f;
    for (int j = keys.first; j < keys.end; j++)
        max = fmaxf(max, a.scale * dot(q, row<half>(a.k, at.batch, kv_head, j), a.head_dim));
    for (int j = keys.first; j < keys.end; j++)
        sum += expf(a.scale * dot(q, row<half>(a.k, at.batch, kv_head, j), a.head_dim) - max);
    float lse = keys.first < keys.end ? max + logf(sum) : -INFINITY;
    if (threadIdx.x == 0) a.lse[blockIdx.x] = lse;
    half *o = row<half>(a.o, at.batch, at.head, at.i);
    for (int first = 0; first < a.head_dim; first += WARP) {
        int c = first + threadIdx.x;
        float o_c = 0.0f;
        for (int j = keys.first; j < keys.end; j++) {
            float p = expf(a.scale * dot(q, row<half>(a.k, at.batch, kv_head, j), a.head_dim) - lse);
            if (c < a.head_dim) o_c += p * __half2float(row<half>(a.v, at.batch, kv_head, j)[c]);
        }
        if (c < a.head_dim) o[c] = __float2half(o_c);
    }
}

// delta_i = dO_i . O_i and, where dQ is a sum of atomic additions, zeros to add to.
//   workspace: delta [queries], then sums of dQ [queries][head_dim]
__global__ void prepare(struct attention a, bool zero) {
    struct position at = position_of(&a, blockIdx.x);
    float *delta = (float *)a.workspace;
    float delta_i =
        dot(row<half>(a.d_o, at.batch, at.head, at.i), row<half>(a.o, at.batch, at.head, at.i), a.head_dim);
    if (threadIdx.x == 0) delta[blockIdx.x] = delta_i;
    float *sum = delta + query_count(&a) + (int64_t)blockIdx.x * a.head_dim;
    for (int c = threadIdx.x; zero && c < a.head_dim; c += WARP) sum[c] = 0.0f;
}

// P and dS of one query (its number is in lse's order) and one key.
struct pair {
    float p, ds;
};
__device__ static struct pair pair_at(struct attention a, int64_t query, struct position at, int key) {
    int kv_head = kv_head_of(&a, at.head);
    const half *d_o = row<half>(a.d_o, at.batch, at.head, at.i);
    float s = a.scale * dot(row<half>(a.q, at.batch, at.head, at.i), row<half>(a.k, at.batch, kv_head, key),
                            a.head_dim);
    float dp = dot(d_o, row<half>(a.v, at.batch, kv_head, key), a.head_dim);
    struct pair pair;
    pair.p = expf(s - a.lse[query]);
    pair.ds = pair.p * (dp - ((const float *)a.workspace)[query]);
    return pair;
}

// dQ of one query.
__global__ void gradient_q(struct attention a) {
    struct position at = position_of(&a, blockIdx.x);
    struct span keys = visible_range(&a, at.i);
    half *dq = row<half>(a.dq, at.batch, at.head, at.i);
    for (int first = 0; first < a.head_dim; first += WARP) {
        int c = first + threadIdx.x;
        float sum = 0.0f;
        for (int j = keys.first; j < keys.end; j++) {
            struct pair pair = pair_at(a, blockIdx.x, at, j);
            if (c < a.head_dim)
                sum += pair.ds * __half2float(row<half>(a.k, at.batch, kv_head_of(&a, at.head), j)[c]);
        }
        if (c < a.head_dim) dq[c] = __float2half(a.scale * sum);
    }
}

// dK and dV of one key and KV head, over all queries of the group that see it. With ATOMIC, what it gives to
// each dQ is added to the sums in the workspace.
template <bool ATOMIC> __global__ void gradient_kv(struct attention a) {
    int key = blockIdx.x % a.seqlen_k, kv_head = blockIdx.x / a.seqlen_k % a.kv_heads;
    int batch = blockIdx.x / a.seqlen_k / a.kv_heads, group = a.heads / a.kv_heads;
    const half *k = row<half>(a.k, batch, kv_head, key);
    half *dk = row<half>(a.dk, batch, kv_head, key), *dv = row<half>(a.dv, batch, kv_head, key);
    for (int first = 0; first < a.head_dim; first += WARP) {
        int c = first + threadIdx.x;
        float dk_c = 0.0f, dv_c = 0.0f;
        for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
            for (int i = 0; i < a.seqlen_q; i++) {
                struct span keys = visible_range(&a, i);
                if (key < keys.first || key >= keys.end) continue;
                int64_t query = ((int64_t)batch * a.heads + head) * a.seqlen_q + i;
                struct position at = position_of(&a, query);
                struct pair pair = pair_at(a, query, at, key);
                if (c >= a.head_dim) continue;
                dv_c += pair.p * __half2float(row<half>(a.d_o, batch, head, i)[c]);
                dk_c += pair.ds * __half2float(row<half>(a.q, batch, head, i)[c]);
                float *sum = (float *)a.workspace + query_count(&a) + query * a.head_dim;
                if (ATOMIC) atomicAdd(&sum[c], pair.ds * __half2float(k[c]));
            }
        if (c < a.head_dim) dk[c] = __float2half(a.scale * dk_c), dv[c] = __float2half(dv_c);
    }
}

// The sums of dQ, scaled and rounded.
__global__ void store_q(struct attention a) {
    struct position at = position_of(&a, blockIdx.x);
    const float *sum = (const float *)a.workspace + query_count(&a) + (int64_t)blockIdx.x * a.head_dim;
    half *dq = row<half>(a.dq, at.batch, at.head, at.i);
    for (int c = threadIdx.x; c < a.head_dim; c += WARP) dq[c] = __float2half(a.scale * sum[c]);
}

static size_t workspace(const struct attention *a) {
    return (size_t)query_count(a) * ((size_t)a->head_dim + 1) * sizeof(float);
}

static void launch_forward(struct attention a) { forward<<<lab_blocks(query_count(&a), 1), WARP>>>(a); }

template <bool ATOMIC> static void launch(struct attention a) {
    unsigned queries = lab_blocks(query_count(&a), 1);
    unsigned keys = lab_blocks((int64_t)a.batch * a.kv_heads * a.seqlen_k, 1);
    if (queries) prepare<<<queries, WARP>>>(a, ATOMIC);
    if (queries && !ATOMIC) gradient_q<<<queries, WARP>>>(a);
    if (keys) gradient_kv<ATOMIC><<<keys, WARP>>>(a);
    if (queries && ATOMIC) store_q<<<queries, WARP>>>(a);
}

#define SUPPORT(unordered_dq)                                                                                \
    { 1u << DTYPE_FP16, 1, 256, 0, FEATURE_WINDOW | FEATURE_PACKED | FEATURE_UNALIGNED, 0, unordered_dq }
static const struct kernel kernels[] = {
    {"separate", "dQ by itself", launch<false>, workspace, SUPPORT(0), launch_forward},
    {"atomic", "dQ by atomics", launch<true>, workspace, SUPPORT(1), launch_forward},
};
static const struct lab lab = {"lab00_gradients",
                               "gradients, as plain as can be",
                               "none",
                               75,
                               {1, 2, 1, 20, 16},
                               {1, 2, 1, 20, 16},
                               kernels,
                               2,
                               0};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab); }
