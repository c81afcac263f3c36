// preflight_test.c - what is refused before anything is computed, and in which words; shapes up to the
// largest that the command line takes.
#include "common/preflight.h"

#include "common/device.h"
#include "common/problem.h"
#include "unit.h"

static void no_launch(struct attention a) { (void)a; }
static int asked;
// S and P, as a kernel that stores them counts: in 64-bit integers.
static size_t two_matrices(const struct attention *a) {
    ++asked;
    return 4 * (size_t)((int64_t)a->batch * a->heads * a->seqlen_q * (((int64_t)a->seqlen_k + 7) / 8 * 8));
}

#define FP16_TO_128                                                                                          \
    { 1u << DTYPE_FP16, 8, 128, 0, 0, 0 }
static const struct kernel kernels[] = {
    {"first", "", no_launch, two_matrices, FP16_TO_128},
    {"second", "", no_launch, two_matrices, FP16_TO_128},
    {"lean", "", no_launch, NULL, FP16_TO_128},
};
static const struct kernel masking[] = {
    {"plain", "", no_launch, NULL, FP16_TO_128},
    {"slides", "", no_launch, NULL, {1u << DTYPE_FP16, 8, 128, 0, FEATURE_WINDOW, 0}},
    {"packs", "", no_launch, NULL, {1u << DTYPE_FP16, 8, 128, 0, FEATURE_WINDOW | FEATURE_PACKED, 20}},
};
static const struct shape shape = {.batch = 1, .heads = 2, .kv_heads = 2, .seqlen = 16, .head_dim = 8};
static struct lab lab = {.name = "lab00_test", .kernels = kernels, .kernel_count = 3};
static struct message why;

static int check(const char *line) {
    static char copy[512], program[] = "lab00_test";
    static struct options options;
    char *argv[32] = {program};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    why.text[0] = '\0', asked = 0;
    if (options_parse(argc, argv, &lab, &shape, &options, &why) != 0) return -2;
    return preflight(&lab, &options, &why);
}

static void refuse(const char *line, const char *words) {
    EXPECT(check(line) == -1);
    EXPECT_SAYS(why.text, words);
    EXPECT(strlen(why.text) > 0 && why.text[strlen(why.text) - 1] == '.' && !strchr(why.text, '\n'));
}

static void kernels_of_a_lab(void) {
    EXPECT(check("") == 0 && asked > 0);
    refuse("--dim 12", "first, second, lean do not support --dim 12 (but multiples of 8 up to 128).");
    refuse("--dtype bf16 --kernel lean", "lean does not support --dtype bf16 (but fp16).");
    refuse("--dim 12 --seqlen 2000000000", "do not support --dim 12");
    // One that can is enough, unless another was asked for.
    EXPECT(check("--seqlen 3000000") == 0);
    EXPECT(check("--seqlen 3000000 --kernel lean") == 0);
    refuse("--seqlen 3000000 --kernel first", "first needs 72000.0 GB of workspace");
    refuse("--seqlen 3000000 --kernel lean --kernel first --kernel second", "first, second need 72000.0 GB");
    lab.kernel_count = 2;
    refuse("--seqlen 3000000", "of device memory are free; choose a smaller --seqlen");
    lab.kernel_count = 3;
}

static void too_large_for_any(void) {
    char words[64];
    for (int kernel = 0; kernel < 3; ++kernel) {
        snprintf(words, sizeof words, "--heads 100000 --seqlen 1000000 --kernel %s", kernels[kernel].name);
        refuse(words, "GB of host memory");
        EXPECT(asked == 0);
    }
    refuse("--batch 2000000000 --heads 2000000000 --seqlen 2000000000 --dim 128", "GB of host memory");
    refuse("--batch 2147483647 --heads 2147483647 --seqlen 2147483647 --dim 128 --causal --layout bshd",
           "GB");
    refuse("--batch 0 --heads 2147483647 --seqlen 2147483647 --dim 128", "more than 64 bits can number");
    EXPECT(check("--batch 0 --heads 2147483647 --seqlen 0") == 0);
    EXPECT(check("--batch 2147483647 --heads 2147483647 --seqlen 0") == 0);
    EXPECT(check("--batch 0 --heads 1 --seqlen 2147483647 --kernel lean") == 0);
    // No tensors, but so many scores that their number is not asked for.
    refuse("--batch 0 --heads 1 --seqlen 2147483647 --kernel first", "GB of workspace");
    EXPECT(asked == 0);
}

static void sizes(void) {
    struct attention a = {.batch = 2, .heads = 6, .kv_heads = 3, .seqlen_q = 10, .seqlen_k = 20};
    a.head_dim = 8, a.dtype = DTYPE_FP16;
    EXPECT_NEAR(preflight_tensors(&a, 0),
                2 * 2 * (2 * 6 * 10 * 8) + 2 * 2 * (2 * 3 * 20 * 8) + 4 * 2 * 6 * 10, 0);
    EXPECT_NEAR(preflight_workspace(&kernels[0], &a), 4 * 2 * 6 * 10 * 24, 0);
    EXPECT_NEAR(preflight_workspace(&kernels[2], &a), 0, 0);
    EXPECT(problem_bytes(&a, 0) > preflight_tensors(&a, 0) + reference_bytes(&a));
    double left = 0;
    EXPECT(preflight_case(&a, 0, &left, &why) == 0 && left > 0 && left < (double)device_free_bytes());
    // With gradients: dO and dQ like Q, dK and dV like K.
    EXPECT_NEAR(preflight_tensors(&a, 1) - preflight_tensors(&a, 0),
                2 * 2 * (2 * 6 * 10 * 8) + 2 * 2 * (2 * 3 * 20 * 8), 0);
    EXPECT(problem_bytes(&a, 1) > preflight_tensors(&a, 1) + reference_bytes(&a) + gradients_bytes(&a));
    double less = 0;
    EXPECT(preflight_case(&a, 1, &less, &why) == 0 && less < left && less > 0);
    struct message what = {""};
    EXPECT(preflight_kernel(&lab, &kernels[0], &a, 0, &what) == TOO_LARGE);
    EXPECT(preflight_kernel(&lab, &kernels[0], &a, buffer_cost(4 * 2 * 6 * 10 * 24), &what) == NO_OBSTACLE);
    EXPECT(preflight_kernel(&lab, &kernels[2], &a, 0, &what) == NO_OBSTACLE);
}

static void features(void) {
    refuse("--window 3", "first, second, lean do not support --window (but lab05_causal does).");
    refuse("--seqlens 3,4 --kernel lean", "lean does not support --seqlens (but lab05_causal does).");
    lab.kernels = masking;
    EXPECT(check("") == 0 && check("--window 3") == 0 && check("--seqlens 3,4") == 0);
    EXPECT(check("--seqlens 3,4 --window 3 --kernel packs") == 0 && check("--window 3 --kernel slides") == 0);
    refuse("--window 3 --kernel plain", "plain does not support --window (but slides, packs do).");
    refuse("--seqlens 3 --kernel plain --kernel slides",
           "plain, slides do not support --seqlens (but packs does).");
    refuse("--seqlens 3 --window 3 --kernel slides", "slides does not support --seqlens (but packs does).");
    EXPECT(check("--pad 8 --dim 24") == 0 && check("--pad 0") == 0);
    refuse("--pad 1",
           "do not support a --pad that puts rows off multiples of 16 bytes (but lab01_naive does).");
    refuse("--pad 4 --dim 24", "off multiples of 16 bytes");
    refuse("--pad 2147483640", "rows longer than 2147483647");
    refuse("--pad 2147483640 --dim 8 --seqlen 100000", "longer than");
    refuse("--pad 1000000000 --dim 8 --seqlen 100000", "GB of host memory");
    refuse("--seqlens 2147483647,0 --dim 128 --heads 1000", "GB of host memory");

    struct attention a = {.batch = 1, .heads = 1, .kv_heads = 1, .seqlen_q = 8, .seqlen_k = 8};
    a.head_dim = 8, a.dtype = DTYPE_FP16;
    struct message what = {""};
    EXPECT(preflight_scores(&masking[2], &a, 20, &what) == NO_OBSTACLE);
    EXPECT(preflight_scores(&masking[2], &a, 20.1, &what) == NOT_SUPPORTED);
    EXPECT_SAYS(what.text, "a score of 20.1 (but up to 20)");
    EXPECT(preflight_scores(&masking[1], &a, 1e9, &what) == NO_OBSTACLE);
    // cu_seqlens of 3 sequences, twice.
    double without = preflight_tensors(&a, 0);
    a.pad = 8;
    EXPECT_NEAR(preflight_tensors(&a, 0) - without, 4 * 8 * 8 * 2, 0);
    a.pad = 0, a.sequences = 3;
    EXPECT_NEAR(preflight_tensors(&a, 0) - without, 8 * sizeof(int), 0);
    lab.kernels = kernels;
}

int main(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return LAB_SKIPPED;
    kernels_of_a_lab();
    too_large_for_any();
    sizes();
    features();
    return unit_end();
}
