// check.c - the program that decides whether a submission's results are right. It makes the inputs of a case
// and later, in another process than the submission's, the reference to them, so that no file ever holds an
// answer.
//
//     grade_check inputs FOLDER [the options of a lab that say what the case is]
//                                             writes q.npy, k.npy and v.npy, with --backward also do.npy
//     grade_check JUDGED KERNEL FOLDER [the same options]
//                                             looks at o_KERNEL.npy, lse_KERNEL.npy (and dq_KERNEL.npy ...)
//
// JUDGED is forward, backward, e4m3 or rotated: what the kernel computes, and how it quantises if it does
// (common/quantise.h). The instructor's table says so and not the submission, as the bound depends on it.
// Prints what it found, each line a word, a colon and a text: verdict, detail, means (what that usually
// means; none, one or two). Exit 0 if all is right, 1 if not, 2 with one sentence if there is nothing to
// judge.
#include <math.h>
#include <string.h>

#include "common/check.h"
#include "symptoms.h"

static const struct lab program = {
    .name = "grade_check",
    .idea = "decides whether what a kernel wrote is right",
    .lecture = "the check of all labs",
    .on_cpu = {.batch = 1, .heads = 2, .kv_heads = 2, .seqlen = 64, .head_dim = 64},
};

static int refuse(const char *text) {
    fprintf(stderr, "grade_check: %s\n", text);
    return LAB_USAGE;
}

// The case that the words argv[first] ... describe.
static int make_case(int argc, char **argv, int first, int backward, struct options *o, struct problem *p,
                     struct message *why) {
    argv[first - 1] = argv[0];
    if (options_parse(argc - first + 1, argv + first - 1, &program, &program.on_cpu, o, why) != 0) return -1;
    o->backward = backward;
    if (o->help || o->list || o->save || o->outputs || o->bench || o->profile || o->sanitize || o->sweep)
        return fail(why, "Give the options that say what the case is, and no others.");
    return problem_make(o, p, why);
}

static int write_inputs(int argc, char **argv, struct options *o, struct message *why) {
    int backward = argc > 3 && strcmp(argv[3], "--backward") == 0;
    struct problem p;
    const char *folder = argv[2];
    if (make_case(argc, argv, 3 + backward, backward, o, &p, why) != 0) return -1;
    int status = problem_save(&p, folder, why);
    problem_free(&p);
    return status;
}

// ---------------------------------------------------------------- judging

static const struct judged {
    const char *name;
    int backward;
    enum quantised quantised;
} all_judged[] = {
    {"forward", 0, QUANTISED_NOT},
    {"backward", 1, QUANTISED_NOT},
    {"e4m3", 0, QUANTISED_E4M3},
    {"rotated", 0, QUANTISED_E4M3_ROTATED},
};
enum { JUDGED = sizeof all_judged / sizeof *all_judged };

static const struct judged *find_judged(const char *name) {
    for (int i = 0; i < JUDGED; ++i)
        if (strcmp(all_judged[i].name, name) == 0) return &all_judged[i];
    return NULL;
}

// Results first ... last. Prints what is wrong, and returns whether nothing is.
static int judge(const struct problem *p, enum output first, enum output last, enum quantised as) {
    struct result result = {.kernel = ""};
    if (check_results(p, first, last, as, &result)) return 1;
    printf("verdict: %s\ndetail: %s\n", verdict_text(result.verdict), result.detail);
    symptoms_print(stdout, p, first, last, as);
    return 0;
}

// Of gradients, O and LSE of the forward pass come first: nothing can be said of gradients after a wrong one.
// All rows of a case as small as those of the tests; of one that is timed on a GPU a sample, since all would
// take minutes.
static int judge_all(const struct options *o, struct problem *p, const struct judged *judged,
                     struct message *why) {
    if (problem_reference(o, p, why) != 0 || problem_quantised(p, judged->quantised, why) != 0) return -1;
    if (!judge(p, OUTPUT_O, OUTPUT_LSE, judged->quantised)) return LAB_WRONG;
    if (judged->backward) {
        if (problem_gradients(o, p, REFERENCE_BUDGET, why) != 0) return -1;
        if (!judge(p, OUTPUT_DQ, OUTPUT_DV, QUANTISED_NOT)) return LAB_WRONG;
    }
    enum tensor_index gap = problem_gap_written(p);
    if (gap != TENSORS) return fail(why, "the gaps of %s are not as they were made.", tensor_name(gap));
    printf("verdict: right\n");
    return LAB_OK;
}

static int judge_files(int argc, char **argv, struct options *o, struct message *why) {
    const struct judged *judged = find_judged(argv[1]);
    const char *kernel = argv[2], *folder = argv[3];
    struct problem p;
    if (!judged) return fail(why, "\"%.40s\" is not inputs, forward, backward, e4m3 or rotated.", argv[1]);
    if (make_case(argc, argv, 4, judged->backward, o, &p, why) != 0) return -1;
    struct message missing = {""};
    int code = LAB_WRONG;
    if (problem_load_result(&p, kernel, judged->backward, folder, &missing) != 0)
        printf("verdict: no results\ndetail: %s\n", missing.text);
    else
        code = judge_all(o, &p, judged, why);
    problem_free(&p);
    return code;
}

int main(int argc, char **argv) {
    static struct options options;
    struct message why = {""};
    int inputs = argc > 1 && strcmp(argv[1], "inputs") == 0;
    if (argc < (inputs ? 3 : 4))
        return refuse("usage: grade_check inputs FOLDER [options], or grade_check JUDGED KERNEL FOLDER "
                      "[options].");
    int code = (inputs ? write_inputs : judge_files)(argc, argv, &options, &why);
    return code < 0 ? refuse(why.text) : code;
}
