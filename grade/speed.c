#define _DEFAULT_SOURCE
#include "speed.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "build.h"
#include "namespaces.h"

static const double full_from = 0.9, none_up_to = 0.45;
static const double clearly = 0.05;  // beyond a limit by more than this, one turn tells
enum { TURNS = 4 };

// What was measured of a group, in ms.
struct times {
    double best[SPEED_TESTS], best_of_reference[SPEED_TESTS];
};

static double share_of(double ratio) {
    if (!(ratio > none_up_to)) return 0;
    return ratio >= full_from ? 1 : (ratio - none_up_to) / (full_from - none_up_to);
}

// The times in the folder's out.json, where they are less than those in `best`.
static void read_times(const char *folder, const struct speed_group *group, double *best) {
    char path[MAX_PATH], key[2 * TEST_WORD];
    struct message why = {""};
    char *text = text_path(path, &why, "%s/out.json", folder) == 0 ? text_read(path, 1 << 20, &why) : NULL;
    for (int i = 0; i < group->count && text; ++i) {
        snprintf(key, sizeof key, "{\"kernel\": \"%s\", \"ms\": ", group->test[i]->kernel);
        char *at = strstr(text, key);
        double ms = at ? strtod(at + strlen(key), NULL) : NAN;
        if (ms > 0) best[i] = fmin(best[i], ms);
    }
    free(text);
}

static int move_results(const char *folder, const char *from, const char *to) {
    char a[MAX_PATH], b[MAX_PATH];
    struct message why = {""};
    if (text_path(a, &why, "%s/%s", folder, from) != 0 || text_path(b, &why, "%s/%s", folder, to) != 0)
        return -1;
    text_remove_folder(b);
    return rename(a, b);
}

// Once the submission and then the reference solution, with nothing else on the GPU. Returns 1 with the
// submission's results in folder/kept, or 0 with what was wrong in `result`.
static int take_turn(const struct grader *g, const struct workshop *w, const struct speed_group *group,
                     const char *folder, struct times *times, struct test_result *result) {
    static struct test_result of_reference;
    struct gate_alone alone;
    char reference[MAX_PATH];
    struct message why = {""};
    memset(&of_reference, 0, sizeof of_reference);
    if (build_reference_path(g, group->test[0]->lab, reference, &why) != 0) return 0;
    gate_pass_alone(&g->gpu_runs, &alone);
    int ran = run_program(g, w, group->test, group->count, w->gpu_program, folder, result);
    if (ran) {
        read_times(folder, group, times->best);
        ran = move_results(folder, "out", "kept") == 0 &&
              run_program(g, w, group->test, group->count, reference, folder, &of_reference);
        read_times(folder, group, times->best_of_reference);
        if (!ran) {
            result->status = STATUS_ERROR;
            result_say(result, "The grader failed: the reference solution did not run. %s",
                       of_reference.text);
        }
    }
    gate_leave_alone(&alone);
    return ran;
}

// The checker needs seconds for each kernel, so that all are judged at the same time. What is wrong with one
// is in its result, and its status is STATUS_PARTLY as long as nothing is.
static void judge_all(const struct grader *g, const struct speed_group *group, const char *folder) {
    for (int i = 0; i < group->count; ++i) {
        if (group->result[i]->status != STATUS_PARTLY) continue;
        fflush(NULL);
        pid_t judge = fork();
        if (judge == 0) namespaces_end_with_parent();
        if (judge <= 0 && !run_judge(g, group->test[i], folder, "kept", group->result[i]) &&
            group->result[i]->status == STATUS_PARTLY)
            group->result[i]->status = STATUS_FAILED;
        if (judge == 0) _exit(0);
    }
    while (wait(NULL) > 0 || errno == EINTR) continue;
}

// Whether more turns would change no points.
static int is_clear(const struct speed_group *group, const struct times *times) {
    for (int i = 0; i < group->count; ++i) {
        double ratio = times->best_of_reference[i] / times->best[i];
        int is = ratio >= full_from * (1 + clearly) || ratio <= none_up_to * (1 - clearly);
        if (!is && group->result[i]->status == STATUS_PARTLY) return 0;
    }
    return 1;
}

static void settle(const struct test *test, double ms, double reference_ms, struct test_result *result) {
    double share = 0;
    if (result->status == STATUS_PARTLY) {
        result->status = STATUS_FAILED;
        if (!isfinite(ms) || !isfinite(reference_ms)) {
            result_say(result, "There is no time to compare.");
        } else {
            share = share_of(reference_ms / ms);
            result_say(result,
                       "%.4g ms, and the reference solution takes %.4g ms: %.2f of its speed (all points "
                       "from %.2f on)",
                       ms, reference_ms, reference_ms / ms, full_from);
        }
    }
    run_end(NULL, test, share, result);
}

// One by one, after the whole group came to no good: what is wrong with one kernel is not the others' fault.
static void split(const struct grader *g, const struct workshop *w, const struct speed_group *group) {
    for (int i = 0; i < group->count; ++i) {
        struct speed_group one = {{group->test[i]}, {group->result[i]}, 1};
        speed_run(g, w, &one);
    }
}

void speed_run(const struct grader *g, const struct workshop *w, const struct speed_group *group) {
    static struct test_result said;
    char folder[MAX_PATH];
    struct times times;
    memset(&said, 0, sizeof said);
    said.status = STATUS_FAILED;
    int good = run_begin(g, w, group->test[0], folder, &said) == 0;
    const int begun = good;
    for (int i = 0; i < SPEED_TESTS; ++i) times.best[i] = times.best_of_reference[i] = INFINITY;
    for (int i = 0; i < group->count; ++i) group->result[i]->status = STATUS_PARTLY;
    for (int turn = 0; turn < TURNS && good; ++turn) {
        good = take_turn(g, w, group, folder, &times, &said);
        if (good) judge_all(g, group, folder);
        if (good && is_clear(group, &times)) break;
    }
    if (begun) text_remove_folder(folder);
    if (!good && group->count > 1) return split(g, w, group);
    for (int i = 0; i < group->count; ++i) {
        struct test_result *result = group->result[i];
        if (!good) {
            result->status = said.status, result->out_of_time = said.out_of_time;
            result_say(result, "%s", said.text);
        }
        settle(group->test[i], times.best[i], times.best_of_reference[i], result);
    }
}
