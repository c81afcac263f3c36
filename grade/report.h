// report.h - what a grading tells: to a person, and to other programs.
#ifndef GRADE_REPORT_H
#define GRADE_REPORT_H

#include <stdio.h>

#include "result.h"

// One submission: its labs in the order of the plan.
struct grade {
    const char *name;
    struct lab_result *labs;
    int count;
    const char *blame;  // why it could not be graded, or not all of it; null: it was
};

struct points grade_points(const struct grade *grade);

// Markdown for the student: points, and of every test that did not pass what was wrong. Of hidden tests the
// name and the meaning, and not the numbers.
void report_write_markdown(FILE *out, const struct grade *grade);
// For the instructor: what the scan of the sources found. Nothing if it found nothing.
void report_write_remarks(FILE *out, const struct grade *grade);

void report_write_json(FILE *out, const struct grade *grade);
// JUnit XML, a test suite a lab, as CI services and editors show it.
void report_write_junit(FILE *out, const struct grade *grade);
// results.json of Gradescope's autograders.
void report_write_gradescope(FILE *out, const struct grade *grade);

// scores.csv: a head and a line for each, in the order given.
void report_write_scores(FILE *out, const struct grade *grades, int count, const char *const *labs,
                         int lab_count);

// The text of a test as a student may see it, which the caller frees; null without memory.
char *report_visible_text(const struct test_result *test);

#endif
