#include "preflight.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "device.h"
#include "machine.h"
#include "problem.h"

const char *obstacle_verb(enum obstacle obstacle, int plural) {
    if (obstacle == NOT_SUPPORTED) return plural ? "do not support" : "does not support";
    return plural ? "need" : "needs";
}

// ---------------------------------------------------------------- one kernel

static void dtype_list(unsigned dtypes, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int t = 0; t < DTYPE_COUNT && used < bytes; ++t)
        if (dtypes >> t & 1)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     dtype_name((enum dtype)t));
}

double preflight_workspace(const struct kernel *kernel, const struct attention *a) {
    if (!kernel->workspace) return 0;
    // lab.h promises that the function's 64-bit products stay in range: beyond that, one matrix of scores in
    // the smallest type stands for what it would have said.
    double rows = (double)(a->batch ? a->batch : 1) * a->heads * (a->seqlen_q + 128.0);
    double scores = rows * (a->seqlen_k + 128.0);
    if (scores > (double)LARGEST_SCORES) return scores;
    return (double)kernel->workspace(a);
}

// What only some kernels can do: by which option it is asked for, and the first lab that can do it.
static const struct {
    unsigned feature;
    const char *option, *lab;
} features[] = {{FEATURE_WINDOW, "--window", "lab05_causal"},
                {FEATURE_PACKED, "--seqlens", "lab05_causal"},
                {FEATURE_UNALIGNED, "a --pad that puts rows off multiples of 16 bytes", "lab01_naive"},
                {FEATURE_SPLITS, "--splits", "lab08_flashdecoding"}};

static unsigned features_needed(const struct attention *a) {
    int64_t row_bytes = ((int64_t)a->head_dim + a->pad) * dtype_bytes(a->dtype);
    return (a->window ? (unsigned)FEATURE_WINDOW : 0u) | (a->sequences ? (unsigned)FEATURE_PACKED : 0u) |
           (a->pad && row_bytes % 16 != 0 ? (unsigned)FEATURE_UNALIGNED : 0u) |
           (a->splits ? (unsigned)FEATURE_SPLITS : 0u);
}

// "--window (but B, C do)", or "(but lab05_causal does)" if no kernel of this lab does.
static void say_missing(const struct lab *lab, unsigned missing, struct message *what) {
    int n = 0, can = 0;
    while (!(features[n].feature & missing)) ++n;
    char names[200] = "";
    for (int i = 0; i < lab->kernel_count; ++i) {
        size_t used = strlen(names);
        if (lab->kernels[i].support.features & features[n].feature)
            snprintf(names + used, sizeof names - used, "%s%s", can++ ? ", " : "", lab->kernels[i].name);
    }
    fail(what, "%s (but %s %s)", features[n].option, can ? names : features[n].lab, can > 1 ? "do" : "does");
}

enum obstacle preflight_kernel(const struct lab *lab, const struct kernel *kernel, const struct attention *a,
                               double left, struct message *what) {
    const struct support *s = &kernel->support;
    int multiple = s->head_dim_multiple > 0 ? s->head_dim_multiple : 1;
    char dtypes[64], need[32], have[32];
    dtype_list(s->dtypes, dtypes, sizeof dtypes);
    if (s->gpu_only && ON_CPU) {
        fail(what, "the cpu backend (it calls a library for GPUs)");
        return NOT_SUPPORTED;
    }
    if (!(s->dtypes >> a->dtype & 1)) {
        fail(what, "--dtype %s (but %s)", dtype_name(a->dtype), dtypes);
        return NOT_SUPPORTED;
    }
    if (a->head_dim % multiple != 0 || a->head_dim > s->head_dim_max) {
        fail(what, "--dim %d (but multiples of %d up to %d)", a->head_dim, multiple, s->head_dim_max);
        return NOT_SUPPORTED;
    }
    unsigned missing = features_needed(a) & ~s->features;
    if (missing) {
        say_missing(lab, missing, what);
        return NOT_SUPPORTED;
    }
    if (!kernel->workspace || left == INFINITY) return NO_OBSTACLE;
    double workspace = preflight_workspace(kernel, a);
    if (buffer_cost(workspace) <= left) return NO_OBSTACLE;
    fail(
        what,
        "%s of workspace at this shape, %s of device memory are free; choose a smaller --seqlen, or a kernel "
        "that needs less (%s keeps no N x N matrix)",
        bytes_text(workspace, need), bytes_text(left, have),
        kernel->forward ? "lab06_backward --kernel separate" : "lab02_online_softmax --kernel fused");
    return TOO_LARGE;
}

enum obstacle preflight_scores(const struct kernel *kernel, const struct attention *a, double largest_score,
                               struct message *what) {
    const int more = 1024;  // keys; rows of S may be rounded up to a few
    double limit = (double)kernel->support.score_max;
    if (limit > 0 && largest_score > limit) {
        fail(what, "a score of %.3g (but up to %g); choose a smaller --scale", largest_score, limit);
        return NOT_SUPPORTED;
    }
    // (A backward pass that keeps matrices keeps P and dP.)
    if (kernel->forward || largest_score <= dtype_max_finite(a->dtype) || query_count(a) == 0 ||
        a->seqlen_k == 0 || a->seqlen_k > INT_MAX - more)
        return NO_OBSTACLE;
    // Scratch memory that grows with the keys by a number for each query holds S.
    struct attention longer = *a;
    longer.seqlen_k += more;
    double growth = preflight_workspace(kernel, &longer) - preflight_workspace(kernel, a);
    if (growth < (double)more * (double)query_count(a) * (double)dtype_bytes(a->dtype)) return NO_OBSTACLE;
    fail(what,
         "a score of %.3g: it keeps S in %s, which ends at %g; choose a smaller --scale, or a kernel that "
         "keeps "
         "no S (lab02_online_softmax --kernel fused)",
         largest_score, dtype_name(a->dtype), dtype_max_finite(a->dtype));
    return NOT_SUPPORTED;
}

// ---------------------------------------------------------------- the case

// Adds up what the arrays of a case take, each as `size` says.
static double add_up(const struct attention *a, int backward, double (*size)(double bytes)) {
    double sum = size((double)a->batch * a->heads * a->seqlen_q * sizeof(float));  // LSE
    for (int i = 0; i < TENSORS; ++i)
        if (tensor_exists(i, backward)) sum += size(tensor_bytes(a, i));
    if (a->sequences) sum += 2 * size((a->sequences + 1.0) * sizeof(int));
    return sum;
}

static double itself(double bytes) { return bytes; }

double preflight_tensors(const struct attention *a, int backward) { return add_up(a, backward, itself); }

int preflight_case(const struct attention *a, int backward, double *left, struct message *why) {
    if (problem_fits(a, backward, why) != 0) return -1;
    double cost = add_up(a, backward, buffer_cost), free_bytes = (double)device_free_bytes();
    if (ON_CPU) {
        // The simulated device lives in the same memory and keeps another byte for each of its own.
        double beside_host = (machine_memory_bytes() * USABLE_MEMORY - problem_bytes(a, backward)) / 2;
        free_bytes = fmin(free_bytes, fmax(beside_host, 0));
    }
    char need[32], have[32];
    if (cost > free_bytes)
        return fail(why,
                    "Q, K, V, %s of this shape need %s of device memory, %s are free; choose a "
                    "smaller shape.",
                    backward ? "O, LSE, dO, dQ, dK and dV" : "O and LSE", bytes_text(cost, need),
                    bytes_text(free_bytes, have));
    *left = free_bytes - cost;
    return 0;
}

// ---------------------------------------------------------------- all kernels

static void append(struct message *to, const char *text) {
    size_t used = strlen(to->text);
    snprintf(to->text + used, sizeof to->text - used, "%s", text);
}

int preflight_kernels(const struct lab *lab, const struct options *o, const struct attention *a, double left,
                      struct message *why) {
    struct message said = {""};
    int can = 0;
    for (int i = 0; i < lab->kernel_count; ++i) {
        struct message what = {""}, other = {""};
        if (!options_choose(o, &lab->kernels[i])) continue;
        enum obstacle obstacle = preflight_kernel(lab, &lab->kernels[i], a, left, &what);
        if (obstacle == NO_OBSTACLE) {
            ++can;
            continue;
        }
        // Kernels with the same reason are named together, where the first of them is.
        struct message names = {""};
        int first = 1, named = 0;
        for (int j = 0; j < lab->kernel_count; ++j) {
            if (!options_choose(o, &lab->kernels[j]) ||
                preflight_kernel(lab, &lab->kernels[j], a, left, &other) != obstacle ||
                strcmp(what.text, other.text) != 0)
                continue;
            if (j < i) first = 0;
            append(&names, named++ ? ", " : "");
            append(&names, lab->kernels[j].name);
        }
        if (!first) continue;
        append(&said, said.text[0] ? "; " : "");
        append(&said, names.text);
        append(&said, " ");
        append(&said, obstacle_verb(obstacle, named > 1));
        append(&said, " ");
        append(&said, what.text);
    }
    if (!said.text[0] || (can > 0 && o->kernel_count == 0)) return 0;
    append(&said, ".");
    *why = said;
    return -1;
}

int preflight(const struct lab *lab, const struct options *o, struct message *why) {
    const struct attention a = problem_shape(o);
    double left = 0;
    // What is supported at no size comes first: it is the better answer to "--dim 12 --seqlen 1000000000".
    if (preflight_kernels(lab, o, &a, INFINITY, why) != 0) return -1;
    if (preflight_case(&a, o->backward, &left, why) != 0) return -1;
    return preflight_kernels(lab, o, &a, left, why);
}
