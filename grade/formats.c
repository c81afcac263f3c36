// formats.c - the reports for other programs.
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "report.h"

static double seconds_of(const struct grade *grade) {
    double seconds = 0;
    for (int i = 0; i < grade->count; ++i) seconds += grade->labs[i].seconds;
    return seconds;
}

// ---------------------------------------------------------------- JSON

static void json_test(FILE *out, const struct test_result *t) {
    fputs("{\"test\": ", out);
    json_string(out, t->name);
    json_text(out, "kind", kind_name(t->kind));
    json_text(out, "status", status_name(t->status));
    json_number(out, "points", t->earned);
    json_number(out, "possible", t->possible);
    fprintf(out, ", \"hidden\": %s", t->hidden ? "true" : "false");
    json_text(out, "text", t->text);
    fputc('}', out);
}

static void json_lab(FILE *out, const struct lab_result *lab) {
    struct points p = result_points(lab);
    fputs("{\"lab\": ", out);
    json_string(out, lab->lab);
    json_number(out, "points", p.earned);
    json_number(out, "possible", p.possible);
    json_number(out, "blocked", p.blocked);
    fputs(", \"remarks\": [", out);
    for (int i = 0; i < lab->remarks; ++i) {
        if (i > 0) fputs(", ", out);
        json_string(out, lab->remark[i]);
    }
    fputs("], \"tests\": [\n", out);
    for (int i = 0; i < lab->count; ++i) {
        json_test(out, &lab->tests[i]);
        fputs(i + 1 < lab->count ? ",\n" : "\n", out);
    }
    fputs("]}", out);
}

void report_write_json(FILE *out, const struct grade *grade) {
    struct points p = grade_points(grade);
    fputs("{\"submission\": ", out);
    json_string(out, grade->name);
    json_number(out, "points", p.earned);
    json_number(out, "possible", p.possible);
    json_number(out, "blocked", p.blocked);
    json_text(out, "not_graded", grade->blame ? grade->blame : "");
    fputs(", \"labs\": [\n", out);
    for (int i = 0; i < grade->count; ++i) {
        json_lab(out, &grade->labs[i]);
        fputs(i + 1 < grade->count ? ",\n" : "\n", out);
    }
    fputs("]}\n", out);
}

// ---------------------------------------------------------------- JUnit

static void xml_text(FILE *out, const char *text) {
    for (; *text; ++text) {
        unsigned char c = (unsigned char)*text;
        const char *name = c == '&'   ? "&amp;"
                           : c == '<' ? "&lt;"
                           : c == '>' ? "&gt;"
                           : c == '"' ? "&quot;"
                                      : NULL;
        if (name)
            fputs(name, out);
        else if (c == '\n')
            fputs("&#10;", out);
        else if (c >= 0x20 && c < 0x7f)
            fputc(c, out);
        else
            fputc('?', out);  // what a compiler quotes may be no UTF-8
    }
}

static void xml_attribute(FILE *out, const char *name, const char *text) {
    fprintf(out, " %s=\"", name);
    xml_text(out, text);
    fputc('"', out);
}

static void xml_test(FILE *out, const char *lab, const struct test_result *t) {
    static const char *const element[STATUSES] = {NULL, NULL, "failure", "skipped", "error"};
    char *text = report_visible_text(t);
    fputs("    <testcase", out);
    xml_attribute(out, "classname", lab);
    xml_attribute(out, "name", t->name);
    fprintf(out, ">");
    if (element[t->status]) {
        fprintf(out, "<%s", element[t->status]);
        xml_attribute(out, "message", text ? text : "");
        fputs("/>", out);
    }
    fprintf(out, "<system-out>%.6g of %.6g points</system-out></testcase>\n", t->earned, t->possible);
    free(text);
}

void report_write_junit(FILE *out, const struct grade *grade) {
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites", out);
    xml_attribute(out, "name", grade->name);
    fputs(">\n", out);
    for (int i = 0; i < grade->count; ++i) {
        const struct lab_result *lab = &grade->labs[i];
        int counts[STATUSES] = {0};
        for (int t = 0; t < lab->count; ++t) ++counts[lab->tests[t].status];
        fputs("  <testsuite", out);
        xml_attribute(out, "name", lab->lab);
        fprintf(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\">\n",
                lab->count, counts[STATUS_FAILED], counts[STATUS_ERROR], counts[STATUS_BLOCKED],
                lab->seconds);
        for (int t = 0; t < lab->count; ++t) xml_test(out, lab->lab, &lab->tests[t]);
        fputs("  </testsuite>\n", out);
    }
    fputs("</testsuites>\n", out);
}

// ---------------------------------------------------------------- Gradescope

static void gradescope_test(FILE *out, const char *lab, const struct test_result *t, int number) {
    char *text = report_visible_text(t);
    char order[32];
    snprintf(order, sizeof order, "%d", number);
    fputs("{\"name\": ", out);
    json_string(out, t->name);
    json_text(out, "number", order);
    json_number(out, "score", t->earned);
    json_number(out, "max_score", t->possible);
    json_text(out, "status", t->status == STATUS_PASSED || t->status == STATUS_PARTLY ? "passed" : "failed");
    json_text(out, "output", text ? text : "");
    fputs(", \"tags\": [", out);
    json_string(out, lab);
    fputs(", ", out);
    json_string(out, kind_name(t->kind));
    fputc(']', out);
    json_text(out, "visibility", t->hidden ? "after_due_date" : "visible");
    fputc('}', out);
    free(text);
}

// What counts for nobody is no test there, and is said in the output above them: a test without a score would
// be read as zero points.
void report_write_gradescope(FILE *out, const struct grade *grade) {
    struct points p = grade_points(grade);
    char text[400];
    int length = snprintf(text, sizeof text, "%.6g of %.6g points.", p.earned, p.possible);
    if (p.blocked > 0)
        length += snprintf(text + length, sizeof text - (size_t)length,
                           " Tests of %.6g more points could not be tried on this machine and do not count.",
                           p.blocked);
    if (grade->blame)
        snprintf(text + length, sizeof text - (size_t)length, " Not all could be graded: %.200s",
                 grade->blame);
    fputs("{\"output\": ", out);
    json_string(out, text);
    json_number(out, "score", p.earned);
    json_number(out, "execution_time", round(seconds_of(grade)));
    json_text(out, "visibility", "visible");
    json_text(out, "stdout_visibility", "hidden");
    fputs(", \"tests\": [", out);
    int number = 0;
    for (int i = 0; i < grade->count; ++i)
        for (int t = 0; t < grade->labs[i].count; ++t) {
            const struct test_result *test = &grade->labs[i].tests[t];
            if (test->status == STATUS_BLOCKED || test->status == STATUS_ERROR) continue;
            fputs(number++ ? ",\n" : "\n", out);
            gradescope_test(out, grade->labs[i].lab, test, number);
        }
    fputs("\n]}\n", out);
}
