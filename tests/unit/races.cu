// races.cu - a lab of two kernels that are right to the last bit under every order of threads. One of them
// has races, which only --sanitize can tell. cpu backend only.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"

// One block of one warp for each query; lane 0 does the work and hands every other lane LSE, over shared
// memory. With RACE all lanes write it there, at once, the same number.
template <bool RACE> __global__ void attention(struct attention a) {
    __shared__ float lse_smem;
    struct position at = position_of(&a, blockIdx.x);
    const half *q = row<half>(a.q, at.batch, at.head, at.i);
    int visible = visible_keys(&a, at.i);
    float max = -INFINITY, sum = 0.0f;
    for (int pass = 0; pass < 2; pass++)
        for (int key = 0; key < visible; key++) {
            const half *k = row<half>(a.k, at.batch, kv_head_of(&a, at.head), key);
            float score = 0.0f;
            for (int c = 0; c < a.head_dim; c++) score += __half2float(q[c]) * __half2float(k[c]);
            score *= a.scale;
            if (pass == 0) max = fmaxf(max, score);
            if (pass == 1) sum += expf(score - max);
        }
    if (RACE || threadIdx.x == 0) lse_smem = visible > 0 ? max + logf(sum) : -INFINITY;
    __syncthreads();  // LSE is there
    if (threadIdx.x == 0) a.lse[blockIdx.x] = lse_smem;
    for (int c = threadIdx.x; c < a.head_dim; c += 32) {
        float o = 0.0f;
        for (int key = 0; key < visible; key++) {
            const half *k = row<half>(a.k, at.batch, kv_head_of(&a, at.head), key);
            float score = 0.0f;
            for (int e = 0; e < a.head_dim; e++) score += __half2float(q[e]) * __half2float(k[e]);
            o += expf(a.scale * score - lse_smem) *
                 __half2float(row<half>(a.v, at.batch, kv_head_of(&a, at.head), key)[c]);
        }
        row<half>(a.o, at.batch, at.head, at.i)[c] = __float2half(o);
    }
}

static void launch_ordered(struct attention a) {
    attention<false><<<lab_blocks(query_count(&a), 1), 32>>>(a);
}
static void launch_race(struct attention a) { attention<true><<<lab_blocks(query_count(&a), 1), 32>>>(a); }

static const struct kernel kernels[] = {
    {"ordered", "one lane writes", launch_ordered, nullptr, {1u << DTYPE_FP16, 8, 64, 0, 0, 0}},
    {"race", "all lanes write the same", launch_race, nullptr, {1u << DTYPE_FP16, 8, 64, 0, 0, 0}},
};
static const struct lab lab = {"lab00_races",
                               "a race that no result shows",
                               "none",
                               75,
                               {1, 1, 1, 16, 8},
                               {1, 1, 1, 16, 8},
                               kernels,
                               2,
                               0};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab); }
