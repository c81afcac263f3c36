// lab.c - lab_main: from a command line to a checked, reported, timed run of a lab's kernels.
#include "lab.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "generate.h"
#include "kernel_run.h"
#include "outputs.h"
#include "sweep.h"
#include "tools.h"
#include "trace_file.h"
#include "train.h"

static int usage_error(const struct message *why) {
    fflush(stdout);
    fprintf(stderr, "%s\n", why->text);
    return LAB_USAGE;
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
    struct device_case c;
    if (case_make(&c, o, report->device, why) != 0) return -1;
    if (o->load && preflight_kernels(lab, o, &c.problem.host, c.left, why) != 0) {
        case_free(&c);
        return -1;
    }
    report->shape = c.problem.host;
    report->peak_tflops = device_peak_tflops(report->device, report->shape.dtype);
    report->peak_e4m3_tflops = device_peak_tflops(report->device, DTYPE_E4M3);
    report_print_configuration(stdout, report);
    int status = problem_reference(o, &c.problem, why);
    if (status == 0 && o->save) status = problem_save(&c.problem, o->save, why);
    if (status == 0 && (c.problem.inputs_rounded || c.problem.d_o_rounded))
        printf("The files hold numbers that %s cannot: they were rounded to it%s.\n", dtype_name(o->dtype),
               !c.problem.answer_ignored ? ""
               : o->backward ? ", and the folder's answers to the inputs that were rounded are ignored"
                             : ", and the folder's o and lse, the answer to other inputs, are ignored");
    if (status == 0 && c.problem.o_loaded) printf("O is checked against the o.npy of the folder.\n");
    for (int i = 0; i < lab->kernel_count && status == 0; ++i) {
        if (!options_choose(o, &lab->kernels[i])) continue;
        struct result *result = &report->results[report->count++];
        status = run_kernel(&c, &lab->kernels[i], report, result, why);
        if (status == 0 && o->save && !result->refused[0])
            status = problem_save_result(&c.problem, &lab->kernels[i], o->save, why);
    }
    for (int i = 0; i < GRADIENTS; ++i)
        if (status == 0 && c.problem.gradient_loaded[i])
            printf("%s is checked against the %s.npy of the folder.\n", tensor_name(gradient_tensor(i)),
                   tensor_file(gradient_tensor(i)));
    if (status == 0 && o->save) status = problem_save_gradients(&c.problem, o->save, why);
    case_free(&c);
    if (status == 0) report_print_table(stdout, report);
    for (int i = 0; i < lab->kernel_count && status == 0 && report->trace; ++i) {
        struct message reason = {""};
        if (options_choose(o, &lab->kernels[i]) &&
            !trace_possible(&lab->kernels[i], report->shape.head_dim, &reason))
            printf("%s is not traced: %s.\n", lab->kernels[i].name, reason.text);
    }
    return status;
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
        profile_begin(profile, kernel->name, kernel_flops(kernel, &report->shape));
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
    struct trace_file trace;
    if (o->trace && trace_file_open(&trace, o->trace, lab->kernel_count, &why) != 0) {
        if (json) fclose(json);
        return usage_error(&why);
    }
    struct report report = {.lab = lab, .options = o, .device = device, .trace = o->trace ? &trace : NULL};
    report.results = calloc((size_t)lab->kernel_count * MAX_SWEEP, sizeof *report.results);
    report.profiles = calloc((size_t)lab->kernel_count, sizeof *report.profiles);
    int code = LAB_OK;
    if (!report.results || !report.profiles)
        fail(&why, "There is no memory left."), code = usage_error(&why);
    else if (!ON_CPU && o->profile)
        code = run_under_profiler(argc, argv, lab, o, &report, &why);
    else if ((o->sweep ? sweep_run : run_case)(lab, o, &report, &why) != 0)
        code = usage_error(&why);
    else
        code = exit_code(&report);
    if (o->trace && trace_file_close(&trace, &report, &why) != 0) code = usage_error(&why);
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
    const struct shape layer = train_shape(lab);
    if (options.train && options_parse(argc, argv, lab, &layer, &options, &why) != 0)
        return usage_error(&why);
    const struct shape prompt = generate_shape(lab);
    if (options.generate && options_parse(argc, argv, lab, &prompt, &options, &why) != 0)
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
    if (options.sweep) sweep_settle(&options);
    const struct attention shape_of_sweep = problem_shape(&options);
    int can = options.load    ? 0  // the files say what the shape is: run_case
              : options.sweep ? preflight_kernels(lab, &options, &shape_of_sweep, INFINITY, &why)
                              : preflight(lab, &options, &why);
    if (can != 0) return usage_error(&why);
    if (!ON_CPU && options.sanitize) return tools_sanitize(argc, argv, &options);
#ifdef SIMT_CPU
    simt_set_schedule(options.schedule);
#endif
    if (options.generate) {
        int code = generate_run(lab, &options, &device, &why);
        return code < 0 ? usage_error(&why) : code;
    }
    if (options.outputs) {
        int code = outputs_run(lab, &options, &device, &why);
        return code < 0 ? usage_error(&why) : code;
    }
    if (options.train) {
        int code = train_run(lab, &options, &device, &why);
        return code < 0 ? usage_error(&why) : code;
    }
    return run_all(argc, argv, lab, &options, &device);
}

int lab_main(int argc, char **argv, const struct lab *lab) {
    int status = run_lab(argc, argv, lab);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "The results could not be written to standard output (%s).\n", strerror(errno));
    return LAB_USAGE;
}
