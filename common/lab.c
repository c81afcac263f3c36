// lab.c - lab_main: from a command line to a checked, reported, timed run of a lab's kernels.
#include "lab.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "compare.h"
#include "device.h"
#include "options.h"
#include "preflight.h"
#include "problem.h"
#include "report.h"
#include "timer.h"
#include "tools.h"

enum { BENCH_REPETITIONS = ON_CPU ? 3 : 30, MAX_SWEEP = 16 };
// A second run that must give the same bits is "cheap" below this on the CPU; on a GPU it always is.
static const double cheap_seconds = 0.5;

// One case on the device: inputs, outputs and, for the kernel at hand, workspace.
struct run {
    struct problem problem;
    struct buffer q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, workspace;
    struct attention on_device;
    double left;  // bytes of device memory for workspace
    int counted;  // 1: Nsight Compute, where the program runs under it, counts the launch
    const struct device *device;
    const struct options *options;
};

// The buffers of a run, the inputs first; and what the inputs are copied from. Without packed sequences
// there are no cu_seqlens: null pointers and no bytes.
enum { INPUT_BUFFERS = 5, BUFFERS = 8 };
static struct buffer *buffer_at(struct run *run, int i) {
    struct buffer *const buffers[BUFFERS] = {
        &run->q, &run->k,   &run->v,        &run->cu_seqlens_q, &run->cu_seqlens_k,
        &run->o, &run->lse, &run->workspace};
    return buffers[i];
}
static const void *input_at(const struct run *run, int i) {
    const struct attention *host = &run->problem.host;
    const void *const inputs[INPUT_BUFFERS] = {host->q.data, host->k.data, host->v.data, host->cu_seqlens_q,
                                               host->cu_seqlens_k};
    return inputs[i];
}

static int usage_error(const struct message *why) {
    fflush(stdout);
    fprintf(stderr, "%s\n", why->text);
    return LAB_USAGE;
}

static double seconds_now(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---------------------------------------------------------------- one case on the device

static void run_free(struct run *run) {
    for (int i = 0; i < BUFFERS; ++i) buffer_free(buffer_at(run, i));
    problem_free(&run->problem);
}

static size_t cu_seqlens_bytes(const struct attention *a) {
    return ((size_t)a->sequences + 1) * sizeof *a->cu_seqlens_q;
}
static size_t lse_bytes(const struct attention *a) { return (size_t)query_count(a) * sizeof(float); }

// Makes the case on the host and carries it to the device.
static int run_make(struct run *run, const struct options *options, const struct device *device,
                    struct message *why) {
    memset(run, 0, sizeof *run);
    run->options = options, run->device = device;
    struct problem *p = &run->problem;
    if (problem_make(options, p, why) != 0) return -1;
    if (preflight_case(&p->host, &run->left, why) != 0) {
        problem_free(p);
        return -1;
    }
    if (buffer_make(&run->q, p->bytes[0], "Q", why) != 0 ||
        buffer_make(&run->k, p->bytes[1], "K", why) != 0 ||
        buffer_make(&run->v, p->bytes[2], "V", why) != 0 ||
        buffer_make(&run->o, p->bytes[3], "O", why) != 0 ||
        buffer_make(&run->lse, lse_bytes(&p->host), "LSE", why) != 0 ||
        (p->host.sequences > 0 &&
         (buffer_make(&run->cu_seqlens_q, cu_seqlens_bytes(&p->host), "cu_seqlens_q", why) != 0 ||
          buffer_make(&run->cu_seqlens_k, cu_seqlens_bytes(&p->host), "cu_seqlens_k", why) != 0))) {
        struct message reason = *why;
        run_free(run);
        return fail(why, "%.600s; choose a smaller shape.", reason.text);
    }
    for (int i = 0; i < INPUT_BUFFERS; ++i) buffer_upload(buffer_at(run, i), input_at(run, i));
    run->on_device = p->host;
    run->on_device.q.data = run->q.data, run->on_device.k.data = run->k.data,
    run->on_device.v.data = run->v.data;
    run->on_device.o.data = run->o.data, run->on_device.lse = run->lse.data;
    run->on_device.cu_seqlens_q = run->cu_seqlens_q.data,
    run->on_device.cu_seqlens_k = run->cu_seqlens_k.data;
    return 0;
}

static void result_begin(struct result *result, const struct kernel *kernel, const struct attention *a) {
    memset(result, 0, sizeof *result);
    result->kernel = kernel->name, result->adds = kernel->adds, result->seqlen = a->seqlen_k;
    result->workspace = preflight_workspace(kernel, a);
    result->memory = preflight_tensors(a) + result->workspace;
}

// A kernel did not run: `what` goes with the obstacle, or is a sentence of its own.
static void result_refuse(struct result *result, enum obstacle obstacle, const struct message *what) {
    if (obstacle == NO_OBSTACLE)
        snprintf(result->refused, sizeof result->refused, "%.500s", what->text);
    else
        snprintf(result->refused, sizeof result->refused, "kernel %s %s %.500s", result->kernel,
                 obstacle_verb(obstacle, 0), what->text);
}

// Runs the kernel once into outputs and workspace that hold nothing but NaN; leaves the
// outputs in problem.host.
static void launch_once(struct run *run, const struct kernel *kernel) {
    buffer_poison(&run->o);
    buffer_poison(&run->lse);
    buffer_poison(&run->workspace);
    // Nothing to compute is done already, and a grid of no blocks would be an error.
    if (run->counted) device_set_counted(1);
    if (query_count(&run->on_device) > 0) kernel->launch(run->on_device);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceSynchronize());
    if (run->counted) device_set_counted(0);
    buffer_download(&run->o, run->problem.host.o.data);
    buffer_download(&run->lse, run->problem.host.lse);
}

// ---------------------------------------------------------------- check

static int guards_intact(struct run *run, struct result *result) {
    struct message why = {""};
    for (int i = 0; i < BUFFERS; ++i)
        if (buffer_at(run, i)->base && !buffer_guards_intact(buffer_at(run, i), &why)) {
            result->verdict = VERDICT_GUARD;
            snprintf(result->detail, sizeof result->detail, "it %.200s", why.text);
            for (int j = 0; j < BUFFERS; ++j)  // the next kernel is not to blame
                if (buffer_at(run, j)->base) buffer_set_guards(buffer_at(run, j));
            result->o.err = result->o.bound = result->lse.err = result->lse.bound = NAN;
            return 0;
        }
    if (problem_gaps_intact(&run->problem)) return 1;
    result->verdict = VERDICT_GUARD;
    snprintf(result->detail, sizeof result->detail, "it wrote between the rows of O, which are --pad apart");
    result->o.err = result->o.bound = result->lse.err = result->lse.bound = NAN;
    return 0;
}

static int inputs_intact(struct run *run, struct result *result) {
    for (int i = 0; i < INPUT_BUFFERS; ++i) {
        const struct buffer *buffer = buffer_at(run, i);
        void *now = malloc(buffer->bytes + 1);
        if (!now) {
            fprintf(stderr, "There is no memory left to look at the inputs again; choose a smaller shape.\n");
            exit(LAB_USAGE);
        }
        buffer_download(buffer, now);
        int same = buffer->bytes == 0 || memcmp(now, input_at(run, i), buffer->bytes) == 0;
        free(now);
        if (same) continue;
        buffer_upload(buffer, input_at(run, i));  // for the kernels after this one
        result->verdict = VERDICT_INPUT;
        snprintf(result->detail, sizeof result->detail, "it changed %s, which is an input", buffer->name);
        return 0;
    }
    return 1;
}

static void explain(const struct attention *a, const char *name, const struct finding *f,
                    struct result *result) {
    result->verdict = f->verdict;
    char where[160], column[40] = "";
    if (strcmp(name, "LSE") != 0) snprintf(column, sizeof column, ", column %lld", (long long)f->column);
    if (a->sequences > 0) {
        int n = sequence_of(a->cu_seqlens_q, a->sequences, f->row);
        snprintf(where, sizeof where, "%s[sequence %d, head %lld, row %lld of %d%s]", name, n,
                 (long long)f->head, (long long)f->row - a->cu_seqlens_q[n], sequence_at(a, n).seqlen_q,
                 column);
    } else {
        snprintf(where, sizeof where, "%s[batch %lld, head %lld, row %lld%s]", name, (long long)f->batch,
                 (long long)f->head, (long long)f->row, column);
    }
    size_t bytes = sizeof result->detail;
    switch (f->verdict) {
    case VERDICT_UNWRITTEN:
        snprintf(result->detail, bytes, "%s was never written", where);
        break;
    case VERDICT_NAN:
        if (isnan(f->actual) && isnan(f->expected))  // a row outside the sample: its value is not known
            snprintf(result->detail, bytes, "%s is NaN, though all inputs are finite", where);
        else
            snprintf(result->detail, bytes, "%s is %g, expected %.9g", where, f->actual, f->expected);
        break;
    case VERDICT_WRONG:
        snprintf(result->detail, bytes,
                 "%s is %.9g, expected %.9g (largest error of this head %.3g, bound %.3g)", where, f->actual,
                 f->expected, f->err, f->bound);
        break;
    default:
        snprintf(result->detail, bytes, "%s: %s", name, verdict_text(f->verdict));
    }
}

// Compares what launch_once left with the reference.
static void check_outputs(struct run *run, struct result *result) {
    const struct problem *p = &run->problem;
    const struct attention *a = &p->host;
    const struct reference *r = &p->reference;
    if (!guards_intact(run, result)) return;
    struct comparison o = {.output = OUTPUT_O,
                           .dtype = a->dtype,
                           .actual = a->o,
                           .batch = a->batch,
                           .heads = a->heads,
                           .seqlen = a->seqlen_q,
                           .columns = a->head_dim,
                           .rows = &p->rows,
                           .expected = r->o,
                           .plain = r->plain_o,
                           .facts = r->facts,
                           .expected_roundoff = p->o_roundoff,
                           .inputs_finite = p->inputs_finite,
                           .has_signal = r->has_signal};
    struct comparison lse = o;
    lse.output = OUTPUT_LSE, lse.dtype = DTYPE_FP32, lse.columns = 1, lse.has_signal = 0;
    lse.actual = tensor_view(a->lse, LAYOUT_BHSD, a->heads, a->seqlen_q, 1);
    lse.expected = r->lse, lse.plain = r->plain_lse, lse.expected_roundoff = p->lse_roundoff;
    result->o = compare(&o);
    result->lse = compare(&lse);
    if (result->o.verdict != VERDICT_RIGHT)
        explain(a, "O", &result->o, result);
    else if (result->lse.verdict != VERDICT_RIGHT)
        explain(a, "LSE", &result->lse, result);
    else
        inputs_intact(run, result);
}

// Runs the kernel again and requires the same bits: `how` says under which circumstances.
static void check_again(struct run *run, const struct kernel *kernel, const char *how,
                        struct result *result) {
    struct attention *host = &run->problem.host;
    size_t o_bytes = run->o.bytes, all_bytes = o_bytes + run->lse.bytes;
    char *before = malloc(all_bytes + 1);
    if (!before) return;  // a second run is a luxury
    memcpy(before, host->o.data, o_bytes);
    memcpy(before + o_bytes, host->lse, run->lse.bytes);
    launch_once(run, kernel);
    int same_o = memcmp(before, host->o.data, o_bytes) == 0;
    int same_lse = memcmp(before + o_bytes, host->lse, run->lse.bytes) == 0;
    free(before);
    if (same_o && same_lse) return;
    result->verdict = VERDICT_UNSTEADY;
    snprintf(result->detail, sizeof result->detail,
             "%s differs from the first run %s: a race, or memory read before it was written",
             same_o ? "LSE" : "O", how);
}

// ---------------------------------------------------------------- time, traffic, schedules

static void time_kernel(struct run *run, const struct kernel *kernel, int repetitions, double peak_tflops,
                        struct result *result) {
    buffer_poison(&run->o);
    buffer_poison(&run->lse);
    struct timing timing = timer_measure(kernel->launch, run->on_device, run->device, repetitions);
    buffer_download(&run->o, run->problem.host.o.data);
    buffer_download(&run->lse, run->problem.host.lse);
    check_outputs(run, result);  // what was timed was right, too
    if (result->verdict != VERDICT_RIGHT) return;
    double flops = 4.0 * run->on_device.head_dim * visible_pairs(&run->problem.host);
    result->timing = timing;
    result->tflops = timing.median_ms > 0 ? flops / (timing.median_ms * 1e9) : 0;
    if (peak_tflops > 0 && result->tflops > peak_tflops) {
        result->verdict = VERDICT_TOO_FAST;
        snprintf(result->detail, sizeof result->detail,
                 "%.1f TFLOP/s is more than the device's peak of %.1f: the measurement is wrong",
                 result->tflops, peak_tflops);
    }
}

#ifdef SIMT_CPU
// Whether there were races since the last call. The device has printed them when the launch ended.
static int found_races(uint64_t schedule, struct result *result) {
    int pairs = simt_take_races();
    if (pairs == 0) return 0;
    result->verdict = VERDICT_RACE;
    snprintf(result->detail, sizeof result->detail,
             "%d %s of source lines race under --schedule %llu; the lines are printed above", pairs,
             pairs == 1 ? "pair" : "pairs", (unsigned long long)schedule);
    return 1;
}

// The same bits and no race, whatever the order of threads. Of an order that was asked for, the first launch
// has told already.
static void check_schedules(struct run *run, const struct kernel *kernel, struct result *result) {
    static const uint64_t schedules[] = {0, 1, 11, 12, 13};  // ascending, descending, three random orders
    if (run->options->schedule_given) {
        printf("%s: no races under --schedule %llu\n", kernel->name,
               (unsigned long long)run->options->schedule);
        return;
    }
    for (int i = 0; i < 5 && result->verdict == VERDICT_RIGHT; ++i) {
        char how[64];
        snprintf(how, sizeof how, "under --schedule %llu", (unsigned long long)schedules[i]);
        simt_set_schedule(schedules[i]);
        check_again(run, kernel, how, result);
        found_races(schedules[i], result);
    }
    simt_set_schedule(run->options->schedule);
    if (result->verdict == VERDICT_RIGHT)
        printf("%s: no races, and bit-equal, under five thread schedules\n", kernel->name);
}

// One launch more, counted. The rest of the run is not: counting is slow.
static void count_traffic(struct run *run, const struct kernel *kernel, struct report *report) {
    struct profile *profile = &report->profiles[report->profile_count++];
    profile_begin(profile, kernel->name, &run->problem.host);
    profile_count(1);
    launch_once(run, kernel);
    if (profile_take(profile) != 0) fprintf(stderr, "There is no memory left for all that was counted.\n");
    profile_count(0);
    profile_print(stdout, profile);
}
#endif

// ---------------------------------------------------------------- the kernels of a run

// Runs one kernel on the case: check, check again, and what else was asked for.
static void run_kernel(struct run *run, const struct kernel *kernel, struct report *report,
                       struct result *result) {
    struct message what = {""};
    const struct options *o = run->options;
    result_begin(result, kernel, &run->on_device);
    enum obstacle obstacle = preflight_kernel(report->lab, kernel, &run->on_device, run->left, &what);
    if (obstacle == NO_OBSTACLE)
        obstacle = preflight_scores(kernel, &run->on_device, run->problem.reference.largest_score, &what);
    if (obstacle == NO_OBSTACLE && kernel->workspace &&
        buffer_make(&run->workspace, (size_t)result->workspace, "workspace", &what) != 0) {
        char need[32];
        fail(&what, "%s of workspace in one piece, which the device does not have; choose a smaller --seqlen",
             bytes_text(result->workspace, need));
        obstacle = TOO_LARGE;
    }
    if (obstacle != NO_OBSTACLE) {
        result_refuse(result, obstacle, &what);
        return;
    }
    run->on_device.workspace = run->workspace.data;
#ifdef SIMT_CPU
    simt_set_sanitizing(o->sanitize);
#endif
    double start = seconds_now();
    run->counted = 1;
    launch_once(run, kernel);
    run->counted = 0;
    double seconds = seconds_now() - start;
    if (query_count(&run->on_device) == 0) {
        result->verdict = VERDICT_EMPTY;
        result->o.err = result->o.bound = result->lse.err = result->lse.bound = NAN;
    } else {
        check_outputs(run, result);
#ifdef SIMT_CPU
        found_races(o->schedule, result);  // whatever the outputs are: a race may be why they are wrong
#endif
        if (result->verdict == VERDICT_RIGHT && (!ON_CPU || (seconds < cheap_seconds && !o->sweep))) {
            double free_bytes = (double)device_free_bytes();
            check_again(run, kernel, "on the same inputs", result);
            result->growth = free_bytes - (double)device_free_bytes();
        }
        for (int i = 1; i <= o->repeat && result->verdict == VERDICT_RIGHT; ++i) {
            char how[64];
            snprintf(how, sizeof how, "in repetition %d of %d", i, o->repeat);
            check_again(run, kernel, how, result);
        }
#ifdef SIMT_CPU
        if (result->verdict == VERDICT_RIGHT && o->sanitize) check_schedules(run, kernel, result);
        simt_set_sanitizing(0);
        if (result->verdict == VERDICT_RIGHT && o->profile) count_traffic(run, kernel, report);
#endif
        int repetitions = BENCH_REPETITIONS;
        // A sweep goes on to lengths where a launch takes seconds: there, few repetitions.
        if (o->sweep && seconds * repetitions > 3) repetitions = seconds > 1 ? 1 : (int)(3 / seconds);
        if (result->verdict == VERDICT_RIGHT && (o->bench || o->sweep))
            time_kernel(run, kernel, repetitions, report->peak_tflops, result);
    }
    buffer_free(&run->workspace);
}

// The exit code that the results call for; a refusal's reasons go to stderr, on one line.
static int exit_code(const struct report *report) {
    for (int i = 0; i < report->count; ++i) {
        enum verdict verdict = report->results[i].verdict;
        if (!report->results[i].refused[0] && verdict != VERDICT_RIGHT && verdict != VERDICT_EMPTY)
            return LAB_WRONG;
    }
    if (!report_is_refusal(report)) return LAB_OK;
    fflush(stdout);
    const char *between = "";
    for (int i = 0; i < report->count; ++i) {
        if (!report->results[i].refused[0]) continue;
        fprintf(stderr, "%s%s", between, report->results[i].refused);
        between = "; ";
    }
    fprintf(stderr, ".\n");
    return LAB_USAGE;
}

static int run_case(const struct lab *lab, const struct options *o, struct report *report,
                    struct message *why) {
    struct run run;
    if (run_make(&run, o, report->device, why) != 0) return -1;
    if (o->load && preflight_kernels(lab, o, &run.problem.host, run.left, why) != 0) {
        run_free(&run);
        return -1;
    }
    report->shape = run.problem.host;
    report->peak_tflops = device_peak_tflops(report->device, report->shape.dtype);
    report_print_configuration(stdout, report);
    int status = problem_reference(o, &run.problem, why);
    if (status == 0 && o->save) status = problem_save(&run.problem, o->save, why);
    if (status == 0 && run.problem.inputs_rounded)
        printf("The files hold numbers that %s cannot: they were rounded to it%s.\n", dtype_name(o->dtype),
               run.problem.answer_ignored
                   ? ", and the folder's o and lse, the answer to other inputs, are ignored"
                   : "");
    if (status == 0 && run.problem.o_loaded) printf("O is checked against the o.npy of the folder.\n");
    for (int i = 0; i < lab->kernel_count && status == 0; ++i) {
        if (!options_choose(o, &lab->kernels[i])) continue;
        struct result *result = &report->results[report->count++];
        run_kernel(&run, &lab->kernels[i], report, result);
        if (o->save && !result->refused[0])
            status = problem_save_result(&run.problem, o->save, lab->kernels[i].name, why);
    }
    run_free(&run);
    if (status == 0) report_print_table(stdout, report);
    return status;
}

// ---------------------------------------------------------------- the sweep over N

// What a sweep means by options that it sets itself.
static void settle_sweep(struct options *o) {
    o->batch = 1;
    if (ON_CPU && !(o->given & GIVEN_HEADS))
        o->heads = o->kv_heads = 1;  // the emulator's time grows with N^2 as well
    o->seqlen_q = o->seqlen_k = 0;
}

// One length of the sweep: a result for each chosen kernel that takes this type and head_dim.
static int run_length(const struct lab *lab, const struct options *o, struct report *report,
                      struct message *why) {
    struct attention shape = problem_shape(o);
    struct run run;
    double left = 0;
    int fits = preflight_case(&shape, &left, why) == 0, made = 0, status = 0;
    for (int i = 0; i < lab->kernel_count && status == 0; ++i) {
        const struct kernel *kernel = &lab->kernels[i];
        struct message what = *why;
        if (!options_choose(o, kernel)) continue;
        enum obstacle obstacle = preflight_kernel(lab, kernel, &shape, fits ? left : INFINITY, &what);
        if (obstacle == NOT_SUPPORTED) continue;
        struct result *result = &report->results[report->count++];
        if (obstacle == TOO_LARGE || !fits) {
            result_begin(result, kernel, &shape);
            result_refuse(result, obstacle, &what);
            continue;
        }
        if (!made) {  // nothing is computed for a length that no kernel can do
            if (run_make(&run, o, report->device, why) != 0) return -1;
            made = 1;
            status = problem_reference(o, &run.problem, why);
        }
        if (status == 0) run_kernel(&run, kernel, report, result);
    }
    if (made) run_free(&run);
    return status;
}

static int run_sweep(const struct lab *lab, const struct options *given, struct report *report,
                     struct message *why) {
    struct options o = *given;
    int first = ON_CPU ? 64 : 1024, last = ON_CPU ? 1024 : 32768;
    report->shape = problem_shape(&o);
    report->peak_tflops = device_peak_tflops(report->device, o.dtype);
    report_print_configuration(stdout, report);
    for (int i = 0; i < lab->kernel_count; ++i) {
        struct message what = {""};
        if (options_choose(&o, &lab->kernels[i]) &&
            preflight_kernel(lab, &lab->kernels[i], &report->shape, INFINITY, &what) == NOT_SUPPORTED)
            printf("kernel %s does not support %s.\n", lab->kernels[i].name, what.text);
    }
    for (int n = first; n <= last; n *= 2) {
        o.seqlen_q = o.seqlen_k = n;
        if (run_length(lab, &o, report, why) != 0) return -1;
    }
    report_print_sweep(stdout, report);
    return 0;
}

// ---------------------------------------------------------------- under Nsight Compute

// Each chosen kernel that can run, in a process of its own under Nsight Compute. Returns a lab_exit code.
static int run_under_profiler(int argc, char **argv, const struct lab *lab, const struct options *o,
                              struct report *report, struct message *why) {
    int code = LAB_OK;
    report->shape = problem_shape(o);
    if (o->load) {  // the files say what the shape is
        struct problem problem;
        if (problem_make(o, &problem, why) != 0) return usage_error(why);
        report->shape = problem.host;
        problem_free(&problem);
    }
    for (int i = 0; i < lab->kernel_count && (code == LAB_OK || code == LAB_WRONG); ++i) {
        const struct kernel *kernel = &lab->kernels[i];
        struct message what = {""};
        if (!options_choose(o, kernel) ||
            preflight_kernel(lab, kernel, &report->shape, INFINITY, &what) != NO_OBSTACLE)
            continue;
        struct profile *profile = &report->profiles[report->profile_count++];
        profile_begin(profile, kernel->name, &report->shape);
        int status = tools_profile(argc, argv, o, profile);
        if (status != LAB_OK) code = status;
        profile_print(stdout, profile);
    }
    return code;
}

// ---------------------------------------------------------------- main

static int run_all(int argc, char **argv, const struct lab *lab, const struct options *o,
                   const struct device *device) {
    struct message why = {""};
    FILE *json = NULL;
    if (o->json && !(json = fopen(o->json, "w"))) {
        fail(&why, "%s of --json cannot be written: %s.", o->json, strerror(errno));
        return usage_error(&why);
    }
    struct report report = {.lab = lab, .options = o, .device = device};
    report.results = calloc((size_t)lab->kernel_count * MAX_SWEEP, sizeof *report.results);
    report.profiles = calloc((size_t)lab->kernel_count, sizeof *report.profiles);
    int code = LAB_OK;
    if (!report.results || !report.profiles)
        fail(&why, "There is no memory left."), code = usage_error(&why);
    else if (!ON_CPU && o->profile)
        code = run_under_profiler(argc, argv, lab, o, &report, &why);
    else if ((o->sweep ? run_sweep : run_case)(lab, o, &report, &why) != 0)
        code = usage_error(&why);
    else
        code = exit_code(&report);
    if (json) {
        int good = !report.results || !report.profiles || report_write_json(json, &report) == 0;
        if (fclose(json) != 0 || !good) {
            fail(&why, "%s of --json could not be written to its end: %s.", o->json, strerror(errno));
            code = usage_error(&why);
        }
    }
    for (int i = 0; i < report.profile_count; ++i) profile_free(&report.profiles[i]);
    free(report.profiles);
    free(report.results);
    return code;
}

static int run_lab(int argc, char **argv, const struct lab *lab) {
    struct options options;
    struct message why = {""};
    const struct shape *shape = ON_CPU ? &lab->on_cpu : &lab->on_gpu;
    if (options_parse(argc, argv, lab, shape, &options, &why) != 0) return usage_error(&why);
    // NVIDIA's tools slow a kernel down a thousandfold, and what they count is to be held against the cpu
    // backend: the same shape there and here.
    if ((options.profile || options.sanitize) &&
        options_parse(argc, argv, lab, &lab->on_cpu, &options, &why) != 0)
        return usage_error(&why);
    if (options.help) return options_print_help(stdout, lab, shape), LAB_OK;
    if (options.list) return options_print_list(stdout, lab), LAB_OK;
    if (!ON_CPU && options.schedule) {
        fail(&why, "--schedule is for the cpu backend; a GPU chooses its own order of threads.");
        return usage_error(&why);
    }
    struct device device;
    if (device_open(lab, &device, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        return LAB_SKIPPED;
    }
    if (options.sweep) settle_sweep(&options);
    const struct attention shape_of_sweep = problem_shape(&options);
    int can = options.load    ? 0  // the files say what the shape is: run_case
              : options.sweep ? preflight_kernels(lab, &options, &shape_of_sweep, INFINITY, &why)
                              : preflight(lab, &options, &why);
    if (can != 0) return usage_error(&why);
    if (!ON_CPU && options.sanitize) return tools_sanitize(argc, argv, &options);
#ifdef SIMT_CPU
    simt_set_schedule(options.schedule);
#endif
    return run_all(argc, argv, lab, &options, &device);
}

int lab_main(int argc, char **argv, const struct lab *lab) {
    int status = run_lab(argc, argv, lab);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "The results could not be written to standard output (%s).\n", strerror(errno));
    return LAB_USAGE;
}
