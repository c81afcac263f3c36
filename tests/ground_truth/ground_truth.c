// ground_truth.c - writes the inputs and the right answer of one case as .npy files, for labs (and people) to
// --load.
//
//     ground_truth [the options of a lab that say what the case is] --save FOLDER
//
// FOLDER gets q k v (float16; float32 for bf16), o and lse (float64, the reference in double), and but for
// 8-bit types, in which no one computes gradients, do, dq dk and dv: see common/problem.h. It is made,
// together with the folders above it. No kernel runs here, so no device is needed. Exit 0, or 2 with one
// sentence.
#define _DEFAULT_SOURCE
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "common/problem.h"

static const struct lab program = {
    .name = "ground_truth",
    .idea = "writes the inputs and the reference of one case as .npy files; --save says where",
    .lecture = "the reference of all labs",
    .on_cpu = {.batch = 1, .heads = 2, .kv_heads = 2, .seqlen = 64, .head_dim = 64},
};

static int refuse(const char *text) {
    fprintf(stderr, "ground_truth: %s\n", text);
    return LAB_USAGE;
}

// Makes the folders above `path`. One that exists is fine; whatever is wrong shows when `path` itself is
// written.
static void make_parents(const char *path) {
    char folder[4096];
    if (strlen(path) >= sizeof folder) return;
    strcpy(folder, path);
    for (char *at = folder + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) return;
    }
}

int main(int argc, char **argv) {
    struct options options;
    struct message why = {""};
    if (options_parse(argc, argv, &program, &program.on_cpu, &options, &why) != 0) return refuse(why.text);
    if (options.help || options.list) {
        options_print_help(stdout, &program, &program.on_cpu);
        return LAB_OK;
    }
    if (!options.save) return refuse("--save is missing: the folder to write to.");
    if (options.bench || options.profile || options.sanitize || options.sweep || options.train ||
        options.json)
        return refuse(
            "No kernel runs here: leave out --bench, --profile, --sanitize, --sweep, --train and --json.");

    struct problem problem;
    options.backward = dtype_bytes(options.dtype) > 1;
    if (problem_make(&options, &problem, &why) != 0) return refuse(why.text);
    int status = problem_reference(&options, &problem, &why);
    if (status == 0 && problem.rows.count != problem.rows.total) {
        problem_free(&problem);
        return refuse("This shape is too big for a reference of all its rows; a lab makes such inputs itself "
                      "and checks a "
                      "sample of rows.");
    }
    if (status == 0 && options.backward) status = problem_gradients(&options, &problem, INFINITY, &why);
    if (status == 0) {
        make_parents(options.save);
        status = problem_save(&problem, options.save, &why);
    }
    if (status == 0) status = problem_save_gradients(&problem, options.save, &why);
    problem_free(&problem);
    return status == 0 ? LAB_OK : refuse(why.text);
}
