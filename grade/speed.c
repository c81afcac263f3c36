#define _DEFAULT_SOURCE
#include "speed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "gate.h"

static const double full_from = 0.9, none_up_to = 0.45;
static const double clear = 0.05;  // beyond a limit by more than this, one turn tells
enum { TURNS = 4 };

double speed_share_of(double ratio) {
    if (!(ratio > none_up_to)) return 0;
    return ratio >= full_from ? 1 : (ratio - none_up_to) / (full_from - none_up_to);
}

// The time in the folder's out.json, in ms; NaN if there is none.
static double read_time(const char *folder) {
    char path[MAX_PATH];
    struct message why = {""};
    if (text_path(path, &why, "%s/out.json", folder) != 0) return NAN;
    char *text = text_read(path, 1 << 20, &why);
    char *at = text ? strstr(text, "\"ms\": ") : NULL;
    double ms = at ? strtod(at + strlen("\"ms\": "), NULL) : NAN;
    free(text);
    return ms > 0 ? ms : NAN;
}

static int move_results(const char *folder, const char *from, const char *to) {
    char a[MAX_PATH], b[MAX_PATH];
    struct message why = {""};
    if (text_path(a, &why, "%s/%s", folder, from) != 0 || text_path(b, &why, "%s/%s", folder, to) != 0)
        return -1;
    text_remove_folder(b);
    return rename(a, b);
}

// Once the submission and then the reference solution, with nothing else on the GPU; then the submission's
// results are looked at. Returns 1 and the times, or 0 with what was wrong in `result`.
static int take_turn(const struct grader *g, const struct workshop *w, const struct test *test,
                     const char *folder, double *ms, double *reference_ms, struct test_result *result) {
    static struct test_result of_reference;
    static struct gate_alone alone;
    char reference[MAX_PATH];
    struct message why = {""};
    memset(&of_reference, 0, sizeof of_reference);
    if (build_reference_path(g, test->lab, reference, &why) != 0) return 0;
    gate_pass_alone(&g->gpu_runs, &alone);
    int ran = run_program(g, w, test, w->gpu_program, folder, result), moved = 0, reference_ran = 0;
    if (ran) {
        *ms = read_time(folder);
        moved = move_results(folder, "out", "kept") == 0;
        reference_ran = moved && run_program(g, w, test, reference, folder, &of_reference);
        *reference_ms = read_time(folder);
    }
    gate_leave_alone(&alone);
    if (!ran) return 0;
    if (!reference_ran || move_results(folder, "kept", "out") != 0) {
        result->status = STATUS_ERROR;
        result_say(result, "The grader failed: the reference solution did not run. %s", of_reference.text);
        return 0;
    }
    return run_judge(g, test, folder, result);
}

double speed_share(const struct grader *g, const struct workshop *w, const struct test *test,
                   const char *folder, struct test_result *result) {
    double best = INFINITY, best_reference = INFINITY, ratio = NAN;
    for (int turn = 0; turn < TURNS; ++turn) {
        double ms = NAN, reference_ms = NAN;
        if (!take_turn(g, w, test, folder, &ms, &reference_ms, result)) return 0;
        best = fmin(best, ms), best_reference = fmin(best_reference, reference_ms);
        ratio = best_reference / best;
        // Time alone on a GPU is scarce, and where it is clear a turn more would change nothing.
        if (ratio >= full_from * (1 + clear) || ratio <= none_up_to * (1 - clear)) break;
    }
    if (!isfinite(best) || !isfinite(best_reference)) {
        result_say(result, "There is no time to compare.");
        return 0;
    }
    result_say(
        result,
        "%.4g ms, and the reference solution takes %.4g ms: %.2f of its speed (all points from %.2f on)",
        best, best_reference, ratio, full_from);
    return speed_share_of(ratio);
}
