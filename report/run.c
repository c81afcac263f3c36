#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "members.h"

int run_find(const struct run *run, const char *kernel) {
    for (int i = 0; i < run->kernels; ++i)
        if (strcmp(run->kernel[i].name, kernel) == 0) return i;
    return -1;
}

// ---------------------------------------------------------------- kernels

static double worst_of_bound(const char *line) {
    static const char *const outputs[] = {"o", "lse", "dq", "dk", "dv"};
    double worst = NAN;
    for (int i = 0; i < 5; ++i) {
        char name[16];
        snprintf(name, sizeof name, "\"%s\": {", outputs[i]);
        const char *at = strstr(line, name);
        double part = at ? member_number(at, "err") / member_number(at, "bound") : NAN;
        if (isfinite(part) && !(worst >= part)) worst = part;
    }
    return worst;
}

static void add_kernel(struct run *run, const char *line) {
    if (run->kernels == MAX_KERNELS) return;
    struct run_kernel *kernel = &run->kernel[run->kernels++];
    member_text(line, "kernel", kernel->name, sizeof kernel->name);
    member_text(line, "adds", kernel->adds, sizeof kernel->adds);
    member_text(line, "verdict", kernel->verdict, sizeof kernel->verdict);
    member_text(line, "detail", kernel->detail, sizeof kernel->detail);
    kernel->of_bound = worst_of_bound(line);
    kernel->workspace = member_number(line, "workspace_bytes");
    kernel->memory = member_number(line, "memory_bytes");
    kernel->ms = member_number(line, "ms");
    kernel->tflops = member_number(line, "tflops");
    kernel->percent_of_peak = member_number(line, "percent_of_peak");
    kernel->intensity = NAN;
}

// ---------------------------------------------------------------- the rest

// Room for one element more, of `size` bytes each; null if there is no memory left.
static void *grown(void *array, int count, size_t size) {
    if (count & (count - 1)) return array;  // grown when the count is a power of two
    void *more = realloc(array, (count ? 2 * (size_t)count : 1) * size);
    if (!more) free(array);
    return more;
}

static int add_launch(struct run *run, const char *line) {
    char kernel[NAME];
    int at = run_find(run, member_text(line, "kernel", kernel, sizeof kernel));
    if (at < 0) return 0;
    run->launch = grown(run->launch, run->launches, sizeof *run->launch);
    if (!run->launch) return -1;
    struct run_launch *launch = &run->launch[run->launches++];
    *launch = (struct run_launch){.kernel = at, .number = (int)member_number(line, "launch"), .line = line};
    member_text(line, "function", launch->function, sizeof launch->function);
    return 0;
}

static int add_race(struct run *run, const char *line) {
    run->race = grown(run->race, run->races, sizeof *run->race);
    if (!run->race) return -1;
    struct run_race *race = &run->race[run->races++];
    member_text(line, "race", race->what, sizeof race->what);
    member_text(line, "kernel", race->kernel, sizeof race->kernel);
    member_text(line, "first", race->first, sizeof race->first);
    member_text(line, "second", race->second, sizeof race->second);
    return 0;
}

static int add_line(struct run *run, const char *line) {
    char kernel[NAME];
    int at = run_find(run, member_text(line, "kernel", kernel, sizeof kernel));
    if (at < 0) return 0;
    run->line = grown(run->line, run->lines, sizeof *run->line);
    run->line_kernel = grown(run->line_kernel, run->lines, sizeof *run->line_kernel);
    if (!run->line || !run->line_kernel) return -1;
    run->line[run->lines] = line;
    run->line_kernel[run->lines++] = at;
    return 0;
}

static void add_intensity(struct run *run, const char *line) {
    char name[NAME];
    int at = run_find(run, member_text(line, "kernel", name, sizeof name));
    if (at >= 0) run->kernel[at].intensity = member_number(line, "flops_per_byte");
}

// The shape in words: batch 1, 2 heads, ...
static void describe_shape(struct run *run, const char *line) {
    char dtype[16];
    snprintf(run->shape, sizeof run->shape,
             "batch %.0f, heads %.0f (%.0f of K and V), %.0f queries, %.0f keys, head_dim %.0f, %s, %s",
             member_number(line, "batch"), member_number(line, "heads"), member_number(line, "kv_heads"),
             member_number(line, "seqlen_q"), member_number(line, "seqlen_k"),
             member_number(line, "head_dim"), member_text(line, "dtype", dtype, sizeof dtype),
             strstr(line, "\"causal\": true") ? "causal" : "full");
}

static int take_line(struct run *run, const char *line, int in_kernels) {
    if (strncmp(line, "\"lab\": ", 7) == 0) member_text(line, "lab", run->lab, sizeof run->lab);
    if (strncmp(line, "\"backend\": ", 11) == 0)
        member_text(line, "backend", run->backend, sizeof run->backend);
    if (strncmp(line, "\"device\": ", 10) == 0) member_text(line, "device", run->device, sizeof run->device);
    if (strncmp(line, "\"shape\": ", 9) == 0) describe_shape(run, line);
    if (in_kernels && begins_with(line, "kernel")) add_kernel(run, line);
    if (begins_with(line, "roofline")) add_intensity(run, line);
    if (begins_with(line, "launch")) return add_launch(run, line);
    if (begins_with(line, "line_of_launch")) return add_line(run, line);
    return begins_with(line, "race") ? add_race(run, line) : 0;
}

int run_read(struct run *run, const char *path, struct message *why) {
    memset(run, 0, sizeof *run);
    run->text = file_read(path);
    if (!run->text) return fail(why, "%s cannot be read: %s.", path, strerror(errno));
    int in_kernels = 0;
    for (char *at = run->text, *line; *at;) {
        line = at;
        at += strcspn(at, "\n");
        if (*at) *at++ = '\0';
        if (strncmp(line, "\"kernels\": ", 11) == 0) in_kernels = 1;
        if (line[0] == ']') in_kernels = 0;
        if (take_line(run, line, in_kernels) != 0) return fail(why, "There is no memory left.");
    }
    if (run->kernels == 0)
        return fail(why, "%s has no kernels in it: it is not what a lab writes with --json.", path);
    return 0;
}

void run_free(struct run *run) {
    free(run->text);
    free(run->launch);
    free(run->race);
    free((void *)run->line);
    free(run->line_kernel);
    memset(run, 0, sizeof *run);
}

// ---------------------------------------------------------------- counts of lines

// The line number of "file:line" if it is of that file and within its length, else 0.
static int line_in(const char *position, const char *file, int lines) {
    size_t length = strlen(file);
    if (strncmp(position, file, length) != 0 || position[length] != ':') return 0;
    long line = strtol(position + length + 1, NULL, 10);
    return line >= 1 && line <= lines ? (int)line : 0;
}

static double above(double a, double b) { return a > b ? a - b : 0; }

static void add_access(const char *line, double *to) {
    char space[16];
    double ideal = member_number(line, "ideal");
    if (strcmp(member_text(line, "space", space, sizeof space), "global") == 0) {
        to[BYTES] += member_number(line, "accesses") * member_number(line, "access_bytes");
        to[SECTORS] += member_number(line, "sectors");
        to[LOST] += above(member_number(line, "sectors"), ideal);
    } else {
        to[WAVEFRONTS] += member_number(line, "wavefronts");
        to[CONFLICTS] += above(member_number(line, "wavefronts"), ideal);
    }
}

int run_add_counts(const struct run *run, const struct run *of, const char *file, int lines, double *counts) {
    int elsewhere = 0;
    size_t of_kernel = ((size_t)lines + 1) * COLUMNS;
    for (int i = 0; i < run->lines; ++i) {
        char position[NAME];
        int kernel = run_find(of, run->kernel[run->line_kernel[i]].name);
        int line = line_in(member_text(run->line[i], "position", position, sizeof position), file, lines);
        elsewhere += !line;
        if (line && kernel >= 0)
            add_access(run->line[i], counts + (size_t)kernel * of_kernel + (size_t)line * COLUMNS);
    }
    for (int i = 0; i < run->races; ++i) {
        const struct run_race *race = &run->race[i];
        int kernel = run_find(of, race->kernel);
        int first = line_in(race->first, file, lines), second = line_in(race->second, file, lines);
        if (kernel < 0) continue;
        if (first) counts[(size_t)kernel * of_kernel + (size_t)first * COLUMNS + RACES] += 1;
        if (second && second != first)
            counts[(size_t)kernel * of_kernel + (size_t)second * COLUMNS + RACES] += 1;
    }
    return elsewhere;
}
