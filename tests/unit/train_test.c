// train_test.c - --train: the arithmetic of learning, on a layer whose answers are known; then with right and
// with wrong gradients of attention, of which only the right ones may pass.
#include "common/learner.h"

#include "fake_kernel.h"

// ---------------------------------------------------------------- the arithmetic

// In place of attention: O = 2 Q + 3 K + V, of which the gradients are plain.
static int linear_pass(struct learner *r, void *context, double *loss) {
    const struct layer *l = r->layer;
    double *o = context;
    for (int64_t i = 0; i < l->outputs; ++i)
        o[i] =
            2 * r->gradient[0][i] + 3 * r->gradient[1][i] + r->gradient[2][i];  // Q, K and V, before the pass
    *loss = learner_loss(r, o);
    for (int64_t i = 0; i < l->outputs; ++i) {
        r->gradient[0][i] = 2 * r->d_o[i], r->gradient[1][i] = 3 * r->d_o[i];
        r->gradient[2][i] = r->d_o[i];
    }
    return 0;
}

enum { TOKENS = 5, DIM = 3, VALUES = TOKENS * DIM, OF_V = 2 * DIM * DIM, WEIGHTS = 3 * DIM * DIM };
static float memory[TENSOR_DO + 1][VALUES];
static double output[VALUES];
static struct layer layer;

static void begin(struct learner *r, int number) {
    struct attention a = {.batch = 1, .heads = 1, .kv_heads = 1, .seqlen_q = TOKENS, .seqlen_k = TOKENS};
    a.head_dim = DIM, a.dtype = DTYPE_FP32;
    for (int i = 0; i <= TENSOR_DO; ++i)
        *tensor_at(&a, i) = tensor_view(memory[i], LAYOUT_BHSD, 1, TOKENS, DIM);
    EXPECT(learner_make(r, &layer, number, &a) == 0);
    r->pass = linear_pass, r->context = output;
    for (int i = 0; i < VALUES; ++i) r->target[i] = 0.1 * i - 0.5;
}

static double loss_at(struct learner *r) {
    double loss;
    EXPECT(learner_look(r, &loss) == 0);
    return loss;
}

// The largest eigenvalue of X^T X, by squaring it often.
static double largest_of_x(void) {
    double power[DIM][DIM], next[DIM][DIM], trace = 0, log_scale = 0;
    for (int a = 0; a < DIM; ++a)
        for (int b = 0; b < DIM; ++b) {
            power[a][b] = 0;
            for (int i = 0; i < TOKENS; ++i) power[a][b] += layer.x[i * DIM + a] * layer.x[i * DIM + b];
        }
    for (int n = 0; n < 40; ++n) {
        trace = power[0][0] + power[1][1] + power[2][2];
        log_scale += log(trace) / pow(2, n);
        for (int a = 0; a < DIM; ++a)
            for (int b = 0; b < DIM; ++b) {
                next[a][b] = 0;
                for (int k = 0; k < DIM; ++k) next[a][b] += power[a][k] * power[k][b] / trace / trace;
            }
        memcpy(power, next, sizeof power);
    }
    return exp(log_scale);
}

static void arithmetic(void) {
    static struct options options = {
        .heads = 1, .kv_heads = 1, .seqlen_q = TOKENS, .head_dim = DIM, .seed = 3};
    struct learner r, other;
    double curve[101];
    EXPECT(layer_make(&layer, &options) == 0 && layer.weights == WEIGHTS);
    EXPECT(layer.x[4] == inputs_normal(3, 4, 0, 0, 1, 1));
    begin(&r, 1);
    begin(&other, 2);
    EXPECT(memcmp(r.weights, other.weights, 8 * (size_t)layer.weights) != 0);
    // The slope is that of half the sum of squares, so half the outputs times that of the loss.
    double before = loss_at(&r), h = 1e-3, slope[WEIGHTS];
    memcpy(slope, r.slope, sizeof slope);
    for (int i = 0; i < WEIGHTS; ++i) {
        double weight = r.weights[i];
        r.weights[i] = weight + h;
        double above = loss_at(&r);
        r.weights[i] = weight - h;
        EXPECT_NEAR((above - loss_at(&r)) / (2 * h) * VALUES / 2, slope[i], 1e-6 * (1 + fabs(slope[i])));
        r.weights[i] = weight;
    }
    // Half the sum of squares of X (2 Wq + 3 Wk + Wv) - target: 2^2 + 3^2 + 1^2 times X^T X. Power iteration
    // comes near from below.
    double curvature = learner_curvature(&r), right = 14 * largest_of_x();
    EXPECT(curvature > 0.9 * right && curvature < 1.001 * right);
    EXPECT(loss_at(&r) == before);  // the weights are as they were
    EXPECT(learner_descend(&r, 100, 0.9, 0.25 / curvature, curve) == 0);
    EXPECT_NEAR(curve[0], before, 0);
    EXPECT(curve[100] < curve[0] / 10);
    EXPECT_NEAR(loss_at(&r), curve[100], 0);
    learner_free(&r);
    // The first step is the rate times the slope, the second has momentum.
    begin(&r, 1);
    double start = r.weights[0], rate = 1e-3;
    EXPECT(learner_descend(&r, 1, 0.9, rate, curve) == 0);
    EXPECT_NEAR(r.weights[0], start - rate * slope[0], 1e-12);
    EXPECT_NEAR(r.speed[0], slope[0], 1e-12);
    learner_free(&r);
    learner_free(&other);
    layer_free(&layer);
}

// Mirrored twice is as before; distances stay.
static void mirrors(void) {
    static struct options options = {
        .heads = 1, .kv_heads = 1, .seqlen_q = TOKENS, .head_dim = DIM, .seed = 3};
    struct learner r, other;
    EXPECT(layer_make(&layer, &options) == 0);
    begin(&r, 1);
    begin(&other, 1);
    learner_mirror(&r, 1);
    double squares = 0, before = 0, differ = 0;
    for (int i = 0; i < VALUES; ++i) {
        squares += r.target[i] * r.target[i], before += other.target[i] * other.target[i];
        differ += fabs(r.target[i] - other.target[i]);
    }
    EXPECT_NEAR(squares, before, 1e-12);
    EXPECT(differ > 0.1 && fabs(r.weights[0] - other.weights[0]) > 1e-3);
    EXPECT(fabs(r.weights[OF_V] - other.weights[OF_V]) > 1e-3);
    learner_mirror(&r, 1);
    for (int i = 0; i < VALUES; ++i) EXPECT_NEAR(r.target[i], other.target[i], 1e-12);
    for (int i = 0; i < WEIGHTS; ++i) EXPECT_NEAR(r.weights[i], other.weights[i], 1e-12);
    learner_free(&r);
    learner_free(&other);
    layer_free(&layer);
}

// ---------------------------------------------------------------- kernels

// Right gradients, of which one is multiplied by a factor.
static void scaled(struct attention a, enum tensor_index which, double factor) {
    right_backward(a);
    struct attention h = mirror(a);
    const struct tensor *t = tensor_in(&h, which);
    for (int64_t i = 0; i < (int64_t)bytes_of(&h, which) / 2; ++i)
        number_store(a.dtype, t->data, i, factor * number_load(a.dtype, t->data, i));
    to_device(tensor_in(&a, which)->data, t->data, bytes_of(&h, which));
    drop(h);
}
static void dq_scaled_twice(struct attention a) { scaled(a, TENSOR_DQ, a.scale); }
static void dk_not_scaled(struct attention a) { scaled(a, TENSOR_DK, 1 / a.scale); }
static void dv_halved(struct attention a) { scaled(a, TENSOR_DV, 0.5); }
static void dq_backwards(struct attention a) { scaled(a, TENSOR_DQ, -1); }
static void dk_a_little(struct attention a) { scaled(a, TENSOR_DK, 1.05); }
static void dq_unwritten(struct attention a) {
    right_backward(a);
    CUDA_CHECK(cudaMemset(a.dq.data, 0xff, 2));
}
static void past_dv(struct attention a) {
    right_backward(a);
    CUDA_CHECK(cudaMemset((char *)a.dv.data + bytes_of(&a, TENSOR_DV), 0, 1));
}
static void nothing_learnt(struct attention a) {
    for (int i = TENSOR_DQ; i <= TENSOR_DV; ++i)
        CUDA_CHECK(cudaMemset(tensor_at(&a, i)->data, 0, bytes_of(&a, i)));
}

#define ANY                                                                                                  \
    { 1u << DTYPE_FP16 | 1u << DTYPE_BF16, 1, 128, 0, FEATURE_WINDOW | FEATURE_UNALIGNED, 0 }
static size_t workspace_too_large(const struct attention *a) { return (void)a, (size_t)1 << 50; }
static const struct kernel kernels[] = {
    {"right", "", right_backward, NULL, ANY, right},
    {"dq_scaled_twice", "", dq_scaled_twice, NULL, ANY, right},
    {"dk_not_scaled", "", dk_not_scaled, NULL, ANY, right},
    {"dv_halved", "", dv_halved, NULL, ANY, right},
    {"dq_backwards", "", dq_backwards, NULL, ANY, right},
    {"dk_a_little", "", dk_a_little, NULL, ANY, right},
    {"dq_unwritten", "", dq_unwritten, NULL, ANY, right},
    {"past_dv", "", past_dv, NULL, ANY, right},
    {"nothing_learnt", "", nothing_learnt, NULL, ANY, right},
    {"too_large", "", right_backward, workspace_too_large, ANY, right},
    {"only_forward", "", right, NULL, ANY, NULL},
};
static struct lab lab = {.name = "lab_test00",
                         .idea = "training under test",
                         .lecture = "none",
                         .on_cpu = {.batch = 2, .heads = 6, .kv_heads = 2, .seqlen = 12, .head_dim = 16},
                         .kernels = kernels,
                         .kernel_count = sizeof kernels / sizeof *kernels};

static void run(const char *line, int code) { run_lab(&lab, NULL, line, code, NULL); }

static void right_ones(void) {
    run("--train 7 --kernel right", LAB_OK);
    EXPECT(launches ==
           16);  // the losses of the first weights and of those after each step, forward and backward
    run("--train 30 --kernel right --seqlen 20 --causal --heads 2 --kv-heads 1 --seed 5", LAB_OK);
    run("--train 30 --kernel right --seqlen 9 --dtype bf16 --layout bshd --pad 3 --window 2", LAB_OK);
    run("--train 30 --kernel right --seqlen 1 --dim 5", LAB_OK);
    run("--train 30 --kernel right --kernel only_forward --scale 0.5", LAB_OK);
}

static void wrong_ones(void) {
    for (int i = 1; i <= 8; ++i) {
        char line[100];
        snprintf(line, sizeof line, "--train 30 --seqlen 24 --kernel %s", kernels[i].name);
        run(line, LAB_WRONG);
    }
    run("--train 30 --seqlen 24 --kernel right --kernel dv_halved", LAB_WRONG);
    run("--train 30 --seqlen 24 --kernel right --kernel too_large", LAB_USAGE);
    EXPECT(launches == 0);
    run("--train 30 --kernel only_forward", LAB_USAGE);
    run("--train 30 --seqlen 20000 --heads 100 --kernel right", LAB_USAGE);
    run("--train 30 --scale 3e38 --kernel right", LAB_USAGE);  // infinity in fp32: nothing to compare with
}

int main(void) {
    arithmetic();
    mirrors();
    lab.on_gpu = lab.on_cpu;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return unit_end() ? 1 : LAB_SKIPPED;
    right_ones();
    wrong_ones();
    return unit_end();
}
