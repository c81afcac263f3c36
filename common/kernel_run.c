#include "kernel_run.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "replay.h"
#include "trace_file.h"

enum { BENCH_REPETITIONS = ON_CPU ? 3 : 30 };
// A second run that must give the same bits is "cheap" below this on the CPU; on a GPU it always is.
static const double cheap_seconds = 0.5;

void result_begin(struct result *result, const struct kernel *kernel, const struct attention *a) {
    memset(result, 0, sizeof *result);
    result->kernel = kernel->name, result->adds = kernel->adds, result->seqlen = a->seqlen_k;
    result->workspace = preflight_workspace(kernel, a);
    result->backward = kernel->forward != NULL;
    result->memory = preflight_tensors(a, result->backward) + result->workspace;
    result->blocks = kernel->blocks && query_count(a) > 0 ? kernel->blocks(a) : 0;
    result_clear(result);
}

void result_refuse(struct result *result, enum obstacle obstacle, const struct message *what) {
    if (obstacle == NO_OBSTACLE)
        snprintf(result->refused, sizeof result->refused, "%.500s", what->text);
    else
        snprintf(result->refused, sizeof result->refused, "kernel %s %s %.500s", result->kernel,
                 obstacle_verb(obstacle, 0), what->text);
}

static double seconds_now(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The same by a graph, for kernels whose launch may take less time than the host to ask for it.
static void replay_kernel(struct device_case *c, const struct kernel *kernel, struct result *result) {
    struct message why = {""};
    case_begin(c, kernel);
    if (replay_measure(c, kernel, &result->replay, &why) != 0) {
        printf("%s is not timed by a graph: %s.\n", kernel->name, why.text);
        return;
    }
    case_fetch(c, kernel);
    check_outputs(c, kernel, result);
    result->kv_bytes = kv_bytes(&c->problem.host);
}

static void time_kernel(struct device_case *c, const struct kernel *kernel, int repetitions,
                        double peak_tflops, struct result *result) {
    case_begin(c, kernel);
    struct timing timing = timer_measure(kernel->launch, c->on_device, c->device, repetitions);
    case_fetch(c, kernel);
    check_outputs(c, kernel, result);  // what was timed was right, too
    if (result->verdict != VERDICT_RIGHT) return;
    double flops = kernel_flops(kernel, &c->problem.host);
    result->timing = timing;
    result->tflops = timing.median_ms > 0 ? flops / (timing.median_ms * 1e9) : 0;
    if (peak_tflops > 0 && result->tflops > peak_tflops) {
        result->verdict = VERDICT_TOO_FAST;
        snprintf(result->detail, sizeof result->detail,
                 "%.1f TFLOP/s is more than the device's peak of %.1f: the measurement is wrong",
                 result->tflops, peak_tflops);
    }
    if (result->verdict == VERDICT_RIGHT && kernel->support.features & FEATURE_GROWING)
        replay_kernel(c, kernel, result);
}

#ifdef SIMT_CPU
// Whether there were races since the last call. The device has printed them when the launch ended.
static int found_races(uint64_t schedule, struct result *result) {
    int pairs = simt_take_races();
    if (pairs == 0) return 0;
    result->verdict = VERDICT_RACE;
    struct simt_race races[MAX_RACE_LINES];
    int count = simt_take_race_lines(races, MAX_RACE_LINES);
    for (int i = 0; i < count && result->race_count < MAX_RACE_LINES; ++i) {
        struct race_lines *to = &result->races[result->race_count++];
        memcpy(to->what, races[i].what, sizeof to->what);
        memcpy(to->first, races[i].first, sizeof to->first);
        memcpy(to->second, races[i].second, sizeof to->second);
    }
    snprintf(result->detail, sizeof result->detail,
             "%d %s of source lines race under --schedule %llu; the lines are printed above", pairs,
             pairs == 1 ? "pair" : "pairs", (unsigned long long)schedule);
    return 1;
}

// The same bits and no race, whatever the order of threads. Of the order that was asked for, and of schedule
// 0 if none was, the first launch has told already.
static void check_schedules(struct device_case *c, const struct kernel *kernel, struct result *result) {
    static const uint64_t schedules[] = {1, 11, 12, 13};  // descending, three random orders
    if (c->options->schedule_given) {
        printf("%s: no races under --schedule %llu\n", kernel->name,
               (unsigned long long)c->options->schedule);
        return;
    }
    for (int i = 0; i < 4 && result->verdict == VERDICT_RIGHT; ++i) {
        char how[64];
        snprintf(how, sizeof how, "under --schedule %llu", (unsigned long long)schedules[i]);
        simt_set_schedule(schedules[i]);
        check_again(c, kernel, how, result);
        found_races(schedules[i], result);
    }
    simt_set_schedule(c->options->schedule);
    if (result->verdict == VERDICT_RIGHT)
        printf("%s: no races, and bit-equal%s, under five thread schedules\n", kernel->name,
               kernel->support.unordered_dq ? " but for dQ" : "");
}

// One launch more, counted. The rest of the run is not: counting is slow.
static void count_traffic(struct device_case *c, const struct kernel *kernel, struct report *report) {
    struct profile *profile = &report->profiles[report->profile_count++];
    profile_begin(profile, kernel->name, kernel_flops(kernel, &c->problem.host));
    case_begin(c, kernel);
    profile_count(1);
    case_launch(c, kernel);
    if (profile_take(profile) != 0) fprintf(stderr, "There is no memory left for all that was counted.\n");
    profile_count(0);
    profile_print(stdout, profile);
}
#endif

// One launch more, that marks its phases; of what it computes everything is checked again. On a GPU others go
// before it, so that its code is in the caches and the clocks are up.
static void trace_kernel(struct device_case *c, const struct kernel *kernel, struct report *report,
                         struct result *result) {
    enum { WARM_UPS = ON_CPU ? 0 : 3 };
    const struct kernel traced = {
        .name = kernel->name, .launch = kernel->launch_traced, .forward = kernel->forward};
    struct buffer *buffer = &c->buffer[BUFFER_TRACE];
    struct trace *trace = malloc(sizeof *trace);
    struct message why = {"there is no memory left"};
    if (!trace || buffer_make(buffer, sizeof *trace, "trace", &why) != 0) {
        printf("%s is not traced: %s.\n", kernel->name, why.text);
        free(trace);
        return;
    }
    c->on_device.trace = buffer->data;
    case_begin(c, kernel);
    for (int i = 0; i <= WARM_UPS; ++i) {
        CUDA_CHECK(cudaMemset(buffer->data, 0, buffer->bytes));
#ifdef SIMT_CPU
        simt_set_tracing(1);
#endif
        case_launch(c, &traced);
#ifdef SIMT_CPU
        simt_set_tracing(0);
#endif
    }
    c->on_device.trace = NULL;
    check_outputs(c, kernel, result);
    buffer_download(buffer, trace);
    buffer_free(buffer);
    if (result->verdict == VERDICT_RIGHT &&
        trace_file_add(report->trace, kernel->name, trace, kernel->trace_names,
                       ON_CPU ? 0 : report->device->clock_mhz, &why) != 0) {
        result->verdict = VERDICT_TRACE;
        snprintf(result->detail, sizeof result->detail, "%.500s", why.text);
    } else if (result->verdict != VERDICT_RIGHT) {
        char detail[sizeof result->detail];
        memcpy(detail, result->detail, sizeof detail);
        snprintf(result->detail, sizeof result->detail, "its traced launch: %.500s", detail);
    }
    free(trace);
}

int kernel_prepare(struct device_case *c, const struct kernel *kernel, const struct lab *lab,
                   struct result *result) {
    struct message what = {""};
    enum obstacle obstacle = preflight_kernel(lab, kernel, &c->on_device, c->left, &what);
    if (obstacle == NO_OBSTACLE)
        obstacle = preflight_scores(kernel, &c->on_device, c->problem.reference.largest_score, &what);
    if (obstacle == NO_OBSTACLE && kernel->workspace &&
        buffer_make(&c->buffer[BUFFER_WORKSPACE], (size_t)result->workspace, "workspace", &what) != 0) {
        char need[32];
        fail(&what, "%s of workspace in one piece, which the device does not have; choose a smaller --seqlen",
             bytes_text(result->workspace, need));
        obstacle = TOO_LARGE;
    }
    if (obstacle != NO_OBSTACLE) result_refuse(result, obstacle, &what);
    c->on_device.workspace = c->buffer[BUFFER_WORKSPACE].data;
    c->runs = 0;
    return obstacle == NO_OBSTACLE;
}

// The gradients to check against. Those of a sample are worked out from O and LSE as the forward pass left
// them, and so once for each forward pass.
static int have_gradients(struct device_case *c, const struct kernel *kernel, struct message *why) {
    int made =
        c->problem.gradients_sampled ? c->gradients_after == kernel->forward : c->gradients_after != NULL;
    if (made) return 0;
    c->gradients_after = kernel->forward;
    return problem_gradients(c->options, &c->problem, REFERENCE_BUDGET, why);
}

// What a kernel that quantises is held against, and the error of one that does not beside it.
static int have_quantised(struct device_case *c, const struct kernel *kernel, struct result *result,
                          struct message *why) {
    struct problem *p = &c->problem;
    result->quantised = kernel->support.quantised;
    if (result->quantised == QUANTISED_NOT) return 0;
    result->o_unquantised_rmse =
        root_mean_square_error(p->reference.plain_o, p->reference.o, p->rows.count * p->host.head_dim);
    return problem_quantised(p, result->quantised, why);
}

// The first run, which Nsight Compute counts, and the check of all that it made. Of a forward pass that is
// wrong the launch is not run: nothing could be said of its results. Returns -1 if there is nothing to check
// against; *seconds is what the kernel took.
static int run_first(struct device_case *c, const struct kernel *kernel, struct result *result,
                     double *seconds, struct message *why) {
    double start = seconds_now();
    case_begin(c, kernel);
    *seconds = seconds_now() - start;
    if (kernel->forward) {
        if (!check_forward(c, result)) return 0;
        if (have_gradients(c, kernel, why) != 0) return -1;
    } else if (have_quantised(c, kernel, result, why) != 0) {
        return -1;
    }
    start = seconds_now();
    c->counted = 1;
    case_launch(c, kernel);
    c->counted = 0;
    *seconds += seconds_now() - start;
    check_outputs(c, kernel, result);
    return 0;
}

// Everything after the first run, as long as nothing is wrong.
static void run_more(struct device_case *c, const struct kernel *kernel, struct report *report,
                     struct result *result, double seconds) {
    const struct options *o = c->options;
#ifdef SIMT_CPU
    simt_set_sanitizing(0);  // the same threads in the same order would race again, or not again
#endif
    if (result->verdict == VERDICT_RIGHT && (!ON_CPU || (seconds < cheap_seconds && !o->sweep))) {
        double free_bytes = (double)device_free_bytes();
        check_again(c, kernel, "on the same inputs", result);
        result->growth = free_bytes - (double)device_free_bytes();
    }
    for (int i = 1; i <= o->repeat && result->verdict == VERDICT_RIGHT; ++i) {
        char how[64];
        snprintf(how, sizeof how, "in repetition %d of %d", i, o->repeat);
        check_again(c, kernel, how, result);
    }
#ifdef SIMT_CPU
    simt_set_sanitizing(o->sanitize);
    if (result->verdict == VERDICT_RIGHT && o->sanitize) check_schedules(c, kernel, result);
    simt_set_sanitizing(0);
    if (result->verdict == VERDICT_RIGHT && o->profile) count_traffic(c, kernel, report);
#endif
    int repetitions = BENCH_REPETITIONS;
    // A sweep goes on to lengths where a launch takes seconds: there, few repetitions.
    if (o->sweep && seconds * repetitions > 3) repetitions = seconds > 1 ? 1 : (int)(3 / seconds);
    if (result->verdict == VERDICT_RIGHT && (o->bench || o->sweep))
        time_kernel(c, kernel, repetitions, report_peak(report, kernel->support.quantised), result);
    struct message reason = {""};
    if (result->verdict == VERDICT_RIGHT && report->trace &&
        trace_possible(kernel, c->on_device.head_dim, &reason))
        trace_kernel(c, kernel, report, result);
}

int kernel_repetitions(void) { return BENCH_REPETITIONS; }

void kernel_watch_for_races(const struct device_case *c) {
#ifdef SIMT_CPU
    simt_set_sanitizing(c->options->sanitize);
#else
    (void)c;
#endif
}

void kernel_look_for_races(struct device_case *c, const struct kernel *kernel, struct result *result) {
#ifdef SIMT_CPU
    if (!c->options->sanitize) return;
    found_races(c->options->schedule, result);
    if (result->verdict == VERDICT_RIGHT) check_schedules(c, kernel, result);
    simt_set_sanitizing(0);
#else
    (void)c, (void)kernel, (void)result;
#endif
}

void kernel_count(struct device_case *c, const struct kernel *kernel, struct report *report) {
#ifdef SIMT_CPU
    count_traffic(c, kernel, report);
#else
    (void)c, (void)kernel, (void)report;
#endif
}

int run_kernel(struct device_case *c, const struct kernel *kernel, struct report *report,
               struct result *result, struct message *why) {
    double seconds = 0;
    result_begin(result, kernel, &c->on_device);
    if (!kernel_prepare(c, kernel, report->lab, result)) return 0;
    int status = 0;
#ifdef SIMT_CPU
    simt_set_sanitizing(c->options->sanitize);
#endif
    if (case_has_work(c, kernel)) {
        status = run_first(c, kernel, result, &seconds, why);
#ifdef SIMT_CPU
        found_races(c->options->schedule,
                    result);  // whatever the outputs are: a race may be why they are wrong
#endif
        if (status == 0) run_more(c, kernel, report, result, seconds);
    } else {
        result->verdict = VERDICT_EMPTY;
        case_begin(c, kernel);
        case_fetch(c, kernel);
    }
#ifdef SIMT_CPU
    simt_set_sanitizing(0);
#endif
    buffer_free(&c->buffer[BUFFER_WORKSPACE]);
    return status;
}
