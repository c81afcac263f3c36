// result.h - what became of one lab of one submission, and the file that keeps it. From these files alone
// all reports are made, so that an interrupted run goes on with what it has.
#ifndef RESULT_H
#define RESULT_H

#include "plan.h"
#include "scan.h"

enum status {
    STATUS_PASSED,
    STATUS_PARTLY,  // of speed: some of the points
    STATUS_FAILED,
    STATUS_BLOCKED,  // could not be tried on this machine: its points count for nobody
    STATUS_ERROR,    // the grader failed, not the submission: likewise, and the run says so
    STATUSES
};
const char *status_name(enum status status);

enum { RESULT_TEXT = 2000 };
#define RESULT_NO_GPU "Speed is measured on a GPU, and this run had none."  // of STATUS_BLOCKED

struct test_result {
    char name[TEST_NAME];
    enum kind kind;
    enum status status;
    double earned, possible;
    int hidden;
    int out_of_time;         // while it is graded: a run took too long
    char text[RESULT_TEXT];  // lines: what was wrong, what that usually means
};

struct lab_result {
    char lab[TEST_WORD];
    uint64_t key;  // of everything that the result depends on
    double seconds;
    struct test_result *tests;
    int count;
    int remarks;
    char remark[SCAN_REMARKS][160];
};

struct points {
    double earned, possible, blocked;
    int errors;
};

// What counts: earned of possible, and how many points could not be tried.
struct points result_points(const struct lab_result *result);

// Adds a line to the text of a result, if there is room.
void result_say(struct test_result *test, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Writes the file as a whole or not at all. Returns 0, or -1 with a sentence.
int result_write(const struct lab_result *result, const char *path, struct message *why);

// Returns 1 and the result if the file is there, whole and of that key; else 0. result_free frees it.
int result_read(struct lab_result *result, const char *path, uint64_t key);
void result_free(struct lab_result *result);

#endif
