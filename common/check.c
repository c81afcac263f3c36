#include "check.h"

#include <math.h>
#include <string.h>

static int guards_intact(struct device_case *c, struct result *result) {
    struct message why = {""};
    for (int i = 0; i < BUFFERS; ++i)
        if (case_buffer(c, i)->base && !buffer_guards_intact(case_buffer(c, i), &why)) {
            result->verdict = VERDICT_GUARD;
            snprintf(result->detail, sizeof result->detail, "it %.200s", why.text);
            for (int j = 0; j < BUFFERS; ++j)  // the next kernel is not to blame
                if (case_buffer(c, j)->base) buffer_set_guards(case_buffer(c, j));
            result->o.err = result->o.bound = result->lse.err = result->lse.bound = NAN;
            return 0;
        }
    if (problem_gaps_intact(&c->problem)) return 1;
    result->verdict = VERDICT_GUARD;
    snprintf(result->detail, sizeof result->detail, "it wrote between the rows of O, which are --pad apart");
    result->o.err = result->o.bound = result->lse.err = result->lse.bound = NAN;
    return 0;
}

static int inputs_intact(struct device_case *c, struct result *result) {
    for (int i = 0; i < INPUT_BUFFERS; ++i) {
        const struct buffer *buffer = case_buffer(c, i);
        void *now = malloc(buffer->bytes + 1);
        if (!now) {
            fprintf(stderr, "There is no memory left to look at the inputs again; choose a smaller shape.\n");
            exit(LAB_USAGE);
        }
        buffer_download(buffer, now);
        int same = buffer->bytes == 0 || memcmp(now, case_input(c, i), buffer->bytes) == 0;
        free(now);
        if (same) continue;
        buffer_upload(buffer, case_input(c, i));  // for the kernels after this one
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

void check_outputs(struct device_case *c, struct result *result) {
    const struct problem *p = &c->problem;
    const struct attention *a = &p->host;
    const struct reference *r = &p->reference;
    if (!guards_intact(c, result)) return;
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
        inputs_intact(c, result);
}

void check_again(struct device_case *c, const struct kernel *kernel, const char *how, struct result *result) {
    struct attention *host = &c->problem.host;
    size_t o_bytes = c->o.bytes, all_bytes = o_bytes + c->lse.bytes;
    char *before = malloc(all_bytes + 1);
    if (!before) return;  // a second run is a luxury
    memcpy(before, host->o.data, o_bytes);
    memcpy(before + o_bytes, host->lse, c->lse.bytes);
    case_launch(c, kernel);
    int same_o = memcmp(before, host->o.data, o_bytes) == 0;
    int same_lse = memcmp(before + o_bytes, host->lse, c->lse.bytes) == 0;
    free(before);
    if (same_o && same_lse) return;
    result->verdict = VERDICT_UNSTEADY;
    snprintf(result->detail, sizeof result->detail,
             "%s differs from the first run %s: a race, or memory read before it was written",
             same_o ? "LSE" : "O", how);
}
