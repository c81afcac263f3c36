#include "profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "json.h"

const struct roofline rooflines[ROOFLINE_COUNT] = {
    {"A100", 312, 19.5, 2.039}, {"H100", 989, 67, 3.35}, {"H200", 989, 67, 4.8}};

static const char *const space_names[] = {"global", "shared"};
static const char *const operation_names[] = {"ld", "st", "at"};
static const char *const operation_words[] = {"read", "write", "atomic"};  // in JSON
static const char *const pass_names[] = {"sectors", "wavefronts"};
static const char *const work_names[] = {"fp32 FLOPs", "tensor FLOPs", "exp", "special", "barriers"};
static const char *const work_words[] = {"fp32_flops", "tensor_flops", "exps", "special_instructions",
                                         "barriers"};

static const char *const copy_names[] = {"cp.async", "TMA load", "TMA store"};
static const char *const copy_words[] = {"cp_async", "tma_load", "tma_store"};

// ---------------------------------------------------------------- making

void profile_begin(struct profile *p, const char *kernel, double flops) {
    memset(p, 0, sizeof *p);
    p->kernel = kernel;
    p->flops = flops;
}

struct profile_launch *profile_add(struct profile *p) {
    struct profile_launch *more = realloc(p->launches, (size_t)(p->launch_count + 1) * sizeof *p->launches);
    if (!more) return NULL;
    p->launches = more;
    struct profile_launch *launch = &more[p->launch_count++];
    memset(launch, 0, sizeof *launch);
    launch->blocks = launch->threads = launch->dram[0] = launch->dram[1] = NAN;
    for (int space = 0; space < PROFILE_SPACES; ++space)
        for (int op = 0; op < PROFILE_OPERATIONS; ++op)
            launch->traffic[space][op] = (struct traffic){NAN, NAN, NAN, NAN};
    for (int kind = 0; kind < PROFILE_COPIES; ++kind) launch->copies[kind].bytes = NAN;
    for (int kind = 0; kind < PROFILE_WORKS; ++kind) launch->work[kind] = NAN;
    return launch;
}

void profile_free(struct profile *p) {
    for (int i = 0; i < p->launch_count; ++i) free(p->launches[i].lines);
    free(p->launches);
    memset(p, 0, sizeof *p);
}

#ifdef SIMT_CPU
static const char *const path_names[] = {[SIMT_PATH_PLAIN] = NULL,
                                         [SIMT_PATH_MATRIX] = "by matrix",
                                         [SIMT_PATH_CP_ASYNC] = "cp.async",
                                         [SIMT_PATH_WGMMA] = "by wgmma",
                                         [SIMT_PATH_BULK] = "by TMA"};

static double count_of(unsigned long long count) { return count == SIMT_NOT_COUNTED ? NAN : (double)count; }

// Adds a line to its launch's sums as Nsight Compute does: global loads with cp.async's and without TMA's;
// shared memory with ldmatrix and stmatrix, but without what copies and wgmma do there.
static void add_line(struct profile_launch *launch, const struct profile_line *line, int path) {
    int global = line->space == PROFILE_GLOBAL;
    if (global && path == SIMT_PATH_CP_ASYNC)
        launch->copies[PROFILE_CP_ASYNC].sectors += line->traffic.passes;
    if (global && path == SIMT_PATH_BULK) {
        int copy = line->operation == PROFILE_LOAD ? PROFILE_TMA_LOAD : PROFILE_TMA_STORE;
        launch->copies[copy].sectors += line->traffic.passes;
    }
    if (path != SIMT_PATH_PLAIN && path != SIMT_PATH_MATRIX && !(path == SIMT_PATH_CP_ASYNC && global))
        return;
    struct traffic *all = &launch->traffic[line->space][line->operation];
    all->bytes += line->traffic.bytes, all->requests += line->traffic.requests;
    all->passes += line->traffic.passes, all->ideal += line->traffic.ideal;
}

static int launch_take(struct profile_launch *launch, const struct simt_launch_stats *s) {
    const char *slash = strrchr(s->kernel_file, '/');
    snprintf(launch->position, sizeof launch->position, "%.40s:%d", slash ? slash + 1 : s->kernel_file,
             s->line);
    snprintf(launch->function, sizeof launch->function, "%.60s", s->kernel);
    launch->blocks = (double)s->blocks;
    launch->threads = s->blocks ? (double)s->threads / (double)s->blocks : 0;
    for (int space = 0; space < PROFILE_SPACES; ++space)
        for (int op = 0; op < PROFILE_OPERATIONS; ++op)
            launch->traffic[space][op] = (struct traffic){0, 0, 0, 0};
    launch->copies[PROFILE_CP_ASYNC] = (struct copies){(double)s->cp_async_bytes, 0};
    launch->copies[PROFILE_TMA_LOAD] = (struct copies){(double)s->tma_read_bytes, 0};
    launch->copies[PROFILE_TMA_STORE] = (struct copies){(double)s->tma_write_bytes, 0};
    launch->work[PROFILE_FP32] = count_of(s->fp32_flops);
    launch->work[PROFILE_TENSOR] = count_of(s->tensor_flops);
    launch->work[PROFILE_EXP] = count_of(s->exp_count);
    launch->work[PROFILE_BARRIER] = count_of(s->barriers);
    launch->lines = calloc((size_t)s->line_count + 1, sizeof *launch->lines);
    if (!launch->lines) return -1;
    launch->line_count = s->line_count;
    for (int i = 0; i < s->line_count; ++i) {
        const struct simt_line *from = &s->lines[i];
        struct profile_line *to = &launch->lines[i];
        snprintf(to->position, sizeof to->position, "%.60s", from->position);
        to->bytes = from->bytes, to->accesses = (double)from->accesses;
        to->space = from->shared ? PROFILE_SHARED : PROFILE_GLOBAL;
        to->operation = from->atomic ? PROFILE_ATOMIC : from->write ? PROFILE_STORE : PROFILE_LOAD;
        to->traffic =
            (struct traffic){(double)from->accesses * from->bytes, (double)from->requests,
                             (double)(from->shared ? from->wavefronts : from->sectors), (double)from->ideal};
        to->path = path_names[from->path];
        add_line(launch, to, from->path);
    }
    return 0;
}

enum { MAX_LAUNCHES = 1024 };  // as many as the simulated device keeps
static struct simt_launch_stats stats[MAX_LAUNCHES];

void profile_count(int on) {
    simt_take_launch_stats(stats, MAX_LAUNCHES);
    simt_set_profiling(on);
}

int profile_take(struct profile *p) {
    int count = simt_take_launch_stats(stats, MAX_LAUNCHES);
    for (int i = 0; i < count && i < MAX_LAUNCHES; ++i) {
        struct profile_launch *launch = profile_add(p);
        if (!launch || launch_take(launch, &stats[i]) != 0) return -1;
    }
    return 0;
}
#endif

// ---------------------------------------------------------------- intensity

static double sector_bytes(const struct profile *p) {
    double sectors = 0;
    for (int i = 0; i < p->launch_count; ++i) {
        for (int op = 0; op < PROFILE_OPERATIONS; ++op)
            sectors += p->launches[i].traffic[PROFILE_GLOBAL][op].passes;
        sectors += p->launches[i].copies[PROFILE_TMA_LOAD].sectors;
        sectors += p->launches[i].copies[PROFILE_TMA_STORE].sectors;
    }
    return sectors * SECTOR_BYTES;
}

double profile_intensity(const struct profile *p) { return p->flops / sector_bytes(p); }

static double ridge(const struct roofline *r, int tensor) {
    return (tensor ? r->tensor_tflops : r->fp32_tflops) / r->terabytes;
}

static const char *side(double intensity, double ridge_at) {
    return isnan(intensity) ? "not known" : intensity < ridge_at ? "memory" : "compute";
}

// ---------------------------------------------------------------- text

static const char *count_text(double count, char text[32]) {
    if (isfinite(count))
        snprintf(text, 32, "%.0f", count);
    else
        snprintf(text, 32, "-");
    return text;
}

static const char *size_text(double bytes, char text[32]) {
    return isfinite(bytes) ? bytes_text(bytes, text) : "-";
}

static void print_traffic(FILE *out, int space, int op, const struct traffic *t) {
    if (!(t->requests > 0 || t->passes > 0 || t->bytes > 0)) return;
    char a[32], b[32], c[32], d[32];
    fprintf(out, "  %s %s  %8s  requests %s  %s %s", space_names[space], operation_names[op],
            size_text(t->bytes, a), count_text(t->requests, b), pass_names[space], count_text(t->passes, c));
    if (isfinite(t->ideal)) fprintf(out, " (ideal %s)", count_text(t->ideal, d));
    if (t->requests > 0) fprintf(out, "  %s/request %.4g", pass_names[space], t->passes / t->requests);
    if (space == PROFILE_SHARED && isfinite(t->ideal))
        fprintf(out, "  conflicts %s", count_text(t->passes - t->ideal, d));
    fputc('\n', out);
}

static void print_copies(FILE *out, const struct copies copies[PROFILE_COPIES]) {
    for (int kind = 0; kind < PROFILE_COPIES; ++kind) {
        char bytes[32], sectors[32];
        if (!(copies[kind].bytes > 0 || copies[kind].sectors > 0)) continue;
        fprintf(out, "  %-9s  %8s  sectors %s%s\n", copy_names[kind], size_text(copies[kind].bytes, bytes),
                count_text(copies[kind].sectors, sectors),
                kind == PROFILE_CP_ASYNC ? "  (part of the global loads)" : "");
    }
}

// What this backend cannot count is left out; what it could not count this time is "-".
static void print_work(FILE *out, const double work[PROFILE_WORKS]) {
    int known = 0;
    char text[32];
    for (int kind = 0; kind < PROFILE_WORKS; ++kind) known += !isnan(work[kind]);
    if (!known) return;
    fputs("  work     ", out);
    for (int kind = 0; kind < PROFILE_WORKS; ++kind)
        if (!isnan(work[kind]) || kind == PROFILE_FP32 || kind == PROFILE_TENSOR)
            fprintf(out, "  %s %s", work_names[kind], count_text(work[kind], text));
    fputc('\n', out);
}

static void print_lines(FILE *out, const struct profile_launch *launch) {
    int shown = launch->line_count < PROFILE_TOP_LINES ? launch->line_count : PROFILE_TOP_LINES, width = 0;
    for (int i = 0; i < shown; ++i) {
        int length = (int)strlen(launch->lines[i].position);
        if (length > width) width = length;
    }
    for (int i = 0; i < shown; ++i) {
        const struct profile_line *line = &launch->lines[i];
        const struct traffic *t = &line->traffic;
        char count[32];
        fprintf(out, "    %-*s  %s %s %2d B%s%s  requests %-8s  %s/request %.4g (ideal %.4g)\n", width,
                line->position, space_names[line->space], operation_names[line->operation], line->bytes,
                line->path ? " " : "", line->path ? line->path : "", count_text(t->requests, count),
                pass_names[line->space], t->passes / t->requests, t->ideal / t->requests);
    }
    if (shown < launch->line_count)
        fprintf(out, "    and %d lines more, nearer the ideal (--json has them all)\n",
                launch->line_count - shown);
}

static void print_launch(FILE *out, const struct profile *p, int number) {
    const struct profile_launch *launch = &p->launches[number];
    char blocks[32], threads[32];
    fprintf(out, "%s, launch %d of %d: %s", p->kernel, number + 1, p->launch_count, launch->function);
    if (launch->position[0]) fprintf(out, " at %s", launch->position);
    fprintf(out, ", %s blocks x %s threads\n", count_text(launch->blocks, blocks),
            count_text(launch->threads, threads));
    for (int space = 0; space < PROFILE_SPACES; ++space)
        for (int op = 0; op < PROFILE_OPERATIONS; ++op)
            print_traffic(out, space, op, &launch->traffic[space][op]);
    print_copies(out, launch->copies);
    print_work(out, launch->work);
    char read[32], written[32];
    if (isfinite(launch->dram[0]) || isfinite(launch->dram[1]))
        fprintf(out, "  DRAM       read %s, written %s\n", size_text(launch->dram[0], read),
                size_text(launch->dram[1], written));
    print_lines(out, launch);
}

static void print_roofline(FILE *out, const struct profile *p, int tensor) {
    double intensity = profile_intensity(p);
    fprintf(out, "  against %s", tensor ? "fp16 tensor cores:" : "fp32 CUDA cores:  ");
    for (int i = 0; i < ROOFLINE_COUNT; ++i) {
        double at = ridge(&rooflines[i], tensor);
        fprintf(out, "%s %s %s-bound (ridge %.1f)", i ? "," : "", rooflines[i].name, side(intensity, at), at);
    }
    fputc('\n', out);
}

void profile_print(FILE *out, const struct profile *p) {
    for (int i = 0; i < p->launch_count; ++i) print_launch(out, p, i);
    char moved[32];
    double bytes = sector_bytes(p);
    if (!(bytes > 0)) return;  // nothing moved, or nobody knows
    fprintf(out, "%s, all launches: %.4g MFLOP over %s in sectors = %.3g FLOP/B, caches not counted\n",
            p->kernel, p->flops / 1e6, bytes_text(bytes, moved), profile_intensity(p));
    print_roofline(out, p, 1);
    print_roofline(out, p, 0);
}

// ---------------------------------------------------------------- JSON

// Begins a line of an array.
static void json_item(FILE *out, int *items) { fputs((*items)++ ? ",\n" : "\n", out); }

static void json_traffic(FILE *out, int space, int op, const struct traffic *t) {
    char key[64];
    const char *in = space == PROFILE_GLOBAL ? "global" : "shared", *what = operation_words[op];
    const struct {
        const char *name;
        double value;
    } member[] = {
        {"bytes", t->bytes}, {"requests", t->requests}, {pass_names[space], t->passes}, {"ideal", t->ideal}};
    for (int i = 0; i < 4; ++i) {
        snprintf(key, sizeof key, "%s_%s_%s", in, what, member[i].name);
        json_count(out, key, member[i].value);
    }
}

static void json_launch(FILE *out, const struct profile *p, int number) {
    const struct profile_launch *launch = &p->launches[number];
    fprintf(out, "{\"launch\": %d", number + 1);
    json_text(out, "kernel", p->kernel);
    json_text(out, "function", launch->function);
    json_text(out, "position", launch->position);
    json_count(out, "blocks", launch->blocks);
    json_count(out, "threads", launch->threads);
    for (int space = 0; space < PROFILE_SPACES; ++space)
        for (int op = 0; op < PROFILE_OPERATIONS; ++op)
            json_traffic(out, space, op, &launch->traffic[space][op]);
    for (int kind = 0; kind < PROFILE_COPIES; ++kind) {
        char key[64];
        snprintf(key, sizeof key, "%s_bytes", copy_words[kind]);
        json_count(out, key, launch->copies[kind].bytes);
        snprintf(key, sizeof key, "%s_sectors", copy_words[kind]);
        json_count(out, key, launch->copies[kind].sectors);
    }
    for (int kind = 0; kind < PROFILE_WORKS; ++kind) json_count(out, work_words[kind], launch->work[kind]);
    json_count(out, "dram_read_bytes", launch->dram[0]);
    json_count(out, "dram_write_bytes", launch->dram[1]);
    fputc('}', out);
}

static void json_line(FILE *out, const struct profile *p, int number, const struct profile_line *line) {
    fprintf(out, "{\"line_of_launch\": %d", number + 1);
    json_text(out, "kernel", p->kernel);
    json_text(out, "position", line->position);
    json_text(out, "space", space_names[line->space]);
    json_text(out, "operation", operation_words[line->operation]);
    json_text(out, "path", line->path ? line->path : "");
    json_count(out, "access_bytes", line->bytes);
    json_count(out, "accesses", line->accesses);
    json_count(out, "requests", line->traffic.requests);
    json_count(out, pass_names[line->space], line->traffic.passes);
    json_count(out, "ideal", line->traffic.ideal);
    fputc('}', out);
}

static void json_roofline(FILE *out, const struct profile *p, const struct roofline *r) {
    double intensity = profile_intensity(p);
    fputs("{\"roofline\": ", out);
    json_string(out, r->name);
    json_text(out, "kernel", p->kernel);
    json_count(out, "flops", p->flops);
    json_count(out, "sector_bytes", sector_bytes(p));
    json_number(out, "flops_per_byte", intensity);
    for (int tensor = 1; tensor >= 0; --tensor) {
        json_number(out, tensor ? "tensor_ridge" : "fp32_ridge", ridge(r, tensor));
        json_text(out, tensor ? "tensor_bound" : "fp32_bound", side(intensity, ridge(r, tensor)));
    }
    fputc('}', out);
}

void profile_write_json(FILE *out, const struct profile *profiles, int count) {
    int items = 0;
    fputs("\"launches\": [", out);
    for (int i = 0; i < count; ++i)
        for (int n = 0; n < profiles[i].launch_count; ++n)
            json_item(out, &items), json_launch(out, &profiles[i], n);
    items = 0;
    fputs("\n],\n\"lines\": [", out);
    for (int i = 0; i < count; ++i)
        for (int n = 0; n < profiles[i].launch_count; ++n)
            for (int l = 0; l < profiles[i].launches[n].line_count; ++l)
                json_item(out, &items), json_line(out, &profiles[i], n, &profiles[i].launches[n].lines[l]);
    items = 0;
    fputs("\n],\n\"rooflines\": [", out);
    for (int i = 0; i < count; ++i)
        for (int r = 0; r < ROOFLINE_COUNT; ++r)
            json_item(out, &items), json_roofline(out, &profiles[i], &rooflines[r]);
    fputs("\n]", out);
}
