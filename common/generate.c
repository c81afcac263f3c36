#include "generate.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "kernel_run.h"
#include "model.h"
#include "replay.h"

enum { REPETITIONS = ON_CPU ? 1 : 5 };

struct shape generate_shape(const struct lab *lab) {
    struct shape shape = ON_CPU ? lab->on_cpu : lab->on_gpu;
    shape.seqlen = ON_CPU ? 300 : 8192;
    shape.seqlen_q = 1;
    return shape;
}

// What became of a kernel.
struct outcome {
    struct result result;
    size_t nodes;               // of the graph
    double graph_ms, plain_ms;  // all steps, by the graph and launch by launch
};

// ---------------------------------------------------------------- a step

static void enqueue_step(const struct model *m, const struct kernel *kernel) {
    for (int n = 0; n < m->layers; ++n) {
        struct attention a = m->layer[n].a;
        a.workspace = m->buffer[SHARED_WORKSPACE].data;
        m->growth->append(a, m->layer[n].tokens);
        CUDA_CHECK(cudaGetLastError());
        replay_enqueue(kernel, a, n == 0);
    }
    m->growth->advance(m->layer[0].a, m->layer[0].tokens);
    CUDA_CHECK(cudaGetLastError());
}

static cudaGraphExec_t capture_step(const struct model *m, const struct kernel *kernel, size_t *nodes) {
    CUDA_CHECK(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeRelaxed));
    enqueue_step(m, kernel);
    return replay_end_capture(m->stream, nodes);
}

// ---------------------------------------------------------------- is it right?

static void wrong(struct result *result, enum verdict verdict, int layer, const char *text) {
    if (result->verdict != VERDICT_RIGHT) return;
    result->verdict = verdict;
    snprintf(result->detail, sizeof result->detail, "layer %d: %.500s", layer, text);
}

// The worse of what was found before and this.
static void add_finding(struct finding *all, const struct finding *one) {
    if (!(all->err / all->bound >= one->err / one->bound)) *all = *one;
}

// What the steps left in one layer. (A row of a sequence is a step.)
static void check_layer(struct result *result, int layer, const struct problem *p) {
    struct result one = {.kernel = result->kernel};
    if (!check_results(p, OUTPUT_O, OUTPUT_LSE, QUANTISED_NOT, &one))
        wrong(result, one.verdict, layer, one.detail);
    add_finding(&result->o, &one.o);
    add_finding(&result->lse, &one.lse);
}

// The caches hold the prompt and all tokens of the steps, and nothing beside them was written.
static void check_memory(struct result *result, const struct model *m, int n) {
    const struct model_layer *l = &m->layer[n];
    struct message why = {""};
    for (int i = CACHE_K; i <= CACHE_V; ++i) {
        void *now = malloc(l->buffer[i].bytes + 1);
        CUDA_CHECK(now ? cudaSuccess : cudaErrorMemoryAllocation);
        buffer_download(&l->buffer[i], now);
        if (memcmp(now, i == CACHE_K ? l->problem.host.k.data : l->problem.host.v.data, l->buffer[i].bytes) !=
            0)
            wrong(result, VERDICT_INPUT, n,
                  i == CACHE_K ? "the cache of K does not hold the prompt and the tokens of all steps"
                               : "the cache of V does not hold the prompt and the tokens of all steps");
        free(now);
    }
    for (int i = 0; i < LAYER_BUFFERS; ++i)
        if (!buffer_guards_intact(&l->buffer[i], &why)) wrong(result, VERDICT_GUARD, n, why.text);
    for (int i = 0; i < SHARED_BUFFERS; ++i)
        if (m->buffer[i].base && !buffer_guards_intact(&m->buffer[i], &why))
            wrong(result, VERDICT_GUARD, n, why.text);
}

static void check_steps(const struct model *m, cudaGraphExec_t exec, struct result *result) {
    model_start(m);
    for (int n = 0; n < m->layers; ++n) {
        struct attention *host = &m->layer[n].problem.host;
        memset(host->o.data, 0xff, m->layer[n].problem.bytes[TENSOR_O]);
        memset(host->lse, 0xff, (size_t)query_count(host) * sizeof *host->lse);
    }
    for (int step = 0; step < m->steps; ++step) {
        CUDA_CHECK(cudaGraphLaunch(exec, m->stream));
        CUDA_CHECK(cudaStreamSynchronize(m->stream));
        for (int n = 0; n < m->layers; ++n) {
            const struct attention *host = &m->layer[n].problem.host;
            model_fetch_step(m, &m->layer[n], step, host->o.data, host->lse);
        }
    }
    for (int n = 0; n < m->layers; ++n) {
        check_layer(result, n, &m->layer[n].problem);
        check_memory(result, m, n);
    }
}

// The last step of what was timed has the bits of the last step that was checked.
static void check_last(const struct model *m, struct result *result, const char *how) {
    for (int n = 0; n < m->layers; ++n) {
        const struct problem *p = &m->layer[n].problem;
        size_t o_bytes = p->bytes[TENSOR_O], lse_bytes = (size_t)query_count(&p->host) * sizeof(float);
        void *o = malloc(o_bytes), *lse = malloc(lse_bytes);
        CUDA_CHECK(o && lse ? cudaSuccess : cudaErrorMemoryAllocation);
        memcpy(o, p->host.o.data, o_bytes);
        memcpy(lse, p->host.lse, lse_bytes);
        model_fetch_step(m, &m->layer[n], m->steps - 1, o, lse);
        if (memcmp(o, p->host.o.data, o_bytes) != 0 || memcmp(lse, p->host.lse, lse_bytes) != 0)
            wrong(result, VERDICT_UNSTEADY, n, how);
        free(o);
        free(lse);
    }
}

// ---------------------------------------------------------------- how fast is it?

// The median time of all steps, in ms: by the graph, or without it launch by launch.
static double time_steps(const struct model *m, const struct kernel *kernel, cudaGraphExec_t exec) {
    cudaEvent_t begin, end;
    float ms[REPETITIONS];
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    for (int i = 0; i < REPETITIONS; ++i) {
        model_start(m);
        CUDA_CHECK(cudaEventRecord(begin, m->stream));
        for (int step = 0; step < m->steps; ++step) {
            if (exec)
                CUDA_CHECK(cudaGraphLaunch(exec, m->stream));
            else
                enqueue_step(m, kernel);
        }
        CUDA_CHECK(cudaEventRecord(end, m->stream));
        CUDA_CHECK(cudaStreamSynchronize(m->stream));
        CUDA_CHECK(cudaEventElapsedTime(&ms[i], begin, end));
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    return timer_summary(ms, REPETITIONS).median_ms;
}

// ---------------------------------------------------------------- all kernels

// 1 if it ran; 0 if it cannot, and *what goes with "kernel NAME ".
static int run(struct model *m, const struct lab *lab, const struct kernel *kernel, struct outcome *outcome,
               struct message *what) {
    struct result *result = &outcome->result;
    const struct attention *a = &m->layer[0].a;
    struct message why = {""};
    result_begin(result, kernel, a);
    if (!(kernel->support.features & FEATURE_GROWING)) {
        fail(what, "does not support --generate");
        return 0;
    }
    enum obstacle obstacle = preflight_kernel(lab, kernel, a, (double)device_free_bytes(), &why);
    for (int n = 0; n < m->layers && obstacle == NO_OBSTACLE; ++n)
        obstacle = preflight_scores(kernel, a, m->layer[n].problem.reference.largest_score, &why);
    if (obstacle != NO_OBSTACLE) {
        fail(what, "%s %.500s", obstacle_verb(obstacle, 0), why.text);
        return 0;
    }
    if (buffer_make(&m->buffer[SHARED_WORKSPACE], (size_t)result->workspace, "workspace", &why) != 0) {
        fail(what, "needs workspace: %.500s", why.text);
        return 0;
    }
    model_start(m);
    enqueue_step(m, kernel);  // what a first launch allocates for itself cannot be captured
    CUDA_CHECK(cudaStreamSynchronize(m->stream));
    cudaGraphExec_t exec = capture_step(m, kernel, &outcome->nodes);
    check_steps(m, exec, result);
    if (result->verdict == VERDICT_RIGHT) {
        outcome->graph_ms = time_steps(m, kernel, exec);
        check_last(m, result, "the graph, launched again, gives other bits");
        outcome->plain_ms = time_steps(m, kernel, NULL);
        check_last(m, result, "launches without a graph give other bits");
    }
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    buffer_free(&m->buffer[SHARED_WORKSPACE]);
    m->buffer[SHARED_WORKSPACE] = (struct buffer){0};
    return 1;
}

static void print_outcome(const struct model *m, const struct outcome *it, int width) {
    const struct result *r = &it->result;
    printf("  %-*s  %8.2e  %8.2e  %8.2e  %8.2e  %-9s", width, r->kernel, r->o.err, r->o.bound, r->lse.err,
           r->lse.bound, verdict_text(r->verdict));
    if (r->verdict == VERDICT_RIGHT) {
        double step_ms = it->graph_ms / m->steps;
        printf("  %8zu  %9.4g  %9.4g  %9.4g  %8.4g", it->nodes, it->plain_ms / m->steps, step_ms,
               1e3 * m->sequences / step_ms, m->kv_bytes / it->graph_ms * 1e-6);
    }
    printf("\n");
    if (r->detail[0]) printf("      %s\n", r->detail);
}

static int run_all(struct model *m, const struct lab *lab, struct message *why) {
    int width = 6, ran = 0, all_right = 1;
    for (int i = 0; i < lab->kernel_count; ++i)
        if ((int)strlen(lab->kernels[i].name) > width) width = (int)strlen(lab->kernels[i].name);
    printf("%d layers, %d steps; attention alone: no weights are read. GB/s are of K and V.%s\n", m->layers,
           m->steps, ON_CPU ? " Times are the emulator's: they say nothing about a GPU." : "");
    printf("  %-*s  %8s  %8s  %8s  %8s  %-9s  %8s  %9s  %9s  %9s  %8s\n", width, "kernel", "O err", "bound",
           "LSE err", "bound", "", "launches", "ms a step", "by graph", "tokens/s", "GB/s");
    for (int i = 0; i < lab->kernel_count; ++i) {
        struct outcome outcome = {.nodes = 0};
        struct message what = {""};
        if (!options_choose(m->options, &lab->kernels[i])) continue;
        if (!run(m, lab, &lab->kernels[i], &outcome, &what)) {
            fail(why, "Kernel %s %.900s.", lab->kernels[i].name, what.text);
            if (m->options->kernel_count > 0) return -1;
            printf("  %-*s  does not run: it %s\n", width, lab->kernels[i].name, what.text);
            continue;
        }
        ++ran;
        print_outcome(m, &outcome, width);
        all_right &= outcome.result.verdict == VERDICT_RIGHT;
    }
    if (!ran) return -1;
    return all_right ? LAB_OK : LAB_WRONG;
}

int generate_run(const struct lab *lab, const struct options *o, const struct device *device,
                 struct message *why) {
    struct model model;
    struct report report = {.lab = lab, .options = o, .device = device, .shape = problem_shape(o)};
    report_print_configuration(stdout, &report);
    int status = model_make(&model, lab, o, why);
    if (status == 0) status = run_all(&model, lab, why);
    model_free(&model);
    return status;
}
