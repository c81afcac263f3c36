// traced.cu - a lab whose kernel marks what its warps do, for tests of --trace: a producer warp copies tiles
// of K and V into a ring of stages, two consumer warps with a query each work them off, mbarriers between
// them. Compiled a second time with WITHOUT_MARKS, to see that the marks of an untraced launch leave nothing
// behind.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"
#include "common/ptx.h"
#include "common/trace.h"

constexpr int WARP = 32;
constexpr int CONSUMERS = 2;  // warps, and queries of a block
constexpr int STAGES = 2;
constexpr int TILE_KV = 16;  // keys of a stage
constexpr int DIM_MAX = 64;  // columns; a lane has two of O

enum { TRACK_PRODUCER, TRACK_CONSUMER };
enum { WAIT_EMPTY, LOAD, WAIT_FULL, SCORES, SOFTMAX, STORE };
static const struct trace_names names = {
    {"producer", "consumer 0", "consumer 1"},
    {"wait empty", "load", "wait full", "scores", "softmax, O", "store"}};

#ifdef WITHOUT_MARKS
#define BEGIN(track) ((void)0)
#define MARK(phase) ((void)0)
#define END() ((void)0)
#else
#define BEGIN(track) tracer<TRACE> trace = trace_begin<TRACE>(a.trace, (track), lane == 0)
#define MARK(phase) trace_mark(&trace, (phase))
#define END() trace_end(&trace)
#endif

struct stages {
    __half k[STAGES][TILE_KV][DIM_MAX], v[STAGES][TILE_KV][DIM_MAX];
    uint64_t full[STAGES], empty[STAGES];  // mbarriers: 1 arrival of the producer, CONSUMERS arrivals
};

// Sum and maximum over the lanes of a warp, in every lane.
__device__ static float warp_sum(float x) {
    for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
__device__ static float warp_max(float x) {
    for (int step = WARP / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

template <bool TRACE>
__device__ __forceinline__ void produce(const struct attention &a, struct stages *s, struct position at) {
    int lane = threadIdx.x % WARP, kv_head = kv_head_of(&a, at.head);
    BEGIN(TRACK_PRODUCER);
    for (int first = 0, tile = 0; first < a.seqlen_k; first += TILE_KV, tile++) {
        int stage = tile % STAGES;
        MARK(WAIT_EMPTY);
        mbarrier_wait(shared_address(&s->empty[stage]), (tile / STAGES + 1) % 2);
        MARK(LOAD);
        for (int i = lane; i < TILE_KV * a.head_dim; i += WARP) {
            int j = i / a.head_dim, c = i % a.head_dim;
            bool there = first + j < a.seqlen_k;
            __half zero = __float2half(0.0f);
            s->k[stage][j][c] = there ? row<__half>(a.k, at.batch, kv_head, first + j)[c] : zero;
            s->v[stage][j][c] = there ? row<__half>(a.v, at.batch, kv_head, first + j)[c] : zero;
        }
        __syncwarp();  // all lanes have stored
        if (lane == 0) mbarrier_arrive(shared_address(&s->full[stage]));
    }
    END();
}

template <bool TRACE>
__device__ __forceinline__ void consume(const struct attention &a, struct stages *s, struct position at,
                                        [[maybe_unused]] int consumer) {
    int lane = threadIdx.x % WARP;
    bool exists = at.i < a.seqlen_q;
    const __half *q = row<__half>(a.q, at.batch, at.head, exists ? at.i : 0);
    struct span keys = visible_range(&a, at.i);
    float max = -INFINITY, sum = 0.0f, o[DIM_MAX / WARP] = {0.0f, 0.0f};
    BEGIN(TRACK_CONSUMER + consumer);
    for (int first = 0, tile = 0; first < a.seqlen_k; first += TILE_KV, tile++) {
        int stage = tile % STAGES, key = first + lane;
        MARK(WAIT_FULL);
        mbarrier_wait(shared_address(&s->full[stage]), tile / STAGES % 2);
        MARK(SCORES);
        float score = -INFINITY;
        if (lane < TILE_KV && key >= keys.first && key < keys.end) {
            score = 0.0f;
            for (int c = 0; c < a.head_dim; c++)
                score += __half2float(q[c]) * __half2float(s->k[stage][lane][c]);
            score *= a.scale;
        }
        MARK(SOFTMAX);
        float new_max = fmaxf(max, warp_max(score));
        float reference = new_max == -INFINITY ? 0.0f : new_max;
        float p = expf(score - reference), shrink = expf(max - reference);
        max = new_max;
        sum = sum * shrink + warp_sum(p);
        for (int part = 0; part < DIM_MAX / WARP; part++) o[part] *= shrink;
        for (int j = 0; j < TILE_KV; j++) {
            float p_j = __shfl_sync(0xffffffffu, p, j);
            // Keys that this query does not see may hold anything, which 0 times is not 0.
            if (p_j == 0.0f) continue;
            for (int part = 0; part < DIM_MAX / WARP; part++)
                if (part * WARP + lane < a.head_dim)
                    o[part] += p_j * __half2float(s->v[stage][j][part * WARP + lane]);
        }
        __syncwarp();  // all lanes have read
        if (lane == 0) mbarrier_arrive(shared_address(&s->empty[stage]));
    }
    MARK(STORE);
    if (exists) {
        for (int part = 0; part < DIM_MAX / WARP; part++)
            if (part * WARP + lane < a.head_dim)
                row<__half>(a.o, at.batch, at.head, at.i)[part * WARP + lane] =
                    __float2half(sum > 0.0f ? o[part] / sum : 0.0f);
        int64_t query = ((int64_t)at.batch * a.heads + at.head) * a.seqlen_q + at.i;
        if (lane == 0) a.lse[query] = sum > 0.0f ? max + logf(sum) : -INFINITY;
    }
    END();
}

template <bool TRACE>
__global__ void __launch_bounds__((CONSUMERS + 1) * WARP) specialised(const struct attention a) {
    __shared__ struct stages s;
    int warp = threadIdx.x / WARP, blocks_of_head = (a.seqlen_q + CONSUMERS - 1) / CONSUMERS;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(shared_address(&s.full[stage]), 1);
            mbarrier_init(shared_address(&s.empty[stage]), CONSUMERS);
        }
    }
    __syncthreads();  // the mbarriers are there
    struct position at;
    at.head = blockIdx.x / blocks_of_head % a.heads;
    at.batch = blockIdx.x / blocks_of_head / a.heads;
    at.i = blockIdx.x % blocks_of_head * CONSUMERS + (warp > 0 ? warp - 1 : 0);
    if (warp == 0)
        produce<TRACE>(a, &s, at);
    else
        consume<TRACE>(a, &s, at, warp - 1);
}

template <bool TRACE> static void launch(struct attention a) {
    int64_t blocks_of_head = (a.seqlen_q + CONSUMERS - 1) / CONSUMERS;
    unsigned blocks = lab_blocks((int64_t)a.batch * a.heads * blocks_of_head, 1);
    specialised<TRACE><<<blocks, (CONSUMERS + 1) * WARP>>>(a);
}

// A kernel that can be traced at some head_dim only.
static const struct trace_names narrow_names = {{"producer", "consumer 0", "consumer 1"}, {"wait empty"}, 32};

// "Traced" launches that leave no timeline.
__global__ void never_ends(const struct attention a) {
    tracer<true> trace = trace_begin<true>(a.trace, TRACK_PRODUCER, threadIdx.x == 0);
    trace_mark(&trace, LOAD);
}
// And one that is wrong because it is traced.
__global__ void spoil(const struct attention a) { row<__half>(a.o, 0, 0, 0)[0] = __float2half(1000.0f); }
static void launch_wrong(struct attention a) {
    launch<true>(a);
    spoil<<<1, 1>>>(a);
}
static void launch_unended(struct attention a) {
    launch<false>(a);
    never_ends<<<1, WARP>>>(a);
}

#define SUPPORT                                                                                              \
    { 1u << DTYPE_FP16, 1, DIM_MAX, 0, FEATURE_UNALIGNED }
static const struct kernel kernels[] = {
    {"traced", "marks its phases", launch<false>, nullptr, SUPPORT, nullptr, launch<true>, &names},
    {"plain", "marks none", launch<false>, nullptr, SUPPORT},
    {"unmarked", "forgot its marks", launch<false>, nullptr, SUPPORT, nullptr, launch<false>, &names},
    {"unended", "forgot its end", launch<false>, nullptr, SUPPORT, nullptr, launch_unended, &names},
    {"narrow", "is traced up to head_dim 32", launch<false>, nullptr, SUPPORT, nullptr, launch<true>,
     &narrow_names},
    {"wrong", "is wrong if traced", launch<false>, nullptr, SUPPORT, nullptr, launch_wrong, &names},
};
// The last four are in the table only for who asks for them.
int main(int argc, char **argv) {
    bool all = getenv("LAB00_TRACED_ALL") != nullptr;
    const struct lab lab = {"lab00_traced",
                            "a producer warp and two consumer warps",
                            "none",
                            90,
                            {1, 2, 1, 40, 16},
                            {1, 2, 1, 40, 16},
                            kernels,
                            all ? 6 : 2,
                            0};
    return lab_main(argc, argv, &lab);
}
