// lab_main.c - the lab_main of programs that are graded. It runs kernels and writes their results (--outputs)
// and can do nothing else: a submission is linked with this in place of common/lab.c, and of all that
// common/ has it finds lab_main, lab_cuda_check and the tensor maps alone. So the reference, which a launch
// function might call, is not there to be called.
#include <errno.h>
#include <string.h>

#include "common/outputs.h"
#include "common/preflight.h"

static int refuse(const struct message *why) {
    fflush(stdout);
    fprintf(stderr, "%s\n", why->text);
    return LAB_USAGE;
}

static int run(int argc, char **argv, const struct lab *lab) {
    static struct options options;
    struct device device;
    struct message why = {""};
    const struct shape *shape = ON_CPU ? &lab->on_cpu : &lab->on_gpu;
    if (options_parse(argc, argv, lab, shape, &options, &why) != 0) return refuse(&why);
    if (options.help) return options_print_help(stdout, lab, shape), LAB_OK;
    if (options.list) return options_print_list(stdout, lab), LAB_OK;
    if (!options.outputs) {
        fail(&why, "This program was built for grading and only runs kernels: give --outputs DIR.");
        return refuse(&why);
    }
    if (device_open(lab, &device, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        return LAB_SKIPPED;
    }
    if (!options.load && preflight(lab, &options, &why) != 0) return refuse(&why);
#ifdef SIMT_CPU
    simt_set_schedule(options.schedule);
#endif
    int code = outputs_run(lab, &options, &device, &why);
    return code < 0 ? refuse(&why) : code;
}

int lab_main(int argc, char **argv, const struct lab *lab) {
    int status = run(argc, argv, lab);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "The results could not be written to standard output (%s).\n", strerror(errno));
    return LAB_USAGE;
}
