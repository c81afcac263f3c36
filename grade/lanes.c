#define _DEFAULT_SOURCE
#include "lanes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "namespaces.h"
#include "speed.h"

// The tests of a lab in the order of its report: speed at the end, as it needs the verdicts of the others.
struct board {
    const struct test **of;
    struct test_result *results;  // in memory that the processes of the lanes share
    int count;
};

static size_t board_bytes(const struct board *b) { return (size_t)b->count * sizeof *b->results + 1; }

static void begin_test(struct test_result *t, const struct test *test) {
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", test->name);
    t->kind = test->kind, t->possible = test->points, t->hidden = test->hidden;
    t->status = STATUS_ERROR;
    result_say(t, "The grader failed: what ran this test ended before its end.");
}

static int make_board(const struct grader *g, const char *lab, struct board *b, struct message *why) {
    memset(b, 0, sizeof *b);
    b->of = malloc((size_t)g->plan.count * sizeof *b->of + 1);
    if (!b->of) {
        fail(why, "There is no memory left.");
        return -1;
    }
    for (int speed = 0; speed < 2; ++speed)
        for (int i = 0; i < g->plan.count; ++i) {
            const struct test *test = &g->plan.tests[i];
            if (strcmp(test->lab, lab) == 0 && (test->kind == KIND_SPEED) == speed) b->of[b->count++] = test;
        }
    b->results = mmap(NULL, board_bytes(b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b->results == MAP_FAILED) {
        free(b->of);
        fail(why, "There is no memory left.");
        return -1;
    }
    for (int i = 0; i < b->count; ++i) begin_test(&b->results[i], b->of[i]);
    return 0;
}

// ---------------------------------------------------------------- a test

// What became of the tests of this kernel that only ask for right results: STATUS_PASSED if all are passed,
// STATUS_BLOCKED if some could not be tried here and none is failed.
static enum status status_of_kernel(const struct board *b, const char *kernel) {
    enum status status = STATUS_PASSED;
    for (int i = 0; i < b->count; ++i) {
        if (b->of[i]->kind != KIND_CORRECT || strcmp(b->of[i]->kernel, kernel) != 0 ||
            b->results[i].status == STATUS_PASSED)
            continue;
        if (b->results[i].status == STATUS_FAILED) return STATUS_FAILED;
        status = STATUS_BLOCKED;
    }
    return status;
}

// How many tests of this kernel ran out of time. A kernel that hangs does so in all of them, and a class is
// waiting.
static int times_out_of_time(const struct board *b, const char *kernel) {
    int times = 0;
    for (int i = 0; i < b->count; ++i)
        times += b->results[i].out_of_time && strcmp(b->of[i]->kernel, kernel) == 0;
    return times;
}

// Returns 1 if it is a test of speed that is still to be run.
static int do_test(const struct grader *g, const struct workshop *w, const char *broken,
                   const struct board *b, int i) {
    const struct test *test = b->of[i];
    struct test_result *t = &b->results[i];
    int speed = test->kind == KIND_SPEED;
    t->status = STATUS_FAILED, t->text[0] = '\0';
    if (speed && !g->gpu) {
        t->status = STATUS_BLOCKED;
        result_say(t, "%s", RESULT_NO_GPU);
    } else if (run_on_gpu(g, test) && g->no_gpu[0]) {
        t->status = STATUS_BLOCKED;
        result_say(t, "%s", g->no_gpu);
    } else if (broken) {
        result_say(t, "%s", broken);
    } else if (speed && status_of_kernel(b, test->kernel) != STATUS_PASSED) {
        t->status = status_of_kernel(b, test->kernel);
        result_say(t, t->status == STATUS_BLOCKED
                          ? "Some tests of this kernel could not be tried here, and so not its speed."
                          : "Speed counts once all results of this kernel are right.");
    } else if (times_out_of_time(b, test->kernel) >= 2) {
        result_say(t, "It was not run: two other tests of this kernel took too long.");
    } else if (speed) {
        return 1;
    } else {
        int place = gate_pass(&g->jobs);
        run_test(g, w, test, t);
        gate_leave(place);
    }
    return 0;
}

// ---------------------------------------------------------------- lanes

static int is_first_of_kernel(const struct board *b, int i) {
    for (int j = 0; j < i; ++j)
        if (strcmp(b->of[j]->kernel, b->of[i]->kernel) == 0) return 0;
    return 1;
}

// All tests but those of speed of the kernel that test `first` is of.
static void do_lane(const struct grader *g, const struct workshop *w, const struct board *b, int first) {
    struct workshop own = *w;
    own.slot = confine_reserve();
    if (own.slot < 0) return;  // and the tests say that the grader failed
    for (int i = first; i < b->count; ++i)
        if (b->of[i]->kind != KIND_SPEED && strcmp(b->of[i]->kernel, b->of[first]->kernel) == 0)
            do_test(g, &own, NULL, b, i);
}

static int start_lanes(const struct grader *g, const struct workshop *w, const struct board *b,
                       struct message *why) {
    for (int i = 0; i < b->count; ++i) {
        if (b->of[i]->kind == KIND_SPEED || !is_first_of_kernel(b, i)) continue;
        fflush(NULL);
        pid_t lane = fork();
        if (lane < 0) return fail(why, "There is no process left: %s.", strerror(errno));
        if (lane > 0) continue;
        namespaces_end_with_parent();
        do_lane(g, w, b, i);
        _exit(0);
    }
    return 0;
}

static void do_speed(const struct grader *g, const struct workshop *w, const struct board *b) {
    char *waits = calloc((size_t)b->count + 1, 1);
    for (int i = 0; i < b->count && waits; ++i)
        waits[i] = (char)(b->of[i]->kind == KIND_SPEED && do_test(g, w, NULL, b, i));
    for (int i = 0; i < b->count && waits; ++i) {
        struct speed_group group = {.count = 0};
        for (int j = i; j < b->count && waits[i] && group.count < SPEED_TESTS; ++j) {
            if (!waits[j] || strcmp(b->of[j]->options, b->of[i]->options) != 0) continue;
            group.test[group.count] = b->of[j], group.result[group.count++] = &b->results[j];
            if (j > i) waits[j] = 0;
        }
        if (group.count == 0) continue;
        int place = gate_pass(&g->jobs);
        speed_run(g, w, &group);
        gate_leave(place);
    }
    free(waits);
}

int lanes_run(const struct grader *g, const struct workshop *w, const char *broken, struct lab_result *result,
              struct message *why) {
    struct board b;
    int status = 0;
    if (make_board(g, result->lab, &b, why) != 0) return -1;
    if (broken)
        for (int i = 0; i < b.count; ++i) do_test(g, w, broken, &b, i);
    else
        status = start_lanes(g, w, &b, why);
    while (wait(NULL) > 0 || errno == EINTR) continue;
    if (status == 0 && !broken) do_speed(g, w, &b);
    result->tests = malloc(board_bytes(&b));
    if (result->tests) memcpy(result->tests, b.results, board_bytes(&b));
    result->count = result->tests ? b.count : 0;
    if (!result->tests) status = fail(why, "There is no memory left.");
    munmap(b.results, board_bytes(&b));
    free(b.of);
    return status;
}
