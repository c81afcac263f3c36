// grader.h - grading one lab of one submission.
#ifndef GRADER_H
#define GRADER_H

#include "confine.h"
#include "gate.h"
#include "result.h"
#include "text.h"

enum { SOURCE_BYTES = 1 << 20 };  // of a lab, at most

// What all gradings of a run share.
struct grader {
    const char *root;    // the instructor's tree
    const char *tools;   // its build folder of the cpu backend
    const char *gpu;     // and of the gpu backend; null: nothing runs on a GPU
    const char *out;     // where results go
    const char *hidden;  // the hidden cases; null: none
    const char *submissions;
    struct plan plan;
    uint64_t tools_checksum;  // of what compiles, runs and judges, the headers of common/ included
    struct gate jobs;         // everything that takes a processor passes here,
    struct gate gpu_runs;     // and every program that uses the GPU
    char gpu_name[64];        // of the GPU that was found
    char no_gpu[400];         // why there is none, a sentence; else empty
    unsigned gpu_shared;      // for struct limits: what runs on the GPU are not kept apart by
    int slot;                 // of this process (confine_reserve); workers have their own
    int seconds;              // of CPU time for a run
    int half_only;            // 1: no test is in bf16, and so nothing is compiled for it
};

// 1 if something runs on a GPU.
int grader_has_gpu(const struct grader *g);

// The source of a lab in a submission: SUBMISSION/LAB/LAB.cu, or SUBMISSION/LAB.cu, or SUBMISSION itself.
// Returns 1 and the text, which is the caller's; 0 if there is none; -1 with a sentence if it cannot be read.
int grader_find_source(const char *submission, const char *lab, char **source, struct message *why);

// What the result of a source depends on.
uint64_t grader_key(const struct grader *g, const char *lab, const char *source);

// Grades it; `source` null: the submission has none, and gets no points. `slot`: see confine.h. Returns 0 and
// the result, or -1 with a sentence if the grader failed; result_free frees it either way.
int grader_run(const struct grader *g, const char *lab, const char *source, int slot,
               struct lab_result *result, struct message *why);

#endif
