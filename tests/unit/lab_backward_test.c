// lab_backward_test.c - lab_main with backward passes. As in lab_test.c, the answer is the reference's, and
// most kernels plant one fault, in the launch or in the forward pass before it.
#include "common/compare.h"
#include "common/npy.h"

#include "fake_kernel.h"

static char json_path[1024];

static void silent(struct attention a) { (void)a; }

// A number at the end of a tensor replaced.
static void plant(struct attention a, enum tensor_index which, uint16_t bits) {
    to_device((char *)tensor_in(&a, which)->data + bytes_of(&a, which) - 2, &bits, 2);
}
static void unwritten_dk(struct attention a) { right_backward(a), plant(a, TENSOR_DK, 0xffff); }
static void nan_dv(struct attention a) { right_backward(a), plant(a, TENSOR_DV, 0x7fff); }
static void wrong_dq(struct attention a) { right_backward(a), plant(a, TENSOR_DQ, 0x4900); }  // 10
static void wrong_dk(struct attention a) { right_backward(a), plant(a, TENSOR_DK, 0x4900); }
static void wrong_dv(struct attention a) { right_backward(a), plant(a, TENSOR_DV, 0x4900); }
static void past_dq(struct attention a) {
    right_backward(a);
    CUDA_CHECK(cudaMemset((char *)a.dq.data + bytes_of(&a, TENSOR_DQ), 0, 1));
}
static void before_dk(struct attention a) {
    right_backward(a);
    CUDA_CHECK(cudaMemset((char *)a.dk.data - 2, 0, 2));
}
static void gap_of_dv(struct attention a) {
    right_backward(a);
    CUDA_CHECK(cudaMemset((char *)a.dv.data + a.dv.stride_row * 2 - 1, 0, 1));
}
// O and LSE are inputs of a backward pass.
static void changes_d_o(struct attention a) {
    right_backward(a);
    CUDA_CHECK(cudaMemset(a.d_o.data, 0x11, 1));
}
static void changes_o(struct attention a) {
    right_backward(a);
    CUDA_CHECK(cudaMemset(a.o.data, 0x11, 1));
}
static void changes_lse(struct attention a) {
    right_backward(a);
    CUDA_CHECK(cudaMemset(a.lse, 0x11, 1));
}

// One bit more or less of the last number of a tensor, in every other launch of the kernel.
static void flip(struct attention a, enum tensor_index which) {
    uint16_t last;
    const char *at = (char *)tensor_in(&a, which)->data + bytes_of(&a, which) - 2;
    to_host(&last, at, 2);
    if (launches % 4 == 0) plant(a, which, last ^ 1);
}
static void unsteady_dq(struct attention a) { right_backward(a), flip(a, TENSOR_DQ); }
static void unsteady_dk(struct attention a) { right_backward(a), flip(a, TENSOR_DK); }
// Right the first time, and wrong once in the second.
static void wrong_later(struct attention a) {
    right_backward(a);
    if (launches == 4) plant(a, TENSOR_DQ, 0x4900);
}

// Forward passes with a fault.
static void wrong_o(struct attention a) { right(a), plant(a, TENSOR_O, 0x4900); }
static void past_lse(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset(a.lse + query_count(&a), 0, 1));
}
static void changes_k(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset(a.k.data, 0x11, 1));
}
static void unsteady_lse(struct attention a) {
    float last;
    right(a);
    to_host(&last, a.lse + query_count(&a) - 1, 4);
    if (launches > 2) last = nextafterf(last, INFINITY), to_device(a.lse + query_count(&a) - 1, &last, 4);
}

// The forward pass leaves word in the workspace, without which the launch writes nothing.
static void leaves_word(struct attention a) {
    right(a);
    CUDA_CHECK(cudaMemset(a.workspace, 0x55, 100));
}
static void needs_word(struct attention a) {
    unsigned char word[200];
    to_host(word, a.workspace, sizeof word);
    if (word[0] == 0x55 && word[99] == 0x55 && word[100] != 0x55) right_backward(a);
}
// Adds to what it finds in the workspace. Where that is NaN, it takes it for a NaN of the inputs and works
// the sum out again.
static void begins_nowhere(struct attention a) {
    float begin;
    to_host(&begin, a.workspace, sizeof begin);
    right_backward(a);
    if (!isnan(begin)) plant(a, TENSOR_DQ, 0x4900);
}
static size_t workspace_200(const struct attention *a) { return (void)a, 200; }

#define ANY                                                                                                  \
    { 1u << DTYPE_FP16, 8, 128, 0, FEATURE_WINDOW | FEATURE_PACKED | FEATURE_UNALIGNED, 0 }
#define UNORDERED                                                                                            \
    { 1u << DTYPE_FP16, 8, 128, 0, FEATURE_WINDOW | FEATURE_PACKED, 0, 1 }
static const struct kernel kernels[] = {
    {"right", "", right_backward, NULL, ANY, right},
    {"silent", "", silent, NULL, ANY, right},
    {"unwritten_dk", "", unwritten_dk, NULL, ANY, right},
    {"nan_dv", "", nan_dv, NULL, ANY, right},
    {"wrong_dq", "", wrong_dq, NULL, ANY, right},
    {"wrong_dk", "", wrong_dk, NULL, ANY, right},
    {"wrong_dv", "", wrong_dv, NULL, ANY, right},
    {"past_dq", "", past_dq, NULL, ANY, right},
    {"before_dk", "", before_dk, NULL, ANY, right},
    {"gap_of_dv", "", gap_of_dv, NULL, ANY, right},
    {"changes_d_o", "", changes_d_o, NULL, ANY, right},
    {"changes_o", "", changes_o, NULL, ANY, right},
    {"changes_lse", "", changes_lse, NULL, ANY, right},
    {"unsteady_dq", "", unsteady_dq, NULL, ANY, right},
    {"unsteady_dk", "", unsteady_dk, NULL, UNORDERED, right},
    {"unordered_dq", "", unsteady_dq, NULL, UNORDERED, right},
    {"wrong_later", "", wrong_later, NULL, UNORDERED, right},
    {"forward_silent", "", right_backward, NULL, ANY, silent},
    {"forward_wrong_o", "", right_backward, NULL, ANY, wrong_o},
    {"forward_past_lse", "", right_backward, NULL, ANY, past_lse},
    {"forward_changes_k", "", right_backward, NULL, ANY, changes_k},
    {"forward_unsteady", "", right_backward, NULL, ANY, unsteady_lse},
    {"needs_word", "", needs_word, workspace_200, ANY, leaves_word},
    {"no_word", "", needs_word, workspace_200, ANY, right},
    {"begins_nowhere", "", begins_nowhere, workspace_200, UNORDERED, right},
    {"only_forward", "", right, NULL, ANY, NULL},
};
static struct lab lab = {.name = "lab_test00",
                         .idea = "backward passes under test",
                         .lecture = "none",
                         .on_cpu = {.batch = 2, .heads = 6, .kv_heads = 2, .seqlen = 12, .head_dim = 8},
                         .kernels = kernels,
                         .kernel_count = sizeof kernels / sizeof *kernels};

static void run(const char *line, int code, const char *says) { run_lab(&lab, json_path, line, code, says); }

static void right_ones(void) {
    run("--kernel right", LAB_OK, "\"verdict\": \"right\"");
    EXPECT(launches == 4);  // forward and backward, and both a second time for the same bits
    run("--kernel right", LAB_OK, "\"dq\": {\"compared\": 1152, \"rows\": 144, \"rows_total\": 144, \"err\"");
    run("--kernel right", LAB_OK, "\"dk\": {\"compared\": 384, \"rows\": 48, \"rows_total\": 48, \"err\"");
    run("--kernel right", LAB_OK, "\"dv\": {\"compared\": 384");
    run("--kernel right --layout bshd,bhsd,bshd,bhsd --causal --seqlen-q 20", LAB_OK, "\"compared\": 1920");
    run("--kernel right --layout bhsd,bshd,bhsd,bshd --pad 8 --window 3", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel right --pad 3 --causal", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel right --inputs one-row", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel right --inputs constant-v", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel right --seqlens 5,0,17 --causal", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel right --seqlens-q 5,0,17 --seqlens-k 0,3,20 --inputs one-row", LAB_OK, NULL);
    // Every dQ and dK is NaN here, and looked at; dV is not.
    run("--kernel right --inputs nan-v --batch 1 --heads 1", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel right --bench", LAB_OK, "\"repetitions\"");
    run("--kernel right --repeat 3", LAB_OK, "\"growth_bytes\": 0");
    EXPECT(launches == 10);
    run("--kernel needs_word --bench --repeat 1", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel begins_nowhere", LAB_WRONG, "is 10, expected");
    run("--kernel no_word", LAB_WRONG, "dQ[batch 0, head 0, row 0, column 0] was never written");
    run("--kernel only_forward --kernel right", LAB_OK, "\"ran\": true");
    run("--kernel only_forward", LAB_OK, "\"verdict\": \"right\"");
    EXPECT(launches == 2);
}

// Without queries dK and dV are 0, without keys dQ is; without both there is nothing.
static void empty_ones(void) {
    run("--kernel right --seqlen-q 0", LAB_OK, "\"dk\": {\"compared\": 384");
    EXPECT(launches == 2);  // no forward pass
    run("--kernel silent --seqlen-q 0", LAB_WRONG, "dK[batch 0, head 0, row 0, column 0] was never written");
    run("--kernel right --seqlen-k 0", LAB_OK, "\"dq\": {\"compared\": 1152");
    run("--kernel silent --seqlen-k 0", LAB_WRONG, "dQ[batch 0, head 0, row 0, column 0] was never written");
    run("--kernel right --seqlen 0", LAB_OK, "nothing to compute");
    run("--kernel right --batch 0", LAB_OK, "nothing to compute");
    run("--kernel right --seqlens 0,0", LAB_OK, "nothing to compute");
    EXPECT(launches == 0);
    run("--kernel right --seqlens-q 0,0 --seqlens-k 3,1", LAB_OK, "\"dv\": {\"compared\": 64");
    run("--kernel only_forward --seqlen-q 0", LAB_OK, "nothing to compute");
}

static void wrong_ones(void) {
    run("--kernel silent", LAB_WRONG, "\"detail\": \"dQ[batch 0, head 0, row 0, column 0] was never written");
    run("--kernel unwritten_dk", LAB_WRONG, "dK[batch 1, head 1, row 11, column 7] was never written");
    run("--kernel nan_dv", LAB_WRONG, "dV[batch 1, head 1, row 11, column 7] is nan, expected");
    run("--kernel wrong_dq", LAB_WRONG, "dQ[batch 1, head 5, row 11, column 7] is 10, expected");
    run("--kernel wrong_dk", LAB_WRONG, "dK[batch 1, head 1, row 11, column 7] is 10, expected");
    run("--kernel wrong_dv --kernel right", LAB_WRONG, "\"verdict\": \"right\"");
    run("--kernel wrong_dv --seqlens-q 5,0,17 --seqlens-k 1,30,9", LAB_WRONG,
        "dV[sequence 2, head 1, row 8 of 9, column 7] is 10");
    run("--kernel past_dq", LAB_WRONG, "it wrote 0 bytes past the end of dQ");
    run("--kernel before_dk", LAB_WRONG, "it wrote 1 bytes before the beginning of dK");
    run("--kernel gap_of_dv --pad 1", LAB_WRONG, "it wrote between the rows of dV, which are --pad apart");
    run("--kernel changes_d_o", LAB_WRONG, "it changed dO, which is an input");
    run("--kernel changes_o", LAB_WRONG, "it changed O, which is an input");
    run("--kernel changes_lse", LAB_WRONG, "it changed LSE, which is an input");
    run("--kernel changes_lse --kernel right", LAB_WRONG, "\"verdict\": \"right\"");

    run("--kernel forward_silent", LAB_WRONG,
        "its forward pass: O[batch 0, head 0, row 0, column 0] was never");
    EXPECT(launches == 0);
    run("--kernel forward_wrong_o", LAB_WRONG,
        "its forward pass: O[batch 1, head 5, row 11, column 7] is 10");
    run("--kernel forward_past_lse", LAB_WRONG, "its forward pass: it wrote 0 bytes past the end of LSE");
    run("--kernel forward_changes_k", LAB_WRONG, "its forward pass: it changed K");
    run("--kernel forward_wrong_o --kernel right", LAB_WRONG, "\"verdict\": \"right\"");
}

// Past the budget of the reference the gradients are examined on a sample, from O and LSE as the forward pass
// left them; the last key is always in it.
static void sampled_ones(void) {
    run("--kernel right --kernel wrong_dk --batch 1 --heads 1 --seqlen 2800 --dim 8 --causal", LAB_WRONG,
        "dK[batch 0, head 0, row 2799, column 7] is 10");
    EXPECT_SAYS(last_report, "\"verdict\": \"right\"");
    EXPECT(strstr(last_report, "\"rows\": 2800, \"rows_total\": 2800") != NULL);  // O
    const char *dv = strstr(last_report, "\"dv\"");
    EXPECT(dv && strncmp(strstr(dv, "\"rows\""), "\"rows\": 2800", 12) != 0);
}

static void unsteady_ones(void) {
    run("--kernel unsteady_dq", LAB_WRONG, "dQ differs from the first run on the same inputs");
    run("--kernel unsteady_dk", LAB_WRONG, "dK differs from the first run");
    run("--kernel unordered_dq --repeat 5", LAB_OK, "\"verdict\": \"right\"");
    run("--kernel forward_unsteady", LAB_WRONG, "LSE differs from the first run");
    run("--kernel wrong_later", LAB_WRONG, "dQ[batch 1, head 5, row 11, column 7] is 10, expected");
    run("--kernel wrong_later", LAB_WRONG, "on the same inputs");
}

// The folder of --save and --load with one file put in another's place, or removed.
static void copy_file(const char *folder, const char *from, const char *to) {
    char path[1200];
    struct npy array;
    struct message why;
    snprintf(path, sizeof path, "%s/%s.npy", folder, from);
    EXPECT(npy_read(path, &array, &why) == 0);
    snprintf(path, sizeof path, "%s/%s.npy", folder, to);
    EXPECT(npy_write(path, array.dtype, array.rank, array.shape, array.data, &why) == 0);
    npy_free(&array);
}
static void remove_file(const char *folder, const char *name) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    EXPECT(remove(path) == 0);
}

static void files(const char *folder) {
    static const char *const written[] = {"do",        "dq",       "dk",       "dv",      "o_right",
                                          "lse_right", "dq_right", "dk_right", "dv_right"};
    char line[1300], in[1100];
    snprintf(in, sizeof in, "%s/backward", folder);
    snprintf(line, sizeof line, "--kernel right --causal --save %s", in);
    run(line, LAB_OK, NULL);
    snprintf(line, sizeof line, "--kernel right --causal --load %s", in);
    run(line, LAB_OK, "\"verdict\": \"right\"");
    for (size_t i = 0; i < sizeof written / sizeof *written; ++i) copy_file(in, written[i], "there");
    remove_file(in, "there");
    copy_file(in, "dv", "dk");
    run(line, LAB_USAGE, NULL);  // dk.npy is not the answer
    remove_file(in, "dk");
    run(line, LAB_OK, "\"verdict\": \"right\"");
    copy_file(in, "dq", "dv");
    run(line, LAB_USAGE, NULL);  // these shapes disagree
    remove_file(in, "dv");
    // Without do.npy it is made from the seed: the same one.
    remove_file(in, "do");
    run(line, LAB_OK, "\"verdict\": \"right\"");
    copy_file(in, "k", "do");
    run(line, LAB_USAGE, NULL);
    // Another dO: the answer is another one.
    copy_file(in, "o", "do");
    remove_file(in, "o");
    remove_file(in, "lse");
    run(line, LAB_OK, "\"verdict\": \"right\"");  // float64 has to be rounded: dq.npy is passed over
    copy_file(in, "q", "do");
    run(line, LAB_USAGE, NULL);
    remove_file(in, "dq");
    run(line, LAB_OK, "\"verdict\": \"right\"");
    snprintf(line, sizeof line, "--kernel only_forward --causal --load %s", in);
    run(line, LAB_OK, "\"verdict\": \"right\"");
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    snprintf(json_path, sizeof json_path, "%s/lab_backward_test.json", folder);
    lab.on_gpu = lab.on_cpu;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return LAB_SKIPPED;
    right_ones();
    empty_ones();
    wrong_ones();
    unsteady_ones();
    sampled_ones();
    files(folder);
    // Kernels that nobody named: all run, some are wrong.
    run("", LAB_WRONG, "\"verdict\": \"right\"");
    run("--sweep --kernel right --heads 1", LAB_OK, "\"seqlen\": 64");
    return unit_end();
}
