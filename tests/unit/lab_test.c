// lab_test.c - lab_main as a whole, with "kernels" that get the right answer from the reference and carry it
// to the device; each but the first plants one fault that must make the program exit 1 with the right reason.
#include "common/compare.h"

#include "fake_kernel.h"

static char json_path[1024];

// The last half number of O, and the last float of LSE, set to these bits after the right answer.
static void set_o(struct attention a, uint16_t bits) {
    right(a);
    to_device((char *)a.o.data + bytes_of(&a, TENSOR_O) - 2, &bits, 2);
}
static void set_lse(struct attention a, float value) {
    right(a);
    to_device(a.lse + query_count(&a) - 1, &value, 4);
}

static void silent(struct attention a) { (void)a; }
static void unwritten(struct attention a) { set_o(a, 0xffff); }
static void nan_out(struct attention a) { set_o(a, 0x7fff); }
static void infinite(struct attention a) { set_o(a, 0x7c00); }
static void wrong_o(struct attention a) { set_o(a, 0x4900); }  // 10
static void wrong_lse(struct attention a) { set_lse(a, 1); }
static void lse_minus_inf(struct attention a) { set_lse(a, -INFINITY); }
static void past_o(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset((char *)a.o.data + bytes_of(&a, TENSOR_O), 0, 2));
}
static void before_lse(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset(a.lse - 1, 0, 4));
}
static void past_workspace(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset((char *)a.workspace + 1000, 0, 1));
}
static void changes_v(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset(a.v.data, 0x11, 1));
}
static void changes_lengths(struct attention a) {
    int sum = 1;
    right(a);
    if (a.cu_seqlens_k) to_device((int *)a.cu_seqlens_k + 1, &sum, sizeof sum);
}
static void past_lengths(struct attention a) {
    right(a);
    if (a.cu_seqlens_q) CUDA_CHECK(cudaMemset((int *)a.cu_seqlens_q + a.sequences + 1, 0, 1));
}
// The last byte of the last gap of O, and of the first one of K.
static void writes_gap_of_o(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset((char *)a.o.data + bytes_of(&a, TENSOR_O) - 1, 0, 1));
}
static void writes_gap_of_k(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset((char *)a.k.data + a.k.stride_row * 2 - 1, 0, 1));
}
// Keeps memory that it takes: the second launch has more than the first.
static void *kept[100];
static void keeps_memory(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMalloc(&kept[launches % 100], 4 << 20));
}
// Right but for one bit in the fifth launch: the first, the one after it, and the third repetition.
static void unsteady_later(struct attention a) {
    float last;
    right(a);
    to_host(&last, a.lse + query_count(&a) - 1, 4);
    if (launches == 5) last = nextafterf(last, INFINITY), to_device(a.lse + query_count(&a) - 1, &last, 4);
}
static void unsteady(struct attention a) {
    float last;
    right(a);
    to_host(&last, a.lse + query_count(&a) - 1, 4);
    // One bit more in each second run: far below the bound.
    if (launches % 2 == 0)
        last = nextafterf(last, INFINITY), to_device(a.lse + query_count(&a) - 1, &last, 4);
}
static void needs_workspace(struct attention a) {
    unsigned char bytes[1000];
    to_host(bytes, a.workspace, sizeof bytes);
    for (int i = 0; i < 1000; ++i)
        if (bytes[i] != (launches % 2 ? 0x40 : 0xff)) return;  // not poisoned: leaves O unwritten
    if ((uintptr_t)a.workspace % 256 == 0) right(a);
    CUDA_CHECK(cudaMemset(a.workspace, 0, sizeof bytes));  // the second run must find it filled again
}
// What the emulation of the quantisation gets: far from what fp16 may be off by.
static void as_quantised(struct attention a, enum quantised as) {
    struct attention h = mirror(a);
    struct rows rows;
    struct reference truth, r;
    ++launches;
    if (rows_choose(&h, INFINITY, &rows) != 0 || reference_forward(&h, &rows, &truth) != 0 ||
        reference_quantised(&h, &rows, as, &truth, &r) != 0)
        exit(LAB_USAGE);
    carry(a, &h, TENSOR_O, r.plain_o);
    for (int64_t row = 0; row < rows.count; ++row) h.lse[row] = (float)r.plain_lse[row];
    to_device(a.lse, h.lse, lse_bytes(&a));
    reference_free(&truth), reference_free(&r);
    rows_free(&rows);
    drop(h);
}
static void quantised(struct attention a) { as_quantised(a, QUANTISED_E4M3); }
static void rotated(struct attention a) { as_quantised(a, QUANTISED_E4M3_ROTATED); }
static size_t workspace_1000(const struct attention *a) { return (void)a, 1000; }
static size_t workspace_of_scores(const struct attention *a) {
    return (size_t)query_count(a) * (size_t)a->seqlen_k * 2;
}
static size_t workspace_too_large(const struct attention *a) { return (void)a, (size_t)1 << 50; }

#define ANY                                                                                                  \
    { 1u << DTYPE_FP16, 8, 128, 0, FEATURE_WINDOW | FEATURE_PACKED, 0 }
#define QUANTISES(as)                                                                                        \
    { .dtypes = 1u << DTYPE_FP16, .head_dim_multiple = 8, .head_dim_max = 128, .quantised = (as) }
static const struct kernel kernels[] = {
    {"right", "", right, NULL, ANY},
    {"needs_workspace", "", needs_workspace, workspace_1000, ANY},
    {"silent", "", silent, NULL, ANY},
    {"unwritten", "", unwritten, NULL, ANY},
    {"nan_out", "", nan_out, NULL, ANY},
    {"infinite", "", infinite, NULL, ANY},
    {"wrong_o", "", wrong_o, NULL, ANY},
    {"wrong_lse", "", wrong_lse, NULL, ANY},
    {"lse_minus_inf", "", lse_minus_inf, NULL, ANY},
    {"past_o", "", past_o, NULL, ANY},
    {"before_lse", "", before_lse, NULL, ANY},
    {"past_workspace", "", past_workspace, workspace_1000, ANY},
    {"changes_v", "", changes_v, NULL, ANY},
    {"unsteady", "", unsteady, NULL, ANY},
    {"too_large", "", right, workspace_too_large, ANY},
    {"keeps_scores", "", right, workspace_of_scores, ANY},
    {"only_64", "", right, NULL, {1u << DTYPE_FP16 | 1u << DTYPE_BF16, 64, 64, 0, 0, 0}},
    {"unsteady_later", "", unsteady_later, NULL, ANY},
    {"changes_lengths", "", changes_lengths, NULL, ANY},
    {"past_lengths", "", past_lengths, NULL, ANY},
    {"writes_gap_of_o", "", writes_gap_of_o, NULL, {1u << DTYPE_FP16, 8, 128, 0, FEATURE_UNALIGNED, 0}},
    {"writes_gap_of_k", "", writes_gap_of_k, NULL, {1u << DTYPE_FP16, 8, 128, 0, FEATURE_UNALIGNED, 0}},
    {"unaligned", "", right, NULL, {1u << DTYPE_FP16, 8, 128, 0, FEATURE_UNALIGNED, 0}},
    {"keeps_memory", "", keeps_memory, NULL, ANY},
    {"quantised", "", quantised, NULL, QUANTISES(QUANTISED_E4M3)},
    {"rotated", "", rotated, NULL, QUANTISES(QUANTISED_E4M3_ROTATED)},
    {"wrong_quantised", "", wrong_o, NULL, QUANTISES(QUANTISED_E4M3)},
    {"claims_fp16", "", quantised, NULL, ANY},
    {"small_scores", "", right, NULL, {1u << DTYPE_FP16, 8, 128, 0, 0, 4}},
};
static const struct shape shape = {.batch = 2, .heads = 3, .kv_heads = 1, .seqlen = 12, .head_dim = 8};
static struct lab lab = {.name = "lab_test00",
                         .idea = "lab_main under test",
                         .lecture = "none",
                         .kernels = kernels,
                         .kernel_count = sizeof kernels / sizeof *kernels};

static void run(const char *line, int code, const char *says) { run_lab(&lab, json_path, line, code, says); }

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    snprintf(json_path, sizeof json_path, "%s/lab_test.json", folder);
    lab.on_cpu = lab.on_gpu = shape;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return LAB_SKIPPED;

    run("--kernel right", LAB_OK, "\"verdict\": \"right\"");
    EXPECT(launches == 2);  // and a second time for the same bits
    run("--kernel right --layout bshd --causal --seqlen-q 20", LAB_OK, "\"compared\": 960");
    run("--kernel right --bench", LAB_OK, "\"repetitions\"");
    run("--kernel right --inputs nan", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel right --inputs nan --batch 1 --heads 1", LAB_WRONG, verdict_text(VERDICT_NOT_FINITE));
    run("--kernel right --kernel keeps_scores --scale 1000", LAB_OK, NULL);
    // Scores beyond fp16: not for a kernel that stores them.
    run("--kernel right --kernel needs_workspace --scale 20000", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel keeps_scores --scale 20000", LAB_USAGE, "it keeps S in fp16, which ends at 65504");
    run("--kernel right --seqlen-k 0", LAB_OK, "\"compared\": 576");
    run("--kernel right --batch 0", LAB_OK, "nothing to compute");
    EXPECT(launches == 0);
    run("--kernel needs_workspace", LAB_OK, "\"workspace_bytes\": 1000");

    run("--kernel silent", LAB_WRONG, verdict_text(VERDICT_UNWRITTEN));
    run("--kernel unwritten", LAB_WRONG, "O[batch 1, head 2, row 11, column 7] was never written");
    run("--kernel nan_out", LAB_WRONG, "O[batch 1, head 2, row 11, column 7] is nan");
    run("--kernel infinite", LAB_WRONG, "O[batch 1, head 2, row 11, column 7] is inf");
    run("--kernel wrong_o", LAB_WRONG, "O[batch 1, head 2, row 11, column 7] is 10, expected");
    run("--kernel wrong_lse", LAB_WRONG, "LSE[batch 1, head 2, row 11] is 1, expected");
    run("--kernel lse_minus_inf", LAB_WRONG, "LSE[batch 1, head 2, row 11] is -inf, expected");
    run("--kernel past_o", LAB_WRONG, "it wrote 0 bytes past the end of O");
    run("--kernel before_lse", LAB_WRONG, "it wrote 1 bytes before the beginning of LSE");
    run("--kernel past_workspace", LAB_WRONG, "it wrote 0 bytes past the end of workspace");
    run("--kernel changes_v", LAB_WRONG, "it changed V");
    run("--kernel unsteady", LAB_WRONG, "LSE differs from the first run");
    run("--kernel right --kernel wrong_o", LAB_WRONG, "\"verdict\": \"right\"");
    run("--kernel wrong_o --kernel right", LAB_WRONG, "\"verdict\": \"right\"");

    run("--kernel right --seqlens 5,0,17 --causal", LAB_OK, "\"sequences\": 3, \"shortest_q\": 0");
    run("--kernel right --seqlens-q 5,0,17 --seqlens-k 3,9,9 --window 2", LAB_OK, "\"window\": [2, 2]");
    run("--kernel right --seqlens 0,0", LAB_OK, "nothing to compute");
    run("--kernel wrong_o --seqlens 5,0,17,0", LAB_WRONG,
        "O[sequence 2, head 2, row 16 of 17, column 7] is 10");
    run("--kernel changes_lengths --seqlens 5,0,17", LAB_WRONG, "it changed cu_seqlens_k");
    run("--kernel changes_lengths --kernel right --seqlens 5,0,17", LAB_WRONG, "\"verdict\": \"right\"");
    run("--kernel past_lengths --seqlens 5,0,17", LAB_WRONG, "0 bytes past the end of cu_seqlens_q");
    run("--kernel right --bench --seqlens 5,0,17 --window 3", LAB_OK, "\"repetitions\"");
    run("--kernel small_scores --scale 0.1", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel small_scores --scale 2", LAB_USAGE, "(but up to 4); choose a smaller --scale");
    run("--kernel only_64 --dim 64 --window 3", LAB_USAGE, NULL);

    // Kernels that quantise are judged by the emulation of that, and each other kernel as before.
    run("--kernel quantised --kernel rotated --kernel right", LAB_OK, "\"quantised\": \"e4m3\"");
    EXPECT_SAYS(last_report, "\"quantised\": \"e4m3, rotated\", \"o_unquantised_rmse\": ");
    run("--kernel quantised --kernel claims_fp16", LAB_WRONG,
        "claims_fp16\", \"adds\": \"\", \"verdict\": \"wrong");
    run("--kernel claims_fp16 --kernel quantised", LAB_WRONG,
        "quantised\", \"adds\": \"\", \"verdict\": \"right");
    run("--kernel wrong_quantised", LAB_WRONG, "O[batch 1, head 2, row 11, column 7] is 10, expected");
    run("--kernel quantised --inputs nan --causal --bench", LAB_OK, "\"repetitions\"");
    run("--kernel quantised --kernel rotated --seqlen-k 0", LAB_OK, "\"compared\": 576");
    run("--kernel quantised --batch 0", LAB_OK, "nothing to compute");

    run("--kernel right --pad 8 --layout bshd", LAB_OK, "\"layout\": \"bshd\", \"pad\": 8");
    run("--kernel right --pad 8 --inputs nan-v --causal", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel right --pad 3", LAB_USAGE, NULL);
    run("--kernel unaligned --pad 3 --layout bshd,bhsd,bshd,bhsd", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel writes_gap_of_o --pad 1", LAB_WRONG,
        "it wrote between the rows of O, which are --pad apart");
    run("--kernel writes_gap_of_k --pad 1", LAB_WRONG, "it changed K");
    run("--kernel right --repeat 4", LAB_OK, "\"growth_bytes\": 0");
    EXPECT(launches == 6);
    run("--kernel unsteady_later", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel unsteady_later --repeat 2", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel unsteady_later --repeat 4", LAB_WRONG,
        "LSE differs from the first run in repetition 3 of 4");
    run("--kernel unsteady_later --repeat 4 --bench", LAB_WRONG, "in repetition 3 of 4");
    run("--kernel keeps_memory", LAB_OK, "\"growth_bytes\": 4194304");
    for (int i = 0; i < 100; ++i) CUDA_CHECK(cudaFree(kept[i]));

    // Files hold packed tokens as a batch of one; the lengths are said again.
    char line[1200];
    snprintf(line, sizeof line, "--kernel right --seqlens-q 5,0,17 --seqlens-k 4,2,9 --save %s/packed",
             folder);
    run(line, LAB_OK, NULL);
    snprintf(line, sizeof line, "--kernel right --seqlens-q 5,0,17 --seqlens-k 4,2,9 --load %s/packed",
             folder);
    run(line, LAB_OK, "\"verdict\": \"right\"");
    snprintf(line, sizeof line, "--kernel right --seqlens-q 5,1,17 --seqlens-k 4,2,9 --load %s/packed",
             folder);
    run(line, LAB_USAGE, NULL);
    snprintf(line, sizeof line, "--kernel right --seqlens-q 5,17 --seqlens-k 5,10 --load %s/packed", folder);
    run(line, LAB_USAGE, NULL);  // adds up, but it is not what o.npy was made with
    snprintf(line, sizeof line, "--kernel right --load %s/packed", folder);
    run(line, LAB_USAGE, NULL);

    run("--kernel too_large", LAB_USAGE, NULL);
    EXPECT(launches == 0);
    run("--kernel right --kernel too_large", LAB_USAGE, NULL);
    EXPECT(launches == 0);                  // refused before anything ran
    run("", LAB_WRONG, "GB of workspace");  // nobody named it: the others run
    run("--sweep --kernel too_large", LAB_USAGE, "GB of workspace");
    // On a GPU the sweep goes on to lengths of which "right" computes a sample only.
    if (ON_CPU) run("--sweep --kernel right --kernel too_large", LAB_OK, "did not run");
    run("--sweep --kernel right --heads 2147483647", LAB_USAGE, "GB of host memory");
    run("--kernel only_64 --dim 32", LAB_USAGE, NULL);
    run("--dtype bf16 --dim 64", LAB_OK, "does not support --dtype bf16");  // the others can not, one can
    run("--dtype bf16 --dim 32", LAB_USAGE, NULL);
    run("--dim 12", LAB_USAGE, NULL);
    run("--seqlne 3", LAB_USAGE, NULL);
    return unit_end();
}
