// growing.cu - a lab of the plainest decode kernels, one right and some wrong ones, for tests of what
// --generate does with them. lab08_flashdecoding is the lab about it.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/growth.h"
#include "common/lab.h"

// One before the graph is captured, then those of 4 steps in 2 layers, each of which is checked.
constexpr int LAUNCHES_WITHOUT_FAULT = 2 + 4 * 2;

enum fault {
    RIGHT,
    LENGTH_OF_FIRST_STEP,  // as if a plan of the first step were kept
    A_KEY_TOO_FEW,
    ALL_ROWS,         // also those that hold no key yet
    OTHER_BITS_LATER  // right, but not the same bits in every launch
};

__device__ static float dot(const half *x, const half *y, int head_dim) {
    float sum = 0.0f;
    for (int c = 0; c < head_dim; c++) sum += __half2float(x[c]) * __half2float(y[c]);
    return sum;
}

// A thread for each sequence (block) and head.
//   kept: the number of threads so far, and a length, from launch to launch
template <int FAULT> __global__ void attend(struct attention a, int *kept) {
    int s = blockIdx.x, head = threadIdx.x, kv_head = kv_head_of(&a, head);
    int first = a.cu_seqlens_k[s], end = first + a.seqused_k[s];
    if (FAULT == LENGTH_OF_FIRST_STEP) {
        atomicCAS(&kept[1], 0, a.seqused_k[s]);
        end = first + atomicAdd(&kept[1], 0);
    }
    if (FAULT == A_KEY_TOO_FEW) end--;
    if (FAULT == ALL_ROWS) end = a.cu_seqlens_k[s + 1];
    const half *q = row<half>(a.q, 0, head, s);
    float max = -INFINITY, sum = 0.0f;
    for (int j = first; j < end; j++)
        max = fmaxf(max, a.scale * dot(q, row<half>(a.k, 0, kv_head, j), a.head_dim));
    for (int j = first; j < end; j++)
        sum += expf(a.scale * dot(q, row<half>(a.k, 0, kv_head, j), a.head_dim) - max);
    float lse = max + logf(sum);
    a.lse[(int64_t)head * a.seqlen_q + s] = lse;
    if (FAULT == OTHER_BITS_LATER && atomicAdd(&kept[0], 1) >= a.heads * LAUNCHES_WITHOUT_FAULT)
        a.lse[(int64_t)head * a.seqlen_q + s] = nextafterf(lse, 0.0f);
    for (int c = 0; c < a.head_dim; c++) {
        float o = 0.0f;
        for (int j = first; j < end; j++)
            o += expf(a.scale * dot(q, row<half>(a.k, 0, kv_head, j), a.head_dim) - lse) *
                 __half2float(row<half>(a.v, 0, kv_head, j)[c]);
        row<half>(a.o, 0, head, s)[c] = __float2half(o);
    }
}

__device__ static void copy_token(struct tensor to, int64_t at, const void *table, int64_t token, int heads,
                                  int head_dim) {
    for (int n = threadIdx.x; n < heads * head_dim; n += blockDim.x)
        row<half>(to, 0, n / head_dim, at)[n % head_dim] =
            ((const half *)table)[token * heads * head_dim + n];
}
__global__ void append_token(struct attention a, struct tokens tokens) {
    int s = blockIdx.x;
    int64_t token = (int64_t)s * tokens.steps + *tokens.step;
    int64_t at = (int64_t)a.cu_seqlens_k[s] + a.seqused_k[s] - 1;
    copy_token(a.q, s, tokens.q, token, a.heads, a.head_dim);
    copy_token(a.k, at, tokens.k, token, a.kv_heads, a.head_dim);
#ifdef WRONG_APPEND
    // V of every second step is lost: the row keeps what was in the one before.
    if (*tokens.step % 2) token--;
#endif
    copy_token(a.v, at, tokens.v, token, a.kv_heads, a.head_dim);
}
__global__ void advance_all(struct attention a, struct tokens tokens) {
    for (int s = 0; s < a.sequences; s++) tokens.seqused_k[s]++;
    (*tokens.step)++;
}

static cudaStream_t stream_of(const struct attention *a) { return (cudaStream_t)a->stream; }

template <int FAULT> static void launch(struct attention a) {
    static int *kept;  // zeros when the program begins
    if (!kept) {
        CUDA_CHECK(cudaMalloc(&kept, 2 * sizeof *kept));
        CUDA_CHECK(cudaMemset(kept, 0, 2 * sizeof *kept));
    }
    attend<FAULT><<<lab_blocks(a.sequences, 1), a.heads, 0, stream_of(&a)>>>(a, kept);
}
static void launch_right(struct attention a) { launch<RIGHT>(a); }
static void launch_length_of_first_step(struct attention a) { launch<LENGTH_OF_FIRST_STEP>(a); }
static void launch_a_key_too_few(struct attention a) { launch<A_KEY_TOO_FEW>(a); }
static void launch_all_rows(struct attention a) { launch<ALL_ROWS>(a); }
static void launch_other_bits_later(struct attention a) { launch<OTHER_BITS_LATER>(a); }

static void append(struct attention a, struct tokens tokens) {
    append_token<<<lab_blocks(a.sequences, 1), 32, 0, stream_of(&a)>>>(a, tokens);
}
static void advance(struct attention a, struct tokens tokens) {
    advance_all<<<1, 1, 0, stream_of(&a)>>>(a, tokens);
}
static const struct growth growth = {append, advance};

constexpr struct support GROWING = {1u << DTYPE_FP16, 8, 128, 0, FEATURE_PACKED | FEATURE_GROWING};
constexpr struct support STIFF = {1u << DTYPE_FP16, 8, 128, 0, FEATURE_PACKED};
static const struct kernel kernels[] = {
    {"right", "nothing", launch_right, nullptr, GROWING},
    {"stiff", "nothing that grows", launch_right, nullptr, STIFF},
    {"length_of_first_step", "a length that stays", launch_length_of_first_step, nullptr, GROWING},
    {"a_key_too_few", "no look at the newest key", launch_a_key_too_few, nullptr, GROWING},
    {"all_rows", "rows without keys", launch_all_rows, nullptr, GROWING},
    {"other_bits_later", "a bit in later launches", launch_other_bits_later, nullptr, GROWING},
};

static const struct lab lab00 = {
    "lab00_growing",
    "the plainest decode kernels, for tests of lab_main",
    "none",
    60,
    {1, 4, 2, 9, 8, 1},
    {1, 4, 2, 9, 8, 1},
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,
    &growth,
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab00); }
