// grader.h - grading one lab of one submission.
#ifndef GRADER_H
#define GRADER_H

#include "confine.h"
#include "result.h"
#include "text.h"

// What all gradings of a run share.
struct grader {
    const char *root;   // the instructor's tree
    const char *tools;  // its build folder of the cpu backend
    const char *gpu;    // and of the gpu backend; null: nothing runs on a GPU
    const char *out;    // where results go
    const char
        *references;     // where the reference solutions' programs are; not in `out`, which runs do not see
    const char *hidden;  // the hidden cases; null: none
    const char *submissions;
    struct plan plan;
    uint64_t tools_checksum;
    int slot;       // of this process (confine_reserve); workers have their own
    int seconds;    // of CPU time for a run
    int half_only;  // 1: no test is in bf16, and so nothing is compiled for it
};

// The source of a lab in a submission: SUBMISSION/LAB/LAB.cu, or SUBMISSION/LAB.cu, or SUBMISSION itself.
// Returns 1 and the text, which is the caller's; 0 if there is none; -1 with a sentence if it cannot be read.
int grader_find_source(const char *submission, const char *lab, char **source, struct message *why);

// What the result of a source depends on.
uint64_t grader_key(const struct grader *g, const char *lab, const char *source);

// Grades it; `source` null: the submission has none, and gets no points. `slot`: see confine.h. Returns 0 and
// the result, or -1 with a sentence if the grader failed; result_free frees it either way.
int grader_run(const struct grader *g, const char *lab, const char *source, int slot,
               struct lab_result *result, struct message *why);

// Compiles the reference solutions for the speed tests of these labs into g->references. Only where
// something runs on a GPU.
int grader_build_reference(const struct grader *g, const char *lab, struct message *why);

#endif
