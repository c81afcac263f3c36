// lab_diff.c - what changes from one kernel to the next.
//
//     lab_diff [--color] OLD.cu KERNEL NEW.cu KERNEL
//
// Both kernels are first taken out of their labs (kernel.h): what only other kernels use is left out. Then
// pieces of the same name are compared line by line, wherever they stand; what is left on either side is
// paired with what it resembles most. Comments are not compared, and shown with new lines only. Exit 0, or 2
// with one sentence.
#define _DEFAULT_SOURCE  // strcasecmp
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernel.h"

enum { CONTEXT = 2 };
static const double alike = 0.35;  // of the lines of two pieces with different names, for them to be a pair

static const char *red = "", *green = "", *bold = "", *plain = "";

struct side {
    const char *path;
    struct source source;
    struct kernel_text kernel;
    int *partner;  // [pieces] of the other side; -1: none
};

static int refuse(const char *text) {
    fprintf(stderr, "lab_diff: %s\n", text);
    return 2;
}

static const struct definition *definition_of(const struct side *side, int n) {
    return &side->source.definition[side->kernel.piece[n].definition];
}

// A function of the host that does nothing but call another.
static int only_passes_on(const struct side *side, int n) {
    const struct definition *d = definition_of(side, n);
    int semicolons = 0;
    if (!d->body || d->on_device) return 0;
    for (int at = d->body; at < d->end; ++at) semicolons += token_is(&side->source.token[at], ";");
    return semicolons <= 1;
}

// ---------------------------------------------------------------- lines in common

// table[i * (m + 1) + j]: how many lines the rest of a from i and the rest of b from j have in common, in
// order.
static int *common_lines(const struct piece *a, const struct piece *b) {
    size_t width = (size_t)b->lines + 1;
    int *table = calloc(((size_t)a->lines + 1) * width, sizeof *table);
    if (!table) {
        refuse("There is no memory left.");
        exit(2);
    }
    for (int i = a->lines - 1; i >= 0; --i)
        for (int j = b->lines - 1; j >= 0; --j) {
            int *at = &table[(size_t)i * width + (size_t)j];
            if (strcmp(a->line[i].key, b->line[j].key) == 0)
                *at = at[width + 1] + 1;
            else
                *at = at[width] > at[1] ? at[width] : at[1];
        }
    return table;
}

// ---------------------------------------------------------------- pairs

static int same_name(const struct side *a, int i, const struct side *b, int j, int parameters_too) {
    const struct piece *p = &a->kernel.piece[i], *q = &b->kernel.piece[j];
    const struct definition *d = definition_of(a, i), *e = definition_of(b, j);
    if (strcmp(d->name, e->name) != 0) return 0;
    for (int n = 0; n < MAX_PARAMETERS && parameters_too; ++n)
        if (p->parameter[n].known != q->parameter[n].known || p->parameter[n].value != q->parameter[n].value)
            return 0;
    return 1;
}

static void pair_names(struct side *a, struct side *b, int parameters_too) {
    for (int i = 0; i < a->kernel.pieces; ++i)
        for (int j = 0; j < b->kernel.pieces && a->partner[i] < 0; ++j)
            if (b->partner[j] < 0 && same_name(a, i, b, j, parameters_too))
                a->partner[i] = j, b->partner[j] = i;
}

static void pair_alike(struct side *a, struct side *b) {
    for (;;) {
        double best = alike;
        int best_i = -1, best_j = -1;
        for (int i = 0; i < a->kernel.pieces; ++i)
            for (int j = 0; j < b->kernel.pieces; ++j) {
                const struct piece *p = &a->kernel.piece[i], *q = &b->kernel.piece[j];
                if (a->partner[i] >= 0 || b->partner[j] >= 0 || !definition_of(a, i)->body ||
                    !definition_of(b, j)->body ||
                    definition_of(a, i)->on_device != definition_of(b, j)->on_device ||
                    only_passes_on(a, i) || only_passes_on(b, j))
                    continue;
                int *table = common_lines(p, q);
                double share = 2.0 * table[0] / (p->lines + q->lines);
                free(table);
                if (share > best) best = share, best_i = i, best_j = j;
            }
        if (best_i < 0) return;
        a->partner[best_i] = best_j, b->partner[best_j] = best_i;
    }
}

// ---------------------------------------------------------------- printing

// The word for the value in the enumeration that is named like the parameter: STEP, and enum step. Null if
// there is none.
static const char *enumerator(const struct source *s, const char *parameter, long value) {
    for (int i = 0; i < s->constants; ++i)
        if (strcasecmp(s->constant[i].of, parameter) == 0 && s->constant[i].value == value)
            return s->constant[i].text;
    return NULL;
}

// "name", or "name (STEP = SKIPPED)".
static void print_name(const struct side *side, int n) {
    const struct definition *d = definition_of(side, n);
    const struct piece *p = &side->kernel.piece[n];
    int said = 0;
    fputs(d->name, stdout);
    for (int i = 0; i < d->parameters; ++i) {
        if (!p->parameter[i].known) continue;
        const char *word = enumerator(&side->source, d->parameter[i].text, p->parameter[i].value);
        printf("%s%s = ", said++ ? ", " : " (", d->parameter[i].text);
        if (word)
            fputs(word, stdout);
        else
            printf("%ld", p->parameter[i].value);
    }
    if (said) fputs(")", stdout);
}

static void print_line(const char *colour, char mark, const char *text) {
    printf("%s%c %s%s\n", colour, mark, text, *colour ? plain : "");
}

// Comments for tools: where a student's task begins and ends, and what stands there in the meantime.
static int is_mark(const char *comment) {
    comment += strspn(comment, " /");
    return !strncmp(comment, "BEGIN SOLUTION", 14) || !strncmp(comment, "END SOLUTION", 12) ||
           !strncmp(comment, "STUB ", 5);
}

static void print_new(const struct side *side, const struct left_line *l) {
    for (int c = 0; c < l->comments; ++c) {
        const char *comment = side->source.line[l->first_comment + c];
        if (!is_mark(comment)) print_line(green, '+', comment);
    }
    print_line(green, '+', l->shown);
}

struct count {
    int gone, fresh, same;
};

// The lines of a pair: what differs, with some lines around it.
static void print_pair(const struct side *a, int i, const struct side *b, int j, struct count *count) {
    const struct piece *p = &a->kernel.piece[i], *q = &b->kernel.piece[j];
    int *table = common_lines(p, q), same = table[0];
    size_t width = (size_t)q->lines + 1;
    count->gone += p->lines - same, count->fresh += q->lines - same, count->same += same;
    if (same == p->lines && same == q->lines) {
        free(table);
        return;
    }
    printf("%s@@ ", bold);
    if (!same_name(a, i, b, j, 0)) print_name(a, i), fputs(" -> ", stdout);
    print_name(b, j);
    printf(" @@%s\n", plain);
    int x = 0, y = 0, since = CONTEXT + 1;  // lines since the last difference
    while (x < p->lines || y < q->lines) {
        int equal = x < p->lines && y < q->lines && strcmp(p->line[x].key, q->line[y].key) == 0;
        if (equal) {
            int ahead = 1;  // to the next difference
            while (ahead <= CONTEXT && x + ahead < p->lines && y + ahead < q->lines &&
                   strcmp(p->line[x + ahead].key, q->line[y + ahead].key) == 0)
                ++ahead;
            int near_end = x + ahead >= p->lines && y + ahead >= q->lines;
            if (since < CONTEXT || (ahead <= CONTEXT && !near_end))
                print_line("", ' ', q->line[y].shown);
            else if (since == CONTEXT)
                printf("  ...\n");
            ++since, ++x, ++y;
            continue;
        }
        since = 0;
        const int *at = &table[(size_t)x * width + (size_t)y];
        if (y >= q->lines || (x < p->lines && at[width] >= at[1]))
            print_line(red, '-', p->line[x++].shown);
        else
            print_new(b, &q->line[y++]);
    }
    free(table);
}

// everything: also what only passes on. Returns whether there was a difference.
static int print_all(const struct side *a, const struct side *b, int everything) {
    struct count count = {0, 0, 0};
    for (int i = 0; i < a->kernel.pieces; ++i) {
        if (a->partner[i] >= 0 || (only_passes_on(a, i) && !everything)) continue;
        count.gone += a->kernel.piece[i].lines;
        printf("%s@@ gone: ", bold);
        print_name(a, i);
        printf(", %d line%s @@%s\n", a->kernel.piece[i].lines, a->kernel.piece[i].lines == 1 ? "" : "s",
               plain);
    }
    for (int j = 0; j < b->kernel.pieces; ++j) {
        if (only_passes_on(b, j) && !everything) continue;
        if (b->partner[j] >= 0) {
            print_pair(a, b->partner[j], b, j, &count);
            continue;
        }
        printf("%s@@ new: ", bold);
        print_name(b, j);
        printf(" @@%s\n", plain);
        for (int l = 0; l < b->kernel.piece[j].lines; ++l) print_new(b, &b->kernel.piece[j].line[l]);
        count.fresh += b->kernel.piece[j].lines;
    }
    if (count.gone + count.fresh == 0 && !everything) return 0;
    printf("%s%d lines gone, %d new, %d as they were%s\n", bold, count.gone, count.fresh, count.same, plain);
    return 1;
}

// ---------------------------------------------------------------- main

static int read_side(struct side *side, const char *path, const char *kernel) {
    char why[300], text[400];
    side->path = path;
    if (source_read(&side->source, path, why, sizeof why) != 0) return refuse(why);
    if (kernel_read(&side->kernel, &side->source, kernel, why, sizeof why) != 0) {
        size_t used = (size_t)snprintf(text, sizeof text, "%.120s: %.120s It has", path, why);
        char name[64];
        for (int n = 0; kernel_name(&side->source, n, name) && used + sizeof name < sizeof text; ++n)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s %s", n ? "," : "", name);
        snprintf(text + used, sizeof text - used, ".");
        return refuse(text);
    }
    side->partner = malloc(((size_t)side->kernel.pieces + 1) * sizeof *side->partner);
    if (!side->partner) return refuse("There is no memory left.");
    for (int i = 0; i < side->kernel.pieces; ++i) side->partner[i] = -1;
    return 0;
}

static void free_side(struct side *side) {
    free(side->partner);
    kernel_free(&side->kernel);
    source_free(&side->source);
}

// A lab's kernels, a line each: for ./lab.
static int list_kernels(const char *path) {
    struct source source;
    char why[300], name[64];
    int status = source_read(&source, path, why, sizeof why) == 0 ? 0 : refuse(why);
    for (int n = 0; status == 0 && kernel_name(&source, n, name); ++n) puts(name);
    source_free(&source);
    return status;
}

int main(int argc, char **argv) {
    int first = 1;
    if (argc == 3 && strcmp(argv[1], "--list") == 0) return list_kernels(argv[2]);
    if (argc > 1 && strcmp(argv[1], "--color") == 0)
        first = 2, red = "\033[31m", green = "\033[32m", bold = "\033[1m", plain = "\033[0m";
    if (argc - first != 4)
        return refuse("usage: lab_diff [--color] OLD.cu KERNEL NEW.cu KERNEL, or lab_diff --list LAB.cu");
    struct side a = {.path = NULL}, b = {.path = NULL};
    int status = read_side(&a, argv[first], argv[first + 1]);
    if (status == 0) status = read_side(&b, argv[first + 2], argv[first + 3]);
    if (status == 0) {
        pair_names(&a, &b, 1);
        pair_names(&a, &b, 0);
        pair_alike(&a, &b);
        if (!print_all(&a, &b, 0)) print_all(&a, &b, 1);
    }
    free_side(&a);
    free_side(&b);
    return status;
}
