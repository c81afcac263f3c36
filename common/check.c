#include "check.h"

#include <math.h>
#include <string.h>

static struct finding *finding_of(struct result *result, enum output output) {
    return output == OUTPUT_O     ? &result->o
           : output == OUTPUT_LSE ? &result->lse
                                  : &result->gradient[output - OUTPUT_DQ];
}

// ---------------------------------------------------------------- around the results

static int blame(struct result *result, enum verdict verdict) {
    result->verdict = verdict;
    if (verdict == VERDICT_GUARD) result_clear(result);  // numbers beside memory that was overwritten
    return 0;
}

int check_guards(struct device_case *c, struct result *result) {
    struct message why = {""};
    for (int i = 0; i < BUFFERS; ++i) {
        if (!c->buffer[i].base || buffer_guards_intact(&c->buffer[i], &why)) continue;
        snprintf(result->detail, sizeof result->detail, "it %.200s", why.text);
        for (int j = 0; j < BUFFERS; ++j)  // the next kernel is not to blame
            if (c->buffer[j].base) buffer_set_guards(&c->buffer[j]);
        return blame(result, VERDICT_GUARD);
    }
    enum tensor_index which = problem_gap_written(&c->problem);
    if (which == TENSORS) return 1;
    snprintf(result->detail, sizeof result->detail, "it wrote between the rows of %s, which are --pad apart",
             tensor_name(which));
    return blame(result, VERDICT_GUARD);
}

// What buffer i holds is an input of a launch; O and LSE are of a backward pass.
static int is_input(int i, int backward) {
    if (i == TENSOR_O || i == BUFFER_LSE) return backward;
    return i <= TENSOR_DO || i == BUFFER_CU_SEQLENS_Q || i == BUFFER_CU_SEQLENS_K;
}

static int inputs_intact(struct device_case *c, int backward, struct result *result) {
    for (int i = 0; i < BUFFERS; ++i) {
        const struct buffer *buffer = &c->buffer[i];
        if (!is_input(i, backward) || buffer->bytes == 0) continue;
        void *now = malloc(buffer->bytes);
        if (!now) {
            fprintf(stderr, "There is no memory left to look at the inputs again; choose a smaller shape.\n");
            exit(LAB_USAGE);
        }
        buffer_download(buffer, now);
        int same = memcmp(now, case_host(c, i), buffer->bytes) == 0;
        free(now);
        if (same) continue;
        case_upload(c, i);  // for the kernels after this one
        snprintf(result->detail, sizeof result->detail, "it changed %s, which is an input", buffer->name);
        return blame(result, VERDICT_INPUT);
    }
    return 1;
}

// ---------------------------------------------------------------- the results

// "dK[batch 0, head 1, row 5, column 3]"; of packed sequences, the row of which sequence.
static void where_text(const struct attention *a, enum output output, const struct finding *f,
                       char text[160]) {
    static const char *const names[] = {"O", "LSE", "dQ", "dK", "dV"};
    char column[40] = "";
    if (output != OUTPUT_LSE) snprintf(column, sizeof column, ", column %lld", (long long)f->column);
    if (a->sequences > 0) {
        int of_keys = output == OUTPUT_DK || output == OUTPUT_DV;
        const int *cu_seqlens = of_keys ? a->cu_seqlens_k : a->cu_seqlens_q;
        int n = sequence_of(cu_seqlens, a->sequences, f->row);
        snprintf(text, 160, "%s[sequence %d, head %lld, row %lld of %d%s]", names[output], n,
                 (long long)f->head, (long long)f->row - cu_seqlens[n], cu_seqlens[n + 1] - cu_seqlens[n],
                 column);
    } else {
        snprintf(text, 160, "%s[batch %lld, head %lld, row %lld%s]", names[output], (long long)f->batch,
                 (long long)f->head, (long long)f->row, column);
    }
}

static void explain(const struct attention *a, enum output output, const struct finding *f,
                    struct result *result) {
    char where[160];
    size_t bytes = sizeof result->detail;
    result->verdict = f->verdict;
    where_text(a, output, f, where);
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
        snprintf(result->detail, bytes, "%.*s: %s", (int)strcspn(where, "["), where,
                 verdict_text(f->verdict));
    }
}

int check_results(const struct problem *problem, enum output first, enum output last, enum quantised as,
                  struct result *result) {
    int finite = 0;
    for (int i = first; i <= (int)last; ++i) {
        struct comparison comparison = problem_comparison(problem, i, as);
        struct finding *f = finding_of(result, i);
        if (comparison.rows->total > 0) *f = compare(&comparison);
        finite |= f->finite > 0;
    }
    for (int i = first; i <= (int)last; ++i) {
        const struct finding *f = finding_of(result, i);
        if (f->verdict == VERDICT_RIGHT) continue;
        // One NaN reaches every element of some gradient easily, V's all of dQ and dK. That they are NaN was
        // looked at; something else has to be finite.
        if (f->verdict == VERDICT_NOT_FINITE && first == OUTPUT_DQ && finite) continue;
        explain(&problem->host, i, f, result);
        return 0;
    }
    return 1;
}

int check_surroundings(struct device_case *c, const struct kernel *kernel, struct result *result) {
    return check_guards(c, result) && inputs_intact(c, kernel->forward != NULL, result);
}

int check_forward(struct device_case *c, struct result *result) {
    char detail[sizeof result->detail];
    if (check_guards(c, result) && check_results(&c->problem, OUTPUT_O, OUTPUT_LSE, QUANTISED_NOT, result) &&
        inputs_intact(c, 0, result))
        return 1;
    memcpy(detail, result->detail, sizeof detail);
    snprintf(result->detail, sizeof result->detail, "its forward pass: %.500s", detail);
    return 0;
}

void check_outputs(struct device_case *c, const struct kernel *kernel, struct result *result) {
    int backward = kernel->forward != NULL;
    if (check_guards(c, result) &&
        check_results(&c->problem, backward ? OUTPUT_DQ : OUTPUT_O, backward ? OUTPUT_DV : OUTPUT_LSE,
                      kernel->support.quantised, result))
        inputs_intact(c, backward, result);
}

// ---------------------------------------------------------------- once more

static const int results[] = {TENSOR_O, BUFFER_LSE, TENSOR_DQ, TENSOR_DK, TENSOR_DV};
enum { RESULTS = sizeof results / sizeof *results, FORWARD_RESULTS = 2 };

void check_again(struct device_case *c, const struct kernel *kernel, const char *how, struct result *result) {
    int count = kernel->forward ? RESULTS : FORWARD_RESULTS, differs = RESULTS;
    size_t bytes = 0, at = 0;
    for (int i = 0; i < count; ++i) bytes += c->buffer[results[i]].bytes;
    char *before = malloc(bytes + 1);
    if (!before) return;  // a second run is a luxury
    for (int i = 0; i < count; at += c->buffer[results[i++]].bytes)
        memcpy(before + at, case_host(c, results[i]), c->buffer[results[i]].bytes);
    case_begin(c, kernel);
    case_launch(c, kernel);
    at = 0;
    for (int i = 0; i < count && differs == RESULTS; at += c->buffer[results[i++]].bytes) {
        int exempt = kernel->support.unordered_dq && results[i] == TENSOR_DQ;
        if (!exempt && memcmp(before + at, case_host(c, results[i]), c->buffer[results[i]].bytes) != 0)
            differs = i;
    }
    free(before);
    if (differs < RESULTS) {
        result->verdict = VERDICT_UNSTEADY;
        snprintf(result->detail, sizeof result->detail,
                 "%s differs from the first run %s: a race, or memory read before it was written",
                 c->buffer[results[differs]].name, how);
    } else if (kernel->support.unordered_dq &&
               !check_results(&c->problem, OUTPUT_DQ, OUTPUT_DV, QUANTISED_NOT, result)) {
        char detail[sizeof result->detail];
        memcpy(detail, result->detail, sizeof detail);
        snprintf(result->detail, sizeof result->detail, "%.480s, %s", detail, how);
    }
}
