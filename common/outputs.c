#define _DEFAULT_SOURCE
#include "outputs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "json.h"
#include "kernel_run.h"

// The first launch, whose results are written, and what can be said of it without a reference. With --bench,
// the results of the last launch that was timed are written instead.
static int run_one(struct device_case *c, const struct kernel *kernel, struct report *report,
                   struct result *result, struct message *why) {
    const struct options *o = c->options;
    kernel_watch_for_races(c);
    case_begin(c, kernel);
    if (o->bench && case_has_work(c, kernel)) {
        result->timing = timer_measure(kernel->launch, c->on_device, c->device, kernel_repetitions());
        case_fetch(c, kernel);
    } else {
        case_launch(c, kernel);
    }
    if (problem_save_result(&c->problem, kernel, o->outputs, why) != 0) return -1;
    check_surroundings(c, kernel, result);
    if (case_has_work(c, kernel)) {
        kernel_look_for_races(c, kernel, result);
        if (o->profile && ON_CPU && result->verdict == VERDICT_RIGHT) kernel_count(c, kernel, report);
    }
    return 0;
}

// Returns a lab_exit code, or -1 with a sentence: a problem with the files, or what a kernel refused that was
// to run.
static int run_kernels(struct device_case *c, struct report *report, struct message *why) {
    int code = LAB_OK;
    for (int i = 0; i < report->lab->kernel_count; ++i) {
        const struct kernel *kernel = &report->lab->kernels[i];
        if (!options_choose(c->options, kernel)) continue;
        struct result *result = &report->results[report->count++];
        result_begin(result, kernel, &c->on_device);
        if (!kernel_prepare(c, kernel, report->lab, result)) {
            printf("%s did not run: %s\n", kernel->name, result->refused);
            continue;
        }
        int status = run_one(c, kernel, report, result, why);
        buffer_free(&c->buffer[BUFFER_WORKSPACE]);
        if (status != 0) return -1;
        if (result->verdict == VERDICT_RIGHT) {
            printf("%s: its results are in %s\n", kernel->name, c->options->outputs);
            continue;
        }
        printf("%s is not right: %s\n", kernel->name, result->detail);
        code = LAB_WRONG;
    }
    if (report_is_refusal(report))
        for (int i = 0; i < report->count; ++i)
            if (report->results[i].refused[0]) return fail(why, "%.600s.", report->results[i].refused);
    return code;
}

static void write_json(FILE *out, const struct report *report) {
    fputs("{\n\"lab\": ", out);
    json_string(out, report->lab->name);
    fputs(",\n\"shape\": ", out);
    report_write_shape(out, report);
    fputs(",\n\"kernels\": [\n", out);
    for (int i = 0; i < report->count; ++i) {
        const struct result *r = &report->results[i];
        fputs("{\"kernel\": ", out);
        json_string(out, r->kernel);
        json_number(out, "ms", r->timing.repetitions ? r->timing.median_ms : NAN);
        fputs(i + 1 < report->count ? "},\n" : "}\n", out);
    }
    fputs("]", out);
    if (report->options->profile) {
        fputs(",\n", out);
        profile_write_json(out, report->profiles, report->profile_count);
    }
    fputs("\n}\n", out);
}

static int run_case(struct report *report, struct message *why) {
    const struct options *o = report->options;
    struct device_case c;
    if (mkdir(o->outputs, 0777) != 0 && errno != EEXIST)
        return fail(why, "The folder %s of --outputs cannot be made: %s.", o->outputs, strerror(errno));
    if (case_make(&c, o, report->device, why) != 0) return -1;
    report->shape = c.problem.host;
    int status = 0;
    if (o->load) status = preflight_kernels(report->lab, o, &c.problem.host, c.left, why);
    if (status == 0) status = run_kernels(&c, report, why);
    case_free(&c);
    return status;
}

int outputs_run(const struct lab *lab, const struct options *o, const struct device *device,
                struct message *why) {
    FILE *json = NULL;
    if (o->json && !(json = fopen(o->json, "w")))
        return fail(why, "%s of --json cannot be written: %s.", o->json, strerror(errno));
    struct report report = {.lab = lab, .options = o, .device = device};
    report.results = calloc((size_t)lab->kernel_count, sizeof *report.results);
    report.profiles = calloc((size_t)lab->kernel_count, sizeof *report.profiles);
    int code =
        report.results && report.profiles ? run_case(&report, why) : fail(why, "There is no memory left.");
    if (json) {
        if (code >= 0) write_json(json, &report);
        int good = !ferror(json);
        if (fclose(json) != 0 || !good)
            code = fail(why, "%s of --json could not be written to its end: %s.", o->json, strerror(errno));
    }
    for (int i = 0; i < report.profile_count; ++i) profile_free(&report.profiles[i]);
    free(report.profiles);
    free(report.results);
    return code;
}
