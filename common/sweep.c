#include "sweep.h"

#include <math.h>

#include "kernel_run.h"

void sweep_settle(struct options *o) {
    o->batch = 1;
    if (ON_CPU && !(o->given & GIVEN_HEADS))
        o->heads = o->kv_heads = 1;  // the emulator's time grows with N^2 as well
    o->seqlen_q = o->seqlen_k = 0;
}

// One length of the sweep: a result for each chosen kernel that takes this type and head_dim.
static int run_length(const struct lab *lab, const struct options *o, struct report *report,
                      struct message *why) {
    struct attention shape = problem_shape(o);
    struct device_case c;
    double left = 0;
    int fits = preflight_case(&shape, o->backward, &left, why) == 0, made = 0, status = 0;
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
            if (case_make(&c, o, report->device, why) != 0) return -1;
            made = 1;
            status = problem_reference(o, &c.problem, why);
        }
        if (status == 0) status = run_kernel(&c, kernel, report, result, why);
    }
    if (made) case_free(&c);
    return status;
}

int sweep_run(const struct lab *lab, const struct options *given, struct report *report,
              struct message *why) {
    struct options o = *given;
    int first = ON_CPU ? 64 : 1024, last = ON_CPU ? 1024 : 32768;
    report->shape = problem_shape(&o);
    report->peak_tflops = device_peak_tflops(report->device, o.dtype);
    report->peak_e4m3_tflops = device_peak_tflops(report->device, DTYPE_E4M3);
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
