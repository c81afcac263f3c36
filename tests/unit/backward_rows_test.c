// backward_rows_test.c - gradients are the same whatever the number of threads, packed or not, and of a
// sample of rows (or nearly, where it rests on numbers that were stored); and what is around them: memory,
// quick rounding.
#include <unistd.h>

#include "common/products.h"

#include "gradient_case.h"

// The host side asks this for the number of processors; here the test says how many there are.
static long processors = 2;
long sysconf(int name) {
    return name == _SC_NPROCESSORS_ONLN ? processors : name == _SC_PAGESIZE ? 4096 : (long)1 << 20;
}

static int same_bits(const struct gradient *x, int64_t x_row, const struct gradient *y, int64_t y_row) {
    size_t bytes = (size_t)a.head_dim * sizeof(double);
    return memcmp(x->exact + x_row * a.head_dim, y->exact + y_row * a.head_dim, bytes) == 0 &&
           memcmp(x->plain + x_row * a.head_dim, y->plain + y_row * a.head_dim, bytes) == 0 &&
           same_facts(&x->facts[x_row], &y->facts[y_row]);
}

static void threads(void) {
    static const char *const cases[] = {"--heads 6 --kv-heads 2 --causal --seqlen-q 70 --seqlen-k 90",
                                        "--seqlens 40,3,9 --window 4,1 --dtype bf16"};
    static const int counts[] = {1, 3, 64};
    for (int n = 0; n < 2; ++n) {
        start(cases[n]);
        struct gradient kept[GRADIENTS];
        memcpy(kept, g, sizeof kept);
        for (int i = 0; i < 3; ++i) {
            processors = counts[i];
            gradients_of(&a, INFINITY);
            for (int which = 0; which < GRADIENTS; ++which)
                for (int64_t row = 0; row < g[which].rows.count; ++row)
                    EXPECT(same_bits(&g[which], row, &kept[which], row));
            gradients_free(g);
        }
        processors = 2;
        memcpy(g, kept, sizeof g);
        end();
    }
}

// Of equal lengths, packed sequences are the batches of an ordinary problem, to the last bit.
static void packed_is_batched(void) {
    start("--seqlens-q 9,9,9 --seqlens-k 21,21,21 --causal --heads 6 --kv-heads 2 --dtype bf16");
    struct gradient packed[GRADIENTS];
    memcpy(packed, g, sizeof packed);
    free(a.d_o.data);
    problem_free(&problem);
    start("--batch 3 --seqlen-q 9 --seqlen-k 21 --causal --heads 6 --kv-heads 2 --dtype bf16");
    for (int which = 0; which < GRADIENTS; ++which)
        for (int64_t row = 0; row < g[which].rows.count; ++row) {
            int64_t tokens = tokens_of(which), i = row % tokens, head = row / tokens % heads_of(which);
            int64_t batch = row / tokens / heads_of(which);
            EXPECT(same_bits(&g[which], row, &packed[which], (head * a.batch + batch) * tokens + i));
        }
    gradients_free(packed);
    end();
}

// A sample holds the corners and is the same each time. dQ is what all rows give, to the last bit; dK and dV
// rest on O and LSE as stored.
static void sampled(void) {
    static const char *const cases[] = {"--seqlen-q 90 --seqlen-k 110 --causal --heads 6 --kv-heads 2",
                                        "--seqlens 60,0,71,9 --window 20,7 --dtype bf16",
                                        "--seqlen 100 --dtype fp32 --pad 3"};
    for (int n = 0; n < 3; ++n) {
        start(cases[n]);
        struct gradient all[GRADIENTS];
        memcpy(all, g, sizeof all);
        for (int64_t row = 0; row < query_count(&a); ++row) {
            struct position at = position_of(&a, row);
            int64_t first = at.batch * a.o.stride_batch + at.head * a.o.stride_head + at.i * a.o.stride_row;
            for (int c = 0; c < a.head_dim; ++c)
                number_store(a.dtype, a.o.data, first + c, problem.reference.o[row * a.head_dim + c]);
            a.lse[row] = (float)problem.reference.lse[row];
        }
        gradients_of(&a, 1e5);
        for (int which = 0; which < GRADIENTS; ++which) {
            const struct rows *rows = &g[which].rows;
            int64_t tokens = tokens_of(which),
                    corners[] = {0, tokens - 1, rows->total - tokens, rows->total - 1};
            EXPECT(rows->index && rows->count >= 32 && rows->count < rows->total);
            EXPECT(rows->total == all[which].rows.total);
            for (int corner = 0; corner < 4; ++corner) {
                int found = 0;
                for (int64_t r = 0; r < rows->count; ++r) found |= rows_at(rows, r) == corners[corner];
                EXPECT(found);
            }
            for (int64_t r = 0; r < rows->count; ++r) {
                int64_t row = rows_at(rows, r);
                const struct row_facts *facts = &all[which].facts[row];
                EXPECT(r == 0 || row > rows_at(rows, r - 1));
                if (which == GRADIENT_Q) EXPECT(same_bits(&g[which], r, &all[which], row));
                EXPECT(g[which].facts[r].keys == facts->keys);
                for (int c = 0; c < a.head_dim; ++c)
                    EXPECT_NEAR(g[which].plain[r * a.head_dim + c], g[which].exact[r * a.head_dim + c],
                                g[which].facts[r].o.worst + dtype_min_positive(a.dtype));
                for (int c = 0; c < a.head_dim; ++c)
                    EXPECT_NEAR(g[which].exact[r * a.head_dim + c], all[which].exact[row * a.head_dim + c],
                                facts->o.least + 0x1p-20 * facts->o.sums);
            }
        }
        gradients_free(g);
        memcpy(g, all, sizeof g);
        end();
    }
    // Few queries are never sampled, and so nothing is taken as given: O and LSE may hold anything.
    start("--seqlen-q 5 --seqlen-k 400 --heads 2 --kv-heads 1 --batch 1");
    struct gradient all[GRADIENTS];
    memcpy(all, g, sizeof all);
    memset(a.lse, 0xff, (size_t)query_count(&a) * sizeof(float));
    gradients_of(&a, 1e4);
    EXPECT(!g[GRADIENT_Q].rows.index && g[GRADIENT_K].rows.index && g[GRADIENT_V].rows.index);
    for (int which = 0; which < GRADIENTS; ++which)
        for (int64_t r = 0; r < g[which].rows.count; ++r)
            EXPECT(same_bits(&g[which], r, &all[which], rows_at(&g[which].rows, r)));
    gradients_free(g);
    memcpy(g, all, sizeof g);
    end();
}

// The memory that is announced does not overflow, and holds the results.
static void memory(void) {
    struct attention huge = {.batch = INT32_MAX,
                             .heads = INT32_MAX,
                             .kv_heads = INT32_MAX,
                             .seqlen_q = INT32_MAX,
                             .seqlen_k = INT32_MAX,
                             .head_dim = INT32_MAX};
    EXPECT(gradients_bytes(&huge) > 1e18 && isfinite(gradients_bytes(&huge)));
    struct attention small = {
        .batch = 1, .heads = 2, .kv_heads = 1, .seqlen_q = 30, .seqlen_k = 40, .head_dim = 8};
    EXPECT(gradients_bytes(&small) > (2.0 * 30 + 2 * 40) * 2 * 8 * sizeof(double));
    EXPECT(gradients_bytes(&small) < 1e6);
}

// The quick rounding is the slow one.
static void rounding(void) {
    static const enum dtype types[] = {DTYPE_FP16, DTYPE_BF16, DTYPE_E4M3, DTYPE_FP32};
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 65521)
        for (int t = 0; t < 4; ++t)
            for (int near = -1; near <= 1; ++near) {
                // and the numbers about halfway between two of fp16
                float x = float_of_bits((uint32_t)bits),
                      y = float_of_bits(((uint32_t)bits & 0xffffe000) + 0x1000u + (uint32_t)near);
                double slow = number_round(types[t], (double)x), tie = number_round(types[t], (double)y);
                if (!isnan(slow)) EXPECT((double)rounded(types[t], x) == slow);
                if (!isnan(tie)) EXPECT((double)rounded(types[t], y) == tie);
            }
    EXPECT(isnan(rounded(DTYPE_FP16, NAN)) && isnan(rounded(DTYPE_BF16, NAN)));
}

int main(void) {
    threads();
    packed_is_batched();
    sampled();
    memory();
    rounding();
    return unit_end();
}
