#define _DEFAULT_SOURCE
#include "report.h"

#include <stdlib.h>
#include <string.h>

struct points grade_points(const struct grade *grade) {
    struct points sum = {0, 0, 0, 0};
    for (int i = 0; i < grade->count; ++i) {
        struct points p = result_points(&grade->labs[i]);
        sum.earned += p.earned, sum.possible += p.possible, sum.blocked += p.blocked, sum.errors += p.errors;
    }
    return sum;
}

// A hidden case stays hidden: where the first fault lies, and what the program printed, would describe it.
static int is_telling(const char *line) {
    return strncmp(line, "What this usually means", 23) == 0 || strncmp(line, "The program", 11) == 0 ||
           strncmp(line, "It ", 3) == 0 || strncmp(line, "There is", 8) == 0 ||
           strncmp(line, "Speed", 5) == 0;
}

char *report_visible_text(const struct test_result *test) {
    char *text = calloc(1, sizeof test->text + 1), *to = text;
    if (!text) return NULL;
    for (const char *line = test->text; *line;) {
        size_t length = strcspn(line, "\n");
        if (!test->hidden || is_telling(line)) {
            if (to > text) *to++ = '\n';
            memcpy(to, line, length);
            to += length;
        }
        line += length + (line[length] == '\n');
    }
    *to = '\0';
    return text;
}

// ---------------------------------------------------------------- for people

static void write_points(FILE *out, const struct points *p) {
    fprintf(out, "%.6g of %.6g points", p->earned, p->possible);
    if (p->blocked > 0)
        fprintf(out, " (%.6g more could not be tried on this machine and do not count)", p->blocked);
}

// A line's own text: Markdown's signs stay what they are.
static void write_plain(FILE *out, const char *line, size_t length) {
    for (size_t i = 0; i < length; ++i) {
        if (strchr("\\`*_<>|#", line[i])) fputc('\\', out);
        fputc(line[i], out);
    }
}

// A text of several lines below an item of a list.
static void write_indented(FILE *out, const char *text) {
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        fputs("  ", out);
        write_plain(out, line, length);
        fputs("  \n", out);
        line += length + (line[length] == '\n');
    }
}

static void write_test(FILE *out, const struct test_result *t) {
    fprintf(out, "- **%s** (%s%s): %.6g of %.6g points, %s\n", t->name, kind_name(t->kind),
            t->hidden ? ", hidden" : "", t->earned, t->possible, status_name(t->status));
    char *text = report_visible_text(t);
    if (text) write_indented(out, text);
    free(text);
}

// Tests that are blocked for the same reason are named together, where the first of them is.
static void write_blocked(FILE *out, const struct lab_result *lab, int first) {
    const struct test_result *of = &lab->tests[first];
    int count = 0, of_speed = 0;
    for (int i = 0; i < lab->count; ++i) {
        const struct test_result *t = &lab->tests[i];
        if (t->status != STATUS_BLOCKED || strcmp(t->text, of->text) != 0) continue;
        if (i < first) return;
        ++count, of_speed += t->kind == KIND_SPEED;
    }
    if (count == 1 && !of_speed) return write_test(out, of);
    fprintf(out, "- Not tried, and not counted: %d test%s%s.", count, count == 1 ? "" : "s",
            of_speed == count ? " of speed" : "");
    char *text = report_visible_text(of);
    if (text && !strchr(text, '\n')) {
        fputc(' ', out);
        write_plain(out, text, strlen(text));
        fputc('\n', out);
    } else {
        fputc('\n', out);
        write_indented(out, text ? text : "");
    }
    free(text);
}

static void write_lab(FILE *out, const struct lab_result *lab) {
    struct points p = result_points(lab);
    const struct test_result *first = NULL;
    int passed = 0, same = lab->count > 1;
    for (int i = 0; i < lab->count; ++i) {
        const struct test_result *t = &lab->tests[i];
        passed += t->status == STATUS_PASSED;
        if (t->status == STATUS_BLOCKED) continue;
        if (!first) first = t;
        same &= t->status == STATUS_FAILED && strcmp(t->text, first->text) == 0;
    }
    fprintf(out, "\n## %s: ", lab->lab);
    write_points(out, &p);
    fprintf(out, "\n\n%d of %d tests passed.\n", passed, lab->count);
    if (passed < lab->count) fputc('\n', out);
    if (same && first) {  // it does not compile, or is not there: said once
        fprintf(out, "- All tests that could be tried: 0 of %.6g points\n", p.possible);
        write_indented(out, first->text);
        return;
    }
    for (int i = 0; i < lab->count; ++i) {
        const struct test_result *t = &lab->tests[i];
        if (t->status == STATUS_BLOCKED)
            write_blocked(out, lab, i);
        else if (t->status != STATUS_PASSED || t->kind == KIND_SPEED)
            write_test(out, t);
    }
}

void report_write_markdown(FILE *out, const struct grade *grade) {
    struct points p = grade_points(grade);
    fprintf(out, "# %s: ", grade->name);
    write_points(out, &p);
    fputc('\n', out);
    if (grade->blame) fprintf(out, "\nNot all could be graded: %s\n", grade->blame);
    for (int i = 0; i < grade->count; ++i) write_lab(out, &grade->labs[i]);
}

void report_write_remarks(FILE *out, const struct grade *grade) {
    for (int i = 0; i < grade->count; ++i)
        for (int r = 0; r < grade->labs[i].remarks; ++r)
            fprintf(out, "%s: %s: to look at: %s\n", grade->name, grade->labs[i].lab,
                    grade->labs[i].remark[r]);
}

// ---------------------------------------------------------------- scores.csv

static void write_cell(FILE *out, const char *text) {
    if (!text[strcspn(text, ",\"\n")]) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; ++text) {
        if (*text == '"') fputc('"', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
    fputc('"', out);
}

void report_write_scores(FILE *out, const struct grade *grades, int count, const char *const *labs,
                         int lab_count) {
    fputs("submission,points,possible,blocked", out);
    for (int i = 0; i < lab_count; ++i) fprintf(out, ",%s", labs[i]);
    fputs(",remarks,not graded\n", out);
    for (int g = 0; g < count; ++g) {
        struct points p = grade_points(&grades[g]);
        int remarks = 0;
        write_cell(out, grades[g].name);
        fprintf(out, ",%.6g,%.6g,%.6g", p.earned, p.possible, p.blocked);
        for (int i = 0; i < lab_count; ++i) {
            fputc(',', out);
            for (int j = 0; j < grades[g].count; ++j) {
                if (strcmp(grades[g].labs[j].lab, labs[i]) != 0) continue;
                p = result_points(&grades[g].labs[j]);
                fprintf(out, "%.6g", p.earned);
                remarks += grades[g].labs[j].remarks;
            }
        }
        fprintf(out, ",%d,", remarks);
        write_cell(out, grades[g].blame ? grades[g].blame : "");
        fputc('\n', out);
    }
}
