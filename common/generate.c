#include "generate.h"

#include <math.h>
#include <string.h>

#include "case.h"
#include "kernel_run.h"
#include "machine.h"

enum { REPETITIONS = ON_CPU ? 1 : 5 };

struct shape generate_shape(const struct lab *lab) {
    struct shape shape = ON_CPU ? lab->on_cpu : lab->on_gpu;
    shape.seqlen = ON_CPU ? 300 : 8192;
    shape.seqlen_q = 1;
    return shape;
}

// Device memory of a layer by number.
enum { CACHE_K, CACHE_V, STEP_Q, STEP_O, STEP_LSE, TABLE_Q, TABLE_K, TABLE_V, LAYER_BUFFERS };

struct layer {
    struct problem problem;  // all steps as one causal problem, and what the kernel made of it
    struct buffer buffer[LAYER_BUFFERS];
    struct attention a;  // of one step, in device memory
    struct tokens tokens;
};

// Device memory that the layers share, by number.
enum {
    SHARED_CU_SEQLENS_Q,
    SHARED_CU_SEQLENS_K,
    SHARED_SEQUSED_K,
    SHARED_STEP,
    SHARED_WORKSPACE,
    SHARED_BUFFERS
};

struct model {
    struct layer *layer;  // [layers]
    int layers, steps, sequences;
    const struct options *options;
    const struct growth *growth;
    struct buffer buffer[SHARED_BUFFERS];
    cudaStream_t stream;
    double kv_bytes;  // of K and V that all layers read in all steps
};

// What became of a kernel.
struct outcome {
    struct result result;
    size_t nodes;               // of the graph
    double graph_ms, plain_ms;  // all steps, by the graph and launch by launch
};

// ---------------------------------------------------------------- the layers

static size_t row_bytes(const struct attention *a, int heads) {
    return (size_t)heads * (size_t)a->head_dim * (size_t)dtype_bytes(a->dtype);
}

static int make_buffers(struct layer *l, int sequences, struct message *why) {
    static const char *const names[LAYER_BUFFERS] = {
        "K", "V", "Q", "O", "LSE", "the table of Q", "the table of K", "the table of V"};
    const struct attention *host = &l->problem.host;
    size_t q_row = row_bytes(host, host->heads), k_row = row_bytes(host, host->kv_heads);
    const size_t bytes[LAYER_BUFFERS] = {
        k_row * (size_t)host->seqlen_k,
        k_row * (size_t)host->seqlen_k,
        q_row * (size_t)sequences,
        q_row * (size_t)sequences,
        sizeof(float) * (size_t)host->heads * (size_t)sequences,
        q_row * (size_t)host->seqlen_q,
        k_row * (size_t)host->seqlen_q,
        k_row * (size_t)host->seqlen_q,
    };
    for (int i = 0; i < LAYER_BUFFERS; ++i)
        if (buffer_make(&l->buffer[i], bytes[i], names[i], why) != 0) return -1;
    return 0;
}

// The rows of K or V that the steps bring, behind each other, as the table has them.
static void upload_table(const struct layer *l, int sequences, int steps, const void *all,
                         const struct buffer *table) {
    const struct attention *host = &l->problem.host;
    size_t row = row_bytes(host, host->kv_heads), bytes = row * (size_t)steps;
    for (int s = 0; s < sequences; ++s) {
        size_t first = (size_t)(host->cu_seqlens_k[s + 1] - steps);
        CUDA_CHECK(cudaMemcpy((char *)table->data + (size_t)s * bytes, (const char *)all + first * row, bytes,
                              cudaMemcpyHostToDevice));
    }
}

static int layer_make(struct layer *l, const struct model *m, int number, struct message *why) {
    struct options *o = malloc(sizeof *o);
    if (!o) return fail(why, "There is no memory left for --generate; choose a smaller shape.");
    *o = *m->options;
    o->seed += (uint64_t)number;
    int status = problem_make(o, &l->problem, why);
    free(o);
    if (status != 0) return -1;
    struct problem *p = &l->problem;
    // The copy of the options ends here; those of the caller say the same.
    p->host.cu_seqlens_q = m->options->cu_seqlens_q, p->host.cu_seqlens_k = m->options->cu_seqlens_k;
    if (rows_choose(&p->host, REFERENCE_BUDGET / m->layers, &p->rows) != 0 ||
        reference_forward(&p->host, &p->rows, &p->reference) != 0)
        return fail(why, "There is no memory left for the reference; choose a smaller shape.");
    if (make_buffers(l, m->sequences, why) != 0) return -1;
    l->a = p->host;
    l->a.seqlen_q = m->sequences;
    l->a.causal = 0;  // one query sees all keys that there are
    l->a.q = tensor_view(l->buffer[STEP_Q].data, LAYOUT_BSHD, l->a.heads, m->sequences, l->a.head_dim);
    l->a.o = tensor_view(l->buffer[STEP_O].data, LAYOUT_BSHD, l->a.heads, m->sequences, l->a.head_dim);
    l->a.k.data = l->buffer[CACHE_K].data, l->a.v.data = l->buffer[CACHE_V].data;
    l->a.lse = l->buffer[STEP_LSE].data;
    l->a.cu_seqlens_q = m->buffer[SHARED_CU_SEQLENS_Q].data;
    l->a.cu_seqlens_k = m->buffer[SHARED_CU_SEQLENS_K].data;
    l->a.seqused_k = m->buffer[SHARED_SEQUSED_K].data;
    l->a.stream = m->stream;
    buffer_upload(&l->buffer[TABLE_Q], p->host.q.data);
    upload_table(l, m->sequences, m->steps, p->host.k.data, &l->buffer[TABLE_K]);
    upload_table(l, m->sequences, m->steps, p->host.v.data, &l->buffer[TABLE_V]);
    l->tokens = (struct tokens){.q = l->buffer[TABLE_Q].data,
                                .k = l->buffer[TABLE_K].data,
                                .v = l->buffer[TABLE_V].data,
                                .steps = m->steps,
                                .step = m->buffer[SHARED_STEP].data,
                                .seqused_k = m->buffer[SHARED_SEQUSED_K].data};
    return 0;
}

static void layer_free(struct layer *l) {
    for (int i = 0; i < LAYER_BUFFERS; ++i) buffer_free(&l->buffer[i]);
    problem_free(&l->problem);
}

// Only the prompt is there, and what follows it in the caches is NaN.
static void start_layer(const struct model *m, const struct layer *l) {
    const struct attention *host = &l->problem.host;
    size_t row = row_bytes(host, host->kv_heads);
    for (int i = CACHE_K; i <= STEP_LSE; ++i) buffer_poison(&l->buffer[i]);
    for (int s = 0; s < m->sequences; ++s) {
        size_t first = (size_t)host->cu_seqlens_k[s] * row;
        size_t bytes = (size_t)(host->cu_seqlens_k[s + 1] - m->steps) * row - first;
        for (int i = CACHE_K; i <= CACHE_V && bytes > 0; ++i)
            CUDA_CHECK(cudaMemcpy((char *)l->buffer[i].data + first,
                                  (const char *)(i == CACHE_K ? host->k.data : host->v.data) + first, bytes,
                                  cudaMemcpyHostToDevice));
    }
}

// ---------------------------------------------------------------- the model

static int needs_too_much(const struct model *m, const struct attention *a, struct message *why) {
    double k_row = (double)row_bytes(a, a->kv_heads), q_row = (double)row_bytes(a, a->heads);
    double device = m->layers * (2 * k_row * a->seqlen_k + (q_row + 2 * k_row) * a->seqlen_q);
    double host = m->layers * problem_bytes(a, 0) + (ON_CPU ? 2 * device : 0);
    double memory = machine_memory_bytes() * USABLE_MEMORY, free_bytes = (double)device_free_bytes();
    char need[32], have[32];
    if (host > memory)
        return fail(
            why,
            "%d layers of this shape need %s of host memory, and the machine has %s; choose a smaller shape.",
            m->layers, bytes_text(host, need), bytes_text(memory, have));
    if (device > free_bytes)
        return fail(
            why, "The caches of %d layers need %s of device memory, and %s are free; choose a smaller shape.",
            m->layers, bytes_text(device, need), bytes_text(free_bytes, have));
    return 0;
}

// Writes one number a sequence to the device.
static void upload_numbers(const struct model *m, int which, const int *from, int first_is, int rise) {
    size_t count = m->buffer[which].bytes / sizeof(int);
    int *numbers = malloc(count * sizeof *numbers);
    CUDA_CHECK(numbers ? cudaSuccess : cudaErrorMemoryAllocation);
    for (size_t i = 0; i < count; ++i) numbers[i] = from ? from[i] : first_is + (int)i * rise;
    buffer_upload(&m->buffer[which], numbers);
    free(numbers);
}

static int model_make(struct model *m, const struct lab *lab, const struct options *o, struct message *why) {
    *m = (struct model){.layers = o->layers,
                        .steps = o->generate,
                        .sequences = o->sequences,
                        .options = o,
                        .growth = lab->growth};
    const struct attention shape = problem_shape(o);
    if (needs_too_much(m, &shape, why) != 0) return -1;
    const size_t counts[SHARED_WORKSPACE] = {(size_t)m->sequences + 1, (size_t)m->sequences + 1,
                                             (size_t)m->sequences, 1};
    static const char *const names[SHARED_WORKSPACE] = {"cu_seqlens_q", "cu_seqlens_k", "seqused_k",
                                                        "the step's number"};
    for (int i = 0; i < SHARED_WORKSPACE; ++i)
        if (buffer_make(&m->buffer[i], counts[i] * sizeof(int), names[i], why) != 0) return -1;
    upload_numbers(m, SHARED_CU_SEQLENS_Q, NULL, 0, 1);
    upload_numbers(m, SHARED_CU_SEQLENS_K, o->cu_seqlens_k, 0, 0);
    CUDA_CHECK(cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking));
    m->layer = calloc((size_t)m->layers, sizeof *m->layer);
    if (!m->layer) return fail(why, "There is no memory left for --generate; choose a smaller shape.");
    for (int n = 0; n < m->layers; ++n)
        if (layer_make(&m->layer[n], m, n, why) != 0) return -1;
    for (int step = 0; step < m->steps; ++step)
        m->kv_bytes += 2.0 * m->layers * (double)row_bytes(&shape, shape.kv_heads) *
                       (shape.seqlen_k - (double)m->sequences * (m->steps - 1 - step));
    return 0;
}

static void model_free(struct model *m) {
    for (int n = 0; m->layer && n < m->layers; ++n) layer_free(&m->layer[n]);
    free(m->layer);
    for (int i = 0; i < SHARED_BUFFERS; ++i) buffer_free(&m->buffer[i]);
    if (m->stream) CUDA_CHECK(cudaStreamDestroy(m->stream));
}

// Back to the prompt.
static void start(const struct model *m) {
    int *used = malloc((size_t)m->sequences * sizeof *used), zero = 0;
    CUDA_CHECK(used ? cudaSuccess : cudaErrorMemoryAllocation);
    for (int s = 0; s < m->sequences; ++s)
        used[s] = m->options->cu_seqlens_k[s + 1] - m->options->cu_seqlens_k[s] - m->steps + 1;
    buffer_upload(&m->buffer[SHARED_SEQUSED_K], used);
    buffer_upload(&m->buffer[SHARED_STEP], &zero);
    buffer_fill(&m->buffer[SHARED_WORKSPACE], 0xff);
    for (int n = 0; n < m->layers; ++n) start_layer(m, &m->layer[n]);
    CUDA_CHECK(cudaDeviceSynchronize());
    free(used);
}

static void enqueue_step(const struct model *m, const struct kernel *kernel) {
    for (int n = 0; n < m->layers; ++n) {
        struct attention a = m->layer[n].a;
        a.workspace = m->buffer[SHARED_WORKSPACE].data;
        if (kernel->plan && n == 0) kernel->plan(a);
        CUDA_CHECK(cudaGetLastError());
        a.planned = kernel->plan != NULL;
        m->growth->append(a, m->layer[n].tokens);
        CUDA_CHECK(cudaGetLastError());
        kernel->launch(a);
        CUDA_CHECK(cudaGetLastError());
    }
    m->growth->advance(m->layer[0].a, m->layer[0].tokens);
    CUDA_CHECK(cudaGetLastError());
}

static cudaGraphExec_t capture_step(const struct model *m, const struct kernel *kernel, size_t *nodes) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeRelaxed));
    enqueue_step(m, kernel);
    CUDA_CHECK(cudaStreamEndCapture(m->stream, &graph));
    CUDA_CHECK(cudaGraphGetNodes(graph, NULL, nodes));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return exec;
}

// ---------------------------------------------------------------- is it right?

// What a step left of O and LSE goes to its place among all steps: `o` and `lse` as in the problem.
static void fetch_step(const struct model *m, const struct layer *l, int step, void *o, float *lse) {
    const struct attention *host = &l->problem.host;
    size_t row = row_bytes(host, host->heads), sequences = (size_t)m->sequences;
    char *step_o = malloc(row * sequences);
    float *step_lse = malloc((size_t)host->heads * sequences * sizeof *step_lse);
    CUDA_CHECK(step_o && step_lse ? cudaSuccess : cudaErrorMemoryAllocation);
    buffer_download(&l->buffer[STEP_O], step_o);
    buffer_download(&l->buffer[STEP_LSE], step_lse);
    for (size_t s = 0; s < sequences; ++s) {
        size_t at = s * (size_t)m->steps + (size_t)step;
        memcpy((char *)o + at * row, step_o + s * row, row);
        for (size_t h = 0; h < (size_t)host->heads; ++h)
            lse[h * (size_t)host->seqlen_q + at] = step_lse[h * sequences + s];
    }
    free(step_o);
    free(step_lse);
}

static void wrong(struct result *result, enum verdict verdict, int layer, const char *text) {
    if (result->verdict != VERDICT_RIGHT) return;
    result->verdict = verdict;
    snprintf(result->detail, sizeof result->detail, "layer %d: %.500s", layer, text);
}

// The worse of what was found before and this.
static void add_finding(struct finding *all, const struct finding *one) {
    if (!(all->err / all->bound >= one->err / one->bound)) *all = *one;
}

static void check_output(struct result *result, int layer, const struct problem *p, enum output output) {
    const struct comparison comparison = problem_comparison(p, output, QUANTISED_NOT);
    const struct finding f = compare(&comparison);
    add_finding(output == OUTPUT_O ? &result->o : &result->lse, &f);
    if (f.verdict == VERDICT_RIGHT) return;
    int steps = p->host.cu_seqlens_q[1], row = (int)f.row;
    char text[300], column[40] = "";
    if (output == OUTPUT_O) snprintf(column, sizeof column, ", column %lld", (long long)f.column);
    snprintf(text, sizeof text, "%s[step %d, sequence %d, head %lld%s] is %.9g, expected %.9g (%s)",
             output == OUTPUT_O ? "O" : "LSE", row % steps, row / steps, (long long)f.head, column, f.actual,
             f.expected, verdict_text(f.verdict));
    wrong(result, f.verdict, layer, text);
}

// The caches hold the prompt and all tokens of the steps, and nothing beside them was written.
static void check_memory(struct result *result, const struct model *m, int n) {
    const struct layer *l = &m->layer[n];
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
    start(m);
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
            fetch_step(m, &m->layer[n], step, host->o.data, host->lse);
        }
    }
    for (int n = 0; n < m->layers; ++n) {
        check_output(result, n, &m->layer[n].problem, OUTPUT_O);
        check_output(result, n, &m->layer[n].problem, OUTPUT_LSE);
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
        fetch_step(m, &m->layer[n], m->steps - 1, o, lse);
        if (memcmp(o, p->host.o.data, o_bytes) != 0 || memcmp(lse, p->host.lse, lse_bytes) != 0)
            wrong(result, VERDICT_UNSTEADY, n, how);
        free(o);
        free(lse);
    }
}

// ---------------------------------------------------------------- how fast is it?

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

// The median time of all steps, in ms: by the graph, or without it launch by launch.
static double time_steps(const struct model *m, const struct kernel *kernel, cudaGraphExec_t exec) {
    cudaEvent_t begin, end;
    double ms[REPETITIONS];
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    for (int i = 0; i < REPETITIONS; ++i) {
        float took = 0;
        start(m);
        CUDA_CHECK(cudaEventRecord(begin, m->stream));
        for (int step = 0; step < m->steps; ++step) {
            if (exec)
                CUDA_CHECK(cudaGraphLaunch(exec, m->stream));
            else
                enqueue_step(m, kernel);
        }
        CUDA_CHECK(cudaEventRecord(end, m->stream));
        CUDA_CHECK(cudaStreamSynchronize(m->stream));
        CUDA_CHECK(cudaEventElapsedTime(&took, begin, end));
        ms[i] = (double)took;
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    qsort(ms, REPETITIONS, sizeof *ms, ascending);
    return ms[REPETITIONS / 2];
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
    start(m);
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
