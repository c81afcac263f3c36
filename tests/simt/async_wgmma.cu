// async_wgmma.cu - cpu backend only: planted bugs of kernels that multiply with wgmma, and the same kernels
// without them.
#include "planted.h"

#include "common/ptx.h"

// clang-format off
// Each access that a message must name has a line of its own; LINE_OF counts back to it.
#define LINE_OF(lines_above) (__LINE__ - (lines_above))

// D [64][8] = A [64][16] B [8][16]^T of small integers. In shared memory without swizzle, K-major: chunks of
// 8 elements of k, first those with k < 8 of all rows, then the others.
constexpr int a_rows = 64, b_rows = 8, k_count = 16;
struct tiles {
    __half a[2][a_rows][8], b[2][b_rows][8];
};

__host__ __device__ int a_element(int row, int k) { return (row + 3 * k) % 5 - 2; }
__host__ __device__ int b_element(int row, int k) { return (2 * row + k) % 7 - 3; }
static __device__ uint64_t a_descriptor(const tiles &it) {
    return wgmma_descriptor(shared_address(it.a), a_rows * 16, 128, 0);
}
static __device__ uint64_t b_descriptor(const tiles &it) {
    return wgmma_descriptor(shared_address(it.b), b_rows * 16, 128, 0);
}

static __device__ void fill_b(tiles &it) {
    for (int i = (int)threadIdx.x; i < b_rows * k_count; i += (int)blockDim.x)
        it.b[i % k_count / 8][i / k_count][i % 8] = __float2half((float)b_element(i / k_count, i % k_count));
}

// This thread's four elements of D, times `factor`.
static __device__ void store_d(float *out, const float *d, float factor) {
    int row = (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4, column = (int)threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; i++) out[(row + i / 2 * 8) * b_rows + column + i % 2] = factor * d[i];
}

enum product_bug {
    right, no_proxy_fence, no_barrier, no_fence, no_commit, no_wait, wait_for_older, unused, overwritten,
    warp_missing, warp_elsewhere, half_a_warp, misaligned_swizzle, misaligned_address, not_a_swizzle,
    other_descriptor, short_commit
};

template <product_bug bug> __global__ void product(float *out) {
    __shared__ __align__(1024) tiles it;
    int t = (int)threadIdx.x, warp = t / 32;
    out += a_rows * b_rows * blockIdx.x;
    fill_b(it);
    for (int i = t; i < a_rows * k_count; i += 128)
        it.a[i % k_count / 8][i / k_count][i % 8] = __float2half((float)a_element(i / k_count, i % k_count));
    if (bug != no_proxy_fence) fence_proxy_async();
    if (bug != no_barrier) __syncthreads();  // both tiles are written
    if (bug == warp_missing && warp == 3) return;
    if (bug == warp_elsewhere && warp == 3)
        __syncthreads();
    float d[4] = {};
    uint64_t a = a_descriptor(it), b = b_descriptor(it);
    if (bug == misaligned_swizzle) b = wgmma_descriptor(shared_address(it.b), 16, 1024, 128) + 256 / 16;
    if (bug == misaligned_address)
        b = wgmma_descriptor(shared_address(it.b) + 8, b_rows * 16, 128, 0);
    if (bug == not_a_swizzle)
        b = wgmma_descriptor(shared_address(it.b), b_rows * 16, 128, 16);
    if (bug == other_descriptor && warp == 2) a += 1;
    if (bug != no_fence) wgmma_fence();
    if (bug != half_a_warp || t % 32 < 16)
        wgmma_ss<__half, 8, 0, false, false>(d, a, b);
    if (bug == short_commit && warp == 1)
        wgmma_commit();
    if (bug == short_commit)
        wgmma_ss<__half, 8, 1, false, false>(d, a, b);
    if (bug != no_commit) wgmma_commit();
    if (bug == overwritten && t == 127)
        it.a[1][5][0] = __float2half(0.0f);
    if (bug == unused) return;
    if (bug == wait_for_older)
        wgmma_wait<1>();
    else if (bug != no_wait)
        wgmma_wait<0>();
    d[0] += 0;  // the first access
    store_d(out, d, 1);
}
constexpr int product_store = LINE_OF(32), product_syncthreads = LINE_OF(27), product_address = LINE_OF(22);
constexpr int product_swizzle = LINE_OF(21), product_issue = LINE_OF(17);
constexpr int product_commit = LINE_OF(16), product_second = LINE_OF(14), product_overwrite = LINE_OF(11);
constexpr int product_wait = LINE_OF(7), product_read = LINE_OF(6);

enum registers_bug { registers_right, a_overwritten, a_without_fence, d_without_fence, d_in_flight };

// A in registers, used twice: D = A B + (2 A) B, doubled in between.
template <registers_bug bug> __global__ void product_rs(float *out) {
    __shared__ __align__(128) tiles it;
    int t = (int)threadIdx.x, row = t / 32 * 16 + t % 32 / 4, k = t % 4 * 2;
    fill_b(it);
    fence_proxy_async();
    __syncthreads();  // the tile is written
    float d[4] = {};
    uint32_t a[4];
    for (int step = 1; step <= 2; step++) {
        for (int i = 0; i < 4; i++) {
            int m = row + i % 2 * 8, n = k + i / 2 * 8;
            a[i] = pack2<__half>((float)(step * a_element(m, n)), (float)(step * a_element(m, n + 1)));
        }
        if (step == 1 || bug != a_without_fence) wgmma_fence();
        if (bug == d_without_fence)
            d[0] *= 2;
        if (step == 1)
            wgmma_rs<__half, 8, 0, false>(d, a, b_descriptor(it));
        else
            wgmma_rs<__half, 8, 1, false>(d, a, b_descriptor(it));
        wgmma_commit();
        if (bug == a_overwritten)
            a[2] = 0;
        if (bug == d_in_flight)
            d[1] = 0;
        wgmma_wait<0>();
    }
    store_d(out + a_rows * b_rows * blockIdx.x, d, 1);
}
constexpr int rs_first = LINE_OF(12), rs_second = LINE_OF(10), rs_a_write = LINE_OF(7);
constexpr int rs_d_write = LINE_OF(6);

enum ring_bug { ring_right, released_early, full_not_waited, cp_async_no_fence };
constexpr int rounds = 3;

// Warp 4 loads A again and again, the warpgroup before it multiplies: D = 3 A B.
template <ring_bug bug> __global__ void ring(const __half *a, float *out) {
    __shared__ __align__(128) tiles it;
    __shared__ uint64_t full, empty;
    int t = (int)threadIdx.x;
    uint32_t full_bar = shared_address(&full), empty_bar = shared_address(&empty);
    if (t == 0) {
        mbarrier_init(full_bar, 1);
        mbarrier_init(empty_bar, 1);
        fence_mbarrier_init();
    }
    fill_b(it);
    fence_proxy_async();
    __syncthreads();  // the mbarriers are there, B is written
    float d[4] = {};
    for (int round = 0; round < rounds; round++) {
        uint32_t parity = (uint32_t)round % 2;
        if (t >= 128) {
            if (t > 128) break;
            mbarrier_wait(empty_bar, parity ^ 1);
            mbarrier_arrive_expect_tx(full_bar, sizeof it.a);
            bulk_load(shared_address(it.a), a, sizeof it.a, full_bar);
        } else {
            if (bug != full_not_waited) mbarrier_wait(full_bar, parity);
            wgmma_fence();
            wgmma_ss<__half, 8, 1, false, false>(d, a_descriptor(it), b_descriptor(it));
            wgmma_commit();
            if (bug == released_early && t == 0) mbarrier_arrive(empty_bar);
            wgmma_wait<0>();
            if (bug != released_early && t == 0) mbarrier_arrive(empty_bar);
        }
    }
    if (t < 128) store_d(out + a_rows * b_rows * blockIdx.x, d, 1);
}
constexpr int ring_load = LINE_OF(13), ring_issue = LINE_OF(9);

// A by cp.async, which is an ordinary store: wgmma needs a fence before it reads it.
template <bool fenced> __global__ void copied(const __half *a, float *out) {
    __shared__ __align__(128) tiles it;
    fill_b(it);
    for (int i = (int)threadIdx.x; i < a_rows * 2; i += 128)
        cp_async_16(shared_address(&it.a[0][0][8 * i]), a + 8 * i);
    if (!fenced) fence_proxy_async();
    cp_async_wait_all();
    if (fenced) fence_proxy_async();
    __syncthreads();  // both tiles are written
    float d[4] = {};
    wgmma_fence();
    wgmma_ss<__half, 8, 0, false, false>(d, a_descriptor(it), b_descriptor(it));
    wgmma_commit();
    wgmma_wait<0>();
    store_d(out + a_rows * b_rows * blockIdx.x, d, 1);
}
constexpr int copied_copy = LINE_OF(12), copied_issue = LINE_OF(5);

// Two groups: while the second is under way, the first one's D is read. wait<1> is right, wait<2> is not.
template <int pending> __global__ void two_groups(const __half *a, float *out) {
    __shared__ __align__(128) tiles it;
    fill_b(it);
    for (int i = (int)threadIdx.x; i < a_rows * k_count; i += 128) (&it.a[0][0][0])[i] = a[i];
    fence_proxy_async();
    __syncthreads();  // both tiles are written
    float first[4] = {}, second[4] = {};
    wgmma_fence();
    wgmma_ss<__half, 8, 0, false, false>(first, a_descriptor(it), b_descriptor(it));
    wgmma_commit();
    wgmma_ss<__half, 8, 0, false, false>(second, a_descriptor(it), b_descriptor(it));
    wgmma_commit();
    wgmma_wait<pending>();
    for (int i = 0; i < 4; i++)
        first[i] *= 2;
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++) first[i] += second[i];
    store_d(out + a_rows * b_rows * blockIdx.x, first, 1);
}
constexpr int groups_first = LINE_OF(11), groups_read = LINE_OF(5);
// clang-format on

static __half *a;
static float *out;

// The sum is exact: small integers.
static int product_of(int i) {
    int row = i / b_rows % a_rows, column = i % b_rows, sum = 0;
    for (int k = 0; k < k_count; k++) sum += a_element(row, k) * b_element(column, k);
    return sum;
}
static int three_products_of(int i) { return 3 * product_of(i); }

constexpr int blocks = 3, d_count = blocks * a_rows * b_rows;

template <product_bug bug>
static void check_product(const char *name, std::initializer_list<symptom> symptoms) {
    planted(
        name, [] { product<bug><<<1, 128>>>(out); }, symptoms);
}

static void check_products() {
    silent(
        "product", [] { product<right><<<blocks, 128>>>(out); }, out, d_count, product_of);
    const symptom in_flight = {"registers of a wgmma in flight: read of 4 bytes", product_read,
                               product_issue};
    check_product<no_wait>("no wait", {in_flight});
    check_product<wait_for_older>("wait for an older group", {in_flight});
    check_product<no_commit>("no commit", {{"no wgmma_commit came after it", product_read, product_issue}});
    check_product<unused>("product that nobody waits for",
                          {{"the block ends while the wgmma issued at", product_issue, 0}});
    check_product<no_fence>("no wgmma_fence",
                            {{"since its last wgmma_fence, or never executed one", product_issue, 0}});
    check_product<no_proxy_fence>("operands stored without a fence",
                                  {{"missing fence_proxy_async: ordinary write, then a read by TMA or wgmma",
                                    product_store, product_issue}});
    const symptom overwrites = {"memory that an operation in flight still reads: write of 2 bytes",
                                product_overwrite, product_issue};
    const symptom stores_late = {"memory that an operation in flight still reads: write of 2 bytes",
                                 product_store, product_issue};
    check_product<no_barrier>("operands read before they are stored",
                              {{"race in kernel product", product_store, product_issue},
                               stores_late,
                               {"unwritten memory: wgmma, A, read of 16 bytes", product_issue, 0}});
    check_product<overwritten>("operand overwritten",
                               {overwrites, {"write after read in byte", product_overwrite, product_issue}});
    check_product<warp_missing>(
        "a warp that returned",
        {{"threads 0-95: wgmma.wait_group, for the other warps of the warpgroup", product_wait, 0}});
    check_product<warp_elsewhere>("a warp that waits elsewhere",
                                  {{"threads 0-95: wgmma.wait_group, for the other warps of the warpgroup",
                                    product_wait, product_syncthreads}});
    check_product<half_a_warp>(
        "half a warp", {{"divergent warp", product_issue, 0}, {"wgmma (mask 0xffffffff)", product_issue, 0}});
    check_product<misaligned_swizzle>(
        "start inside a swizzle pattern",
        {{"wgmma: descriptor of B: it starts at shared address", product_issue, 0}});
    check_product<misaligned_address>("address that is no multiple of 16",
                                      {{"wgmma_descriptor: address", product_address, 0}});
    check_product<not_a_swizzle>("swizzle of 16 bytes", {{"wgmma_descriptor: swizzle", product_swizzle, 0}});
    check_product<other_descriptor>(
        "a warp with another descriptor",
        {{"has another shape or other descriptors than the rest of the warpgroup", product_issue, 0}});
    check_product<short_commit>(
        "a warp that commits early",
        {{"warp 1 has issued 1 wgmma in this group, and another warp of its warpgroup 2", product_commit, 0},
         {"issues wgmma number 2 of a group that warp 1 has committed with 1", product_second, 0}});
}

template <registers_bug bug> static void check_rs(const char *name, std::initializer_list<symptom> symptoms) {
    planted(
        name, [] { product_rs<bug><<<1, 128>>>(out); }, symptoms);
}

static void check_registers() {
    silent(
        "A in registers", [] { product_rs<registers_right><<<blocks, 128>>>(out); }, out, d_count,
        three_products_of);
    check_rs<a_overwritten>("A overwritten",
                            {{"registers of a wgmma in flight: write of 4 bytes", rs_a_write, rs_first}});
    check_rs<d_in_flight>("D overwritten",
                          {{"registers of a wgmma in flight: write of 4 bytes", rs_d_write, rs_first}});
    check_rs<a_without_fence>("A written without wgmma_fence",
                              {{"since its last wgmma_fence", rs_second, 0}});
    check_rs<d_without_fence>("D written without wgmma_fence",
                              {{"since its last wgmma_fence", rs_second, 0}});
    silent(
        "two groups", [] { two_groups<1><<<blocks, 128>>>(a, out); }, out, d_count, three_products_of);
    planted("wait for one group too few", [] { two_groups<2><<<1, 128>>>(a, out); },
            {{"registers of a wgmma in flight: read of 4 bytes", groups_read, groups_first}});
}

static void check_rings() {
    silent(
        "ring", [] { ring<ring_right><<<blocks, 160>>>(a, out); }, out, d_count, three_products_of);
    planted("refilled while wgmma reads", [] { ring<released_early><<<1, 160>>>(a, out); },
            {{"memory that an operation in flight still reads: write of 16 bytes", ring_load, ring_issue},
             {"race in kernel ring", ring_load, ring_issue}});
    planted("wgmma before the load has landed", [] { ring<full_not_waited><<<1, 160>>>(a, out); },
            {{"bytes of a copy still in flight: wgmma, A, read of 16 bytes", ring_issue, ring_load},
             {"unwritten memory: wgmma, A, read of 16 bytes", ring_issue, 0}});
    silent(
        "cp.async and wgmma", [] { copied<true><<<blocks, 128>>>(a, out); }, out, d_count, product_of);
    planted("cp.async and wgmma without a fence", [] { copied<false><<<1, 128>>>(a, out); },
            {{"missing fence_proxy_async: ordinary write, then a read by TMA or wgmma", copied_copy,
              copied_issue}});
}

int main(int argc, char **) {
    source_name = "async_wgmma.cu";
    show_messages = argc > 1;
    __half numbers[a_rows * k_count];
    for (int i = 0; i < a_rows * k_count; i++)
        numbers[i] = __float2half((float)a_element(i % (8 * a_rows) / 8, i / (8 * a_rows) * 8 + i % 8));
    CHECK(cudaMalloc(&a, sizeof numbers) == cudaSuccess && cudaMalloc(&out, 4 * d_count) == cudaSuccess);
    CHECK(cudaMemcpy(a, numbers, sizeof numbers, cudaMemcpyHostToDevice) == cudaSuccess);
    simt_name_memory(a, sizeof numbers, "A");
    simt_name_memory(out, 4 * d_count, "OUT");
    simt_set_sanitizing(1);
    check_products();
    check_registers();
    check_rings();
    return check_done();
}
