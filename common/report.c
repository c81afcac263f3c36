#include "report.h"

#include <math.h>
#include <string.h>

#include "json.h"
#include "tensors.h"

// ---------------------------------------------------------------- tables

enum { CELL_BYTES = 200, MAX_COLUMNS = 20 };

struct table {
    int columns, rows, right_aligned[MAX_COLUMNS];
    char (*cell)[CELL_BYTES];  // [rows][columns], row 0 is the head
};

// Columns that a UTF-8 text takes: its bytes without the continuation bytes.
static int width_of(const char *text) {
    int width = 0;
    for (; *text; ++text) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static char *cell_at(const struct table *t, int row, int column) {
    return t->cell[row * t->columns + column];
}

static int table_make(struct table *t, int rows, const char *const *head) {
    memset(t, 0, sizeof *t);
    while (head[t->columns]) ++t->columns;
    t->rows = rows + 1;
    t->cell = calloc((size_t)t->rows * (size_t)t->columns, CELL_BYTES);
    if (!t->cell) return -1;
    for (int c = 0; c < t->columns; ++c) {
        // A head that begins with '>' is of numbers, set to the right.
        t->right_aligned[c] = head[c][0] == '>';
        snprintf(cell_at(t, 0, c), CELL_BYTES, "%s", head[c] + t->right_aligned[c]);
    }
    return 0;
}

static void table_print(FILE *out, const struct table *t) {
    int width[MAX_COLUMNS] = {0};
    for (int r = 0; r < t->rows; ++r)
        for (int c = 0; c < t->columns; ++c) {
            int w = width_of(cell_at(t, r, c));
            if (w > width[c]) width[c] = w;
        }
    for (int r = 0; r < t->rows; ++r) {
        for (int c = 0; c < t->columns; ++c) {
            const char *text = cell_at(t, r, c);
            int pad = width[c] - width_of(text), last = c + 1 == t->columns;
            if (t->right_aligned[c])
                fprintf(out, "%*s%s", pad, "", text);
            else
                fprintf(out, "%s%*s", text, last ? 0 : pad, "");
            fputs(last ? "\n" : "  ", out);
        }
    }
}

// ---------------------------------------------------------------- what was understood

static void layout_text(const struct options *o, char text[32]) {
    const enum layout *l = o->layout;
    if (l[0] == l[1] && l[1] == l[2] && l[2] == l[3])
        snprintf(text, 32, "%s", layout_name(l[0]));
    else
        snprintf(text, 32, "%s,%s,%s,%s", layout_name(l[0]), layout_name(l[1]), layout_name(l[2]),
                 layout_name(l[3]));
}

static int smallest_step(const int *sums, int count) {
    int least = INT32_MAX;
    for (int i = 0; i < count; ++i) least = sums[i + 1] - sums[i] < least ? sums[i + 1] - sums[i] : least;
    return least;
}
static int largest_step(const int *sums, int count) {
    int most = 0;
    for (int i = 0; i < count; ++i) most = sums[i + 1] - sums[i] > most ? sums[i + 1] - sums[i] : most;
    return most;
}

// "317 queries in 3 sequences of 0 to 300"
static void print_packed(FILE *out, const char *what, const int *cu_seqlens, int sequences) {
    fprintf(out, "%d %s in %d sequence%s of %d to %d", cu_seqlens[sequences], what, sequences,
            sequences == 1 ? "" : "s", smallest_step(cu_seqlens, sequences),
            largest_step(cu_seqlens, sequences));
}

static void mask_text(const struct attention *a, char text[64]) {
    int length = snprintf(text, 64, "%s", a->causal ? "causal" : "full");
    if (a->window)
        snprintf(text + length, 64 - (size_t)length, ", window %d,%d", a->window_left, a->window_right);
}

static int some_kernel_quantises(const struct lab *lab) {
    for (int i = 0; i < lab->kernel_count; ++i)
        if (lab->kernels[i].support.quantised != QUANTISED_NOT) return 1;
    return 0;
}

void report_print_configuration(FILE *out, const struct report *r) {
    const struct attention *a = &r->shape;
    const struct options *o = r->options;
    char layout[64], inputs[160], mask[64];
    layout_text(o, layout);
    if (a->pad) snprintf(layout + strlen(layout), 32, ", pad %d", a->pad);
    mask_text(a, mask);
    if (o->load)
        snprintf(inputs, sizeof inputs, "from %.100s", o->load);
    else
        snprintf(inputs, sizeof inputs, "%s seed %llu", inputs_name(o->inputs), (unsigned long long)o->seed);
    fprintf(out, "%s: %s\n", r->lab->name, r->lab->idea);
    fprintf(out, "batch %d, heads %d, kv-heads %d, ", a->batch, a->heads, a->kv_heads);
    if (o->sweep)
        fprintf(out, "seqlen swept");
    else if (o->sequences > 0) {
        print_packed(out, "queries", o->cu_seqlens_q, o->sequences);
        fputs(", ", out);
        print_packed(out, "keys", o->cu_seqlens_k, o->sequences);
    } else
        fprintf(out, "seqlen-q %d, seqlen-k %d", a->seqlen_q, a->seqlen_k);
    fprintf(out, ", dim %d, %s, %s, scale %.6g, layout %s, inputs %s; %s backend: %s", a->head_dim,
            dtype_name(a->dtype), mask, a->scale, layout, inputs, ON_CPU ? "cpu" : "gpu", r->device->name);
    if (!ON_CPU)
        fprintf(out, " (compute capability %d.%d, %d SMs)", r->device->major, r->device->minor,
                r->device->multiprocessors);
    fprintf(out, "\n");
    if (o->bench || o->sweep) {
        if (ON_CPU)
            fprintf(out, "Times are the emulator's: they say nothing about a GPU.\n");
        else
            fprintf(out,
                    "clocks up to %d MHz (SM) and %d MHz (memory), L2 %.1f MB flushed before each "
                    "repetition; peak %s",
                    r->device->clock_mhz, r->device->memory_clock_mhz, (double)r->device->l2_bytes / 1e6,
                    r->peak_tflops > 0 ? "" : "not known\n");
        if (!ON_CPU && r->peak_tflops > 0) fprintf(out, "%.1f TFLOP/s", r->peak_tflops);
        if (!ON_CPU && r->peak_e4m3_tflops > 0 && some_kernel_quantises(r->lab))
            fprintf(out, ", of e4m3 %.1f", r->peak_e4m3_tflops);
        if (!ON_CPU && r->peak_tflops > 0) fprintf(out, "\n");
    }
    fflush(out);
}

// ---------------------------------------------------------------- results

static void number(char *cell, const char *format, double value) {
    if (isfinite(value))
        snprintf(cell, CELL_BYTES, format, value);
    else
        snprintf(cell, CELL_BYTES, "-");
}

static int ran(const struct result *r) { return r->refused[0] == '\0'; }

static int is_right(const struct result *r) {
    return r->verdict == VERDICT_RIGHT || r->verdict == VERDICT_EMPTY;
}

void result_clear(struct result *r) {
    r->o.err = r->o.bound = r->lse.err = r->lse.bound = NAN;
    r->o.rmse = r->o.plain_rmse = r->lse.rmse = r->lse.plain_rmse = NAN;
    for (int i = 0; i < GRADIENTS; ++i)
        r->gradient[i].err = r->gradient[i].bound = r->gradient[i].rmse = r->gradient[i].plain_rmse = NAN;
}

int report_is_refusal(const struct report *report) {
    int refused = 0;
    for (int i = 0; i < report->count; ++i) refused += !ran(&report->results[i]);
    if (report->options->sweep) return refused == report->count;
    return refused > 0 && (refused == report->count || report->options->kernel_count > 0);
}

static const struct result *first_timed(const struct report *report) {
    for (int i = 0; i < report->count; ++i)
        if (report->results[i].timing.repetitions) return &report->results[i];
    return NULL;
}

static void fill_times(const struct report *report, const struct result *r, const struct table *t, int row,
                       int column) {
    if (!r->timing.repetitions) {
        for (int c = column; c < t->columns - 1; ++c) snprintf(cell_at(t, row, c), CELL_BYTES, "-");
        return;
    }
    const struct result *first = first_timed(report);
    double peak = report_peak(report, r->quantised);
    number(cell_at(t, row, column), "%.4g", r->timing.median_ms);
    snprintf(cell_at(t, row, column + 1), CELL_BYTES, "%.4g..%.4g", r->timing.low_ms, r->timing.high_ms);
    number(cell_at(t, row, column + 2), ON_CPU ? "%.3g" : "%.1f", r->tflops);
    number(cell_at(t, row, column + 3), "%.1f%%", peak > 0 ? 100 * r->tflops / peak : NAN);
    number(cell_at(t, row, column + 4), "%.2f", first->timing.median_ms / r->timing.median_ms);
}

// Two columns: the time of a launch in a graph, in microseconds, and how fast K and V were read.
static void fill_replay(const struct result *r, const struct table *t, int row, int column) {
    int timed = r->replay.repetitions != 0;
    number(cell_at(t, row, column), "%.4g", timed ? 1e3 * r->replay.median_ms : NAN);
    number(cell_at(t, row, column + 1), "%.4g", timed ? r->kv_bytes / (r->replay.median_ms * 1e6) : NAN);
}

// "Blocks, for 132 multiprocessors: unsplit 32, split 128.", of the kernels whose table says how many.
static void print_blocks(FILE *out, const struct report *report) {
    int said = 0;
    for (int i = 0; i < report->count; ++i) {
        const struct result *r = &report->results[i];
        if (!ran(r) || r->blocks == 0) continue;
        if (!said) fprintf(out, "Blocks, for %d multiprocessors:", report->device->multiprocessors);
        fprintf(out, "%s %s %lld", said++ ? "," : "", r->kernel, (long long)r->blocks);
    }
    if (said) fputs(".\n", out);
}

static void print_remarks(FILE *out, const struct report *report) {
    for (int i = 0; i < report->count; ++i) {
        const struct result *r = &report->results[i];
        // A refusal goes to stderr, in lab.c.
        if (!ran(r) && !report_is_refusal(report))
            fprintf(out, "%s did not run: %s\n", r->kernel, r->refused);
        if (ran(r) && !is_right(r)) fprintf(out, "%s is not right: %s\n", r->kernel, r->detail);
    }
}

// The gradient that is nearest to its bound, or beyond; 0 if none was compared.
static int worst_gradient(const struct result *r) {
    int worst = 0;
    for (int i = 1; i < GRADIENTS; ++i) {
        const struct finding *f = &r->gradient[i], *most = &r->gradient[worst];
        if (f->err * most->bound > most->err * f->bound || isnan(most->err)) worst = i;
    }
    return worst;
}

// Where a row shows errors, four columns from 2 on. `gradients`: the first two are of gradients, and LSE,
// which JSON has, gives way to them.
static void fill_errors(const struct result *r, const struct table *t, int row, int gradients) {
    const struct finding *f[] = {&r->o, &r->lse};
    char *cell = cell_at(t, row, 2);
    if (gradients) {
        int worst = worst_gradient(r);
        f[0] = &r->gradient[worst], f[1] = &r->o;
        snprintf(cell, CELL_BYTES, "%s ", tensor_name(TENSOR_DQ + worst));
    }
    for (int i = 0; i < 2; ++i) {
        size_t used = i == 0 ? strlen(cell) : 0;
        double err = ran(r) ? f[i]->err : NAN;
        number(cell_at(t, row, 2 + 2 * i) + (isfinite(err) ? used : 0), "%.2e", err);
        number(cell_at(t, row, 3 + 2 * i), "%.2e", ran(r) ? f[i]->bound : NAN);
    }
}

// Where some kernel quantises, three columns: the root of the mean square error of O, the same of the
// emulation (reference_quantised) and of the plain implementation that does not quantise.
static void fill_rmse(const struct result *r, const struct table *t, int row, int column) {
    int quantised = ran(r) && r->quantised != QUANTISED_NOT;
    number(cell_at(t, row, column), "%.2e", ran(r) ? r->o.rmse : NAN);
    number(cell_at(t, row, column + 1), "%.2e", quantised ? r->o.plain_rmse : NAN);
    number(cell_at(t, row, column + 2), "%.2e",
           !ran(r)     ? NAN
           : quantised ? r->o_unquantised_rmse
                       : r->o.plain_rmse);
}

static long long compared(const struct result *r) {
    int64_t count = r->o.compared + r->lse.compared;
    for (int i = 0; i < GRADIENTS; ++i) count += r->gradient[i].compared;
    return (long long)count;
}

// "sample of 64 of 4096 rows", if not all rows were looked at. Returns whether that is so.
static int print_sample(FILE *out, const char *what, const struct finding *f) {
    if (f->rows == f->rows_total) return 0;
    fprintf(out, "The reference%s covers a fixed sample of %lld of %lld rows, each in full.\n", what,
            (long long)f->rows, (long long)f->rows_total);
    return 1;
}

static void print_samples(FILE *out, const struct report *report) {
    int said = 0, said_gradient = 0;
    for (int i = 0; i < report->count; ++i) {
        const struct result *r = &report->results[i];
        if (!ran(r)) continue;
        if (!said) said = print_sample(out, "", &r->o);
        for (int g = 0; g < GRADIENTS && r->backward && !(said_gradient >> g & 1); ++g) {
            char what[16];
            snprintf(what, sizeof what, " of %s", tensor_name(TENSOR_DQ + g));
            said_gradient |= print_sample(out, what, &r->gradient[g]) << g;
        }
    }
}

void report_print_table(FILE *out, const struct report *report) {
    static const char *const of_forward[] = {">O err", ">bound", ">LSE err", ">bound"};
    static const char *const of_backward[] = {">worst err", ">bound", ">O err", ">bound"};
    static const char *const times[] = {">ms", ">half within", ">TFLOP/s", ">of peak", ">x first"};
    const char *head[MAX_COLUMNS + 1] = {"kernel", "what it adds"};
    int bench = report->options->bench, backward = 0, quantised = 0, replayed = 0, n = 2;
    char plain[CELL_BYTES];
    snprintf(plain, sizeof plain, ">plain %s", dtype_name(report->shape.dtype));
    for (int i = 0; i < report->count; ++i) backward |= report->results[i].backward;
    for (int i = 0; i < report->count; ++i) quantised |= report->results[i].quantised != QUANTISED_NOT;
    for (int i = 0; i < 4; ++i) head[n++] = (backward ? of_backward : of_forward)[i];
    head[n++] = ">compared";
    if (quantised) head[n++] = ">O RMSE", head[n++] = ">emulated", head[n++] = plain;
    for (int i = 0; i < 5 && bench; ++i) head[n++] = times[i];
    for (int i = 0; i < report->count; ++i) replayed |= report->results[i].replay.repetitions;
    if (replayed) head[n++] = ">us by graph", head[n++] = ">GB/s of K, V";
    head[n] = "verdict";
    struct table t;
    if (table_make(&t, report->count, head) != 0) return;
    for (int i = 0; i < report->count; ++i) {
        const struct result *r = &report->results[i];
        int row = i + 1;
        snprintf(cell_at(&t, row, 0), CELL_BYTES, "%s", r->kernel);
        snprintf(cell_at(&t, row, 1), CELL_BYTES, "%s", r->adds);
        fill_errors(r, &t, row, backward);
        if (ran(r))
            snprintf(cell_at(&t, row, 6), CELL_BYTES, "%lld", compared(r));
        else
            snprintf(cell_at(&t, row, 6), CELL_BYTES, "-");
        if (quantised) fill_rmse(r, &t, row, 7);
        if (bench) fill_times(report, r, &t, row, quantised ? 10 : 7);
        if (replayed) fill_replay(r, &t, row, t.columns - 3);
        snprintf(cell_at(&t, row, t.columns - 1), CELL_BYTES, "%s",
                 ran(r) ? verdict_text(r->verdict) : "did not run");
    }
    table_print(out, &t);
    free(t.cell);
    print_samples(out, report);
    print_blocks(out, report);
    print_remarks(out, report);
}

void report_print_sweep(FILE *out, const struct report *report) {
    static const char *const head[] = {">N",  "kernel",   ">workspace", ">memory in all",
                                       ">ms", ">TFLOP/s", "verdict",    NULL};
    struct table t;
    if (table_make(&t, report->count, head) != 0) return;
    for (int i = 0; i < report->count; ++i) {
        const struct result *r = &report->results[i];
        char text[32];
        int row = i + 1, timed = r->timing.repetitions != 0;
        snprintf(cell_at(&t, row, 0), CELL_BYTES, "%d", r->seqlen);
        snprintf(cell_at(&t, row, 1), CELL_BYTES, "%s", r->kernel);
        snprintf(cell_at(&t, row, 2), CELL_BYTES, "%s", bytes_text(r->workspace, text));
        snprintf(cell_at(&t, row, 3), CELL_BYTES, "%s", bytes_text(r->memory, text));
        number(cell_at(&t, row, 4), "%.4g", timed ? r->timing.median_ms : NAN);
        number(cell_at(&t, row, 5), ON_CPU ? "%.3g" : "%.1f", timed ? r->tflops : NAN);
        snprintf(cell_at(&t, row, 6), CELL_BYTES, "%s", ran(r) ? verdict_text(r->verdict) : "does not fit");
    }
    table_print(out, &t);
    free(t.cell);
    for (int i = 0; i < report->count; ++i) {
        const struct result *r = &report->results[i];
        if (ran(r) && !is_right(r))
            fprintf(out, "%s is not right at N = %d: %s\n", r->kernel, r->seqlen, r->detail);
    }
}

// ---------------------------------------------------------------- JSON

static void json_finding(FILE *out, const char *name, const struct finding *f) {
    fprintf(out, ", \"%s\": {\"compared\": %lld, \"rows\": %lld, \"rows_total\": %lld", name,
            (long long)f->compared, (long long)f->rows, (long long)f->rows_total);
    json_number(out, "err", f->err);
    json_number(out, "bound", f->bound);
    json_number(out, "rmse", f->rmse);
    json_number(out, "plain_rmse", f->plain_rmse);
    fputc('}', out);
}

static void json_result(FILE *out, const struct report *report, const struct result *r) {
    fputs("{\"kernel\": ", out);
    json_string(out, r->kernel);
    json_text(out, "adds", r->adds);
    json_text(out, "verdict", !ran(r) ? "did not run" : verdict_text(r->verdict));
    fprintf(out, ", \"ran\": %s, \"right\": %s", ran(r) ? "true" : "false",
            ran(r) && is_right(r) ? "true" : "false");
    json_text(out, "detail", ran(r) ? r->detail : r->refused);
    if (report->options->sweep) fprintf(out, ", \"seqlen\": %d", r->seqlen);
    fprintf(out, ", \"workspace_bytes\": %.0f, \"memory_bytes\": %.0f, \"growth_bytes\": %.0f", r->workspace,
            r->memory, r->growth);
    if (ran(r)) {
        json_finding(out, "o", &r->o);
        json_finding(out, "lse", &r->lse);
        if (r->quantised != QUANTISED_NOT) {
            json_text(out, "quantised", r->quantised == QUANTISED_E4M3 ? "e4m3" : "e4m3, rotated");
            json_number(out, "o_unquantised_rmse", r->o_unquantised_rmse);
        }
        for (int i = 0; i < GRADIENTS && r->backward; ++i)
            json_finding(out, tensor_file(TENSOR_DQ + i), &r->gradient[i]);
    }
    if (r->timing.repetitions) {
        double peak = report_peak(report, r->quantised);
        json_number(out, "ms", r->timing.median_ms);
        json_number(out, "ms_low", r->timing.low_ms);
        json_number(out, "ms_high", r->timing.high_ms);
        fprintf(out, ", \"repetitions\": %d", r->timing.repetitions);
        json_number(out, "tflops", r->tflops);
        json_number(out, "percent_of_peak", peak > 0 ? 100 * r->tflops / peak : NAN);
    }
    if (r->replay.repetitions) {
        json_number(out, "graph_ms", r->replay.median_ms);
        json_number(out, "graph_ms_low", r->replay.low_ms);
        json_number(out, "graph_ms_high", r->replay.high_ms);
        json_number(out, "kv_bytes", r->kv_bytes);
        json_number(out, "kv_gb_per_s", r->kv_bytes / (r->replay.median_ms * 1e6));
    }
    if (r->blocks) fprintf(out, ", \"blocks\": %lld", (long long)r->blocks);
    fputc('}', out);
}

static void json_races(FILE *out, const struct report *report) {
    int items = 0;
    fputs(",\n\"races\": [", out);
    for (int i = 0; i < report->count; ++i)
        for (int n = 0; n < report->results[i].race_count; ++n) {
            const struct race_lines *race = &report->results[i].races[n];
            fputs(items++ ? ",\n{\"race\": " : "\n{\"race\": ", out);
            json_string(out, race->what);
            json_text(out, "kernel", report->results[i].kernel);
            json_text(out, "first", race->first);
            json_text(out, "second", race->second);
            fputc('}', out);
        }
    fputs("\n]", out);
}

void report_write_shape(FILE *out, const struct report *report) {
    const struct attention *a = &report->shape;
    const struct options *o = report->options;
    char layout[32];
    layout_text(o, layout);
    fprintf(out, "{\"batch\": %d, \"heads\": %d, \"kv_heads\": %d", a->batch, a->heads, a->kv_heads);
    if (!o->sweep) fprintf(out, ", \"seqlen_q\": %d, \"seqlen_k\": %d", a->seqlen_q, a->seqlen_k);
    fprintf(out, ", \"head_dim\": %d, \"causal\": %s", a->head_dim, a->causal ? "true" : "false");
    if (a->window) fprintf(out, ", \"window\": [%d, %d]", a->window_left, a->window_right);
    if (o->sequences > 0)
        fprintf(out,
                ", \"sequences\": %d, \"shortest_q\": %d, \"longest_q\": %d, \"shortest_k\": %d, "
                "\"longest_k\": %d",
                o->sequences, smallest_step(o->cu_seqlens_q, o->sequences),
                largest_step(o->cu_seqlens_q, o->sequences), smallest_step(o->cu_seqlens_k, o->sequences),
                largest_step(o->cu_seqlens_k, o->sequences));
    json_text(out, "dtype", dtype_name(a->dtype));
    json_text(out, "layout", layout);
    if (a->pad) fprintf(out, ", \"pad\": %d", a->pad);
    if (a->splits) fprintf(out, ", \"splits\": %d", a->splits);
    json_number(out, "scale", a->scale);
    fputc('}', out);
}

int report_write_json(FILE *out, const struct report *report) {
    const struct options *o = report->options;
    fputs("{\n\"lab\": ", out);
    json_string(out, report->lab->name);
    fprintf(out, ",\n\"backend\": \"%s\",\n\"device\": ", ON_CPU ? "cpu" : "gpu");
    json_string(out, report->device->name);
    fputs(",\n\"shape\": ", out);
    report_write_shape(out, report);
    fputs(",\n", out);
    if (o->load) {
        fputs("\"load\": ", out);
        json_string(out, o->load);
    } else {
        fprintf(out, "\"inputs\": \"%s\",\n\"seed\": %llu", inputs_name(o->inputs),
                (unsigned long long)o->seed);
    }
    fputs(",\n\"clock_mhz\": ", out);
    fprintf(out, "%d", report->device->clock_mhz);
    json_number(out, "peak_tflops", report->peak_tflops > 0 ? report->peak_tflops : NAN);
    fprintf(out, ",\n\"%s\": [\n", o->sweep ? "sweep" : "kernels");
    for (int i = 0; i < report->count; ++i) {
        json_result(out, report, &report->results[i]);
        fputs(i + 1 < report->count ? ",\n" : "\n", out);
    }
    fputs("]", out);
    if (o->sanitize) json_races(out, report);
    if (o->profile) {
        fputs(",\n", out);
        profile_write_json(out, report->profiles, report->profile_count);
    }
    fputs("\n}\n", out);
    return fflush(out) == 0 && !ferror(out) ? 0 : -1;
}
