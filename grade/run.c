#define _DEFAULT_SOURCE
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"

enum { MAX_WORDS = 80, RUNS_MB = 4096, CHECK_WALL = 300 };

struct words {
    const char *word[MAX_WORDS + 1];
    int count;
    char copy[TEST_OPTIONS];
};

static void add(struct words *w, const char *word) {
    if (w->count < MAX_WORDS) w->word[w->count++] = word;
}

// The options of a case; without those that say how inputs are made, for a program that loads them.
static void add_options(struct words *w, const char *options, int of_inputs) {
    char *rest = NULL;
    snprintf(w->copy, sizeof w->copy, "%s", options);
    for (char *word = strtok_r(w->copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (!of_inputs && (strcmp(word, "--inputs") == 0 || strcmp(word, "--seed") == 0))
            strtok_r(NULL, " ", &rest);
        else
            add(w, word);
    }
}

static int starts_with_folder(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

void run_hide(const struct grader *g, struct limits *limits) {
    const char *const paths[] = {g->hidden, g->out, g->submissions};
    int count = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; ++i) {
        struct stat info;
        // Not what a submission is compiled with and run from.
        if (!paths[i] || starts_with_folder(g->root, paths[i]) || starts_with_folder(g->tools, paths[i]) ||
            (g->gpu && starts_with_folder(g->gpu, paths[i])) || stat(paths[i], &info) != 0 ||
            !S_ISDIR(info.st_mode))
            continue;
        limits->hide[count++] = paths[i];
    }
}

// ---------------------------------------------------------------- the checker

// The text behind "KEY: " in a line of what the checker printed.
static const char *said(const char *line, const char *key) {
    size_t length = strlen(key);
    return strncmp(line, key, length) == 0 && strncmp(line + length, ": ", 2) == 0 ? line + length + 2 : NULL;
}

static int is_backward(const struct test *test) { return strcmp(test->judged, "backward") == 0; }

static void grader_failed(struct test_result *result, const char *what) {
    result->status = STATUS_ERROR;
    result_say(result, "The grader failed: %s", what);
}

static int run_tool(const struct grader *g, struct words *w, const char *folder, struct outcome *o,
                    struct test_result *result) {
    char tool[MAX_PATH];
    struct message why = {""};
    struct limits limits = {.wall_seconds = CHECK_WALL};
    if (text_path(tool, &why, "%s/grade/grade_check", g->tools) != 0) return -1;
    w->word[0] = tool;
    w->word[w->count] = NULL;
    if (confine_run(w->word, folder, &limits, o, &why) != 0) {
        grader_failed(result, why.text);
        return -1;
    }
    return 0;
}

static int make_inputs(const struct grader *g, const struct test *test, const char *folder,
                       struct test_result *result) {
    struct words w = {.count = 0};
    static struct outcome o;
    add(&w, ""), add(&w, "inputs"), add(&w, "in");
    if (is_backward(test)) add(&w, "--backward");
    add_options(&w, test->options, 1);
    if (run_tool(g, &w, folder, &o, result) != 0) return -1;
    if (o.exit_code == 0) return 0;
    grader_failed(result, o.output);
    return -1;
}

int run_judge(const struct grader *g, const struct test *test, const char *folder, const char *results,
              struct test_result *result) {
    struct words w = {.count = 0};
    static struct outcome o;
    add(&w, ""), add(&w, test->judged), add(&w, test->kernel), add(&w, results);
    add_options(&w, test->options, 1);
    if (run_tool(g, &w, folder, &o, result) != 0) return 0;
    if (o.exit_code == 0 && said(o.output, "verdict")) return 1;
    if (o.exit_code != 1) {
        grader_failed(result, o.output);
        return 0;
    }
    char *at = o.output;
    for (char *line; (line = text_line(&at)) != NULL;) {
        const char *detail = said(line, "detail"), *means = said(line, "means");
        if (detail) result_say(result, "%s", detail);
        if (means) result_say(result, "What this usually means: %s.", means);
    }
    return 0;
}

// ---------------------------------------------------------------- the run

static void last_lines(struct test_result *result, const char *output) {
    size_t length = strlen(output), from = length;
    for (int lines = 0; from > 0 && lines < 6 && length - from < 700; --from)
        lines += output[from - 1] == '\n' && from < length;
    if (length > 0) result_say(result, "What it printed last: %s", output + from + (output[from] == '\n'));
}

// Whether the results that the checker will read are plain files in a plain folder, where they are at all.
static int only_files(const struct test *test, const char *folder, struct test_result *result) {
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    char path[MAX_PATH];
    struct message why = {""};
    struct stat info;
    int plain =
        text_path(path, &why, "%s/out", folder) == 0 && lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
    for (size_t i = 0; i < sizeof names / sizeof *names && plain; ++i)
        plain = text_path(path, &why, "%s/out/%s_%s.npy", folder, names[i], test->kernel) == 0 &&
                (lstat(path, &info) != 0 || S_ISREG(info.st_mode));
    if (!plain) result_say(result, "Its results are not plain files.");
    return plain;
}

int run_on_gpu(const struct grader *g, const struct test *test) {
    return g->gpu && (test->kind == KIND_CORRECT || test->kind == KIND_SPEED);
}

// The program says that it can use no GPU. The reference solution knows whether that is so: else a submission
// could have points left out that it cannot get.
static void say_no_gpu(const struct grader *g, const struct workshop *w, const struct test *test,
                       const char *program, const char *folder, const char *said,
                       struct test_result *result) {
    static struct test_result of_reference;
    char reference[MAX_PATH];
    struct message why = {""};
    if (build_reference_path(g, test->lab, reference, &why) != 0) return grader_failed(result, why.text);
    memset(&of_reference, 0, sizeof of_reference);
    if (strcmp(program, reference) != 0) run_program(g, w, &test, 1, reference, folder, &of_reference);
    if (strcmp(program, reference) == 0 || of_reference.status == STATUS_BLOCKED) {
        result->status = STATUS_BLOCKED;
        result_say(result, "%s", said);
    } else {
        result_say(
            result,
            "The program says that it can use no GPU here (exit code 77), where the reference solution "
            "can.");
    }
}

static void prepare_words(struct words *w, const char *program, const struct test *const *tests, int count) {
    const struct test *test = tests[0];
    memset(w, 0, sizeof *w);
    add(w, program), add(w, "--load"), add(w, "in"), add(w, "--outputs"), add(w, "out");
    for (int i = 0; i < count; ++i) add(w, "--kernel"), add(w, tests[i]->kernel);
    if (test->kind == KIND_SANITIZE) add(w, "--sanitize");
    if (test->kind == KIND_IO) add(w, "--profile");
    if (test->kind == KIND_SPEED) add(w, "--bench");
    if (test->kind == KIND_IO || test->kind == KIND_SPEED) add(w, "--json"), add(w, "out.json");
    add_options(w, test->options, 0);
    w->word[w->count] = NULL;
}

// What an earlier run left.
static int remove_results(const char *folder) {
    char path[MAX_PATH];
    struct message why = {""};
    if (text_path(path, &why, "%s/out", folder) != 0) return -1;
    text_remove_folder(path);
    if (text_path(path, &why, "%s/out.json", folder) != 0) return -1;
    unlink(path);
    return 0;
}

// Of a run that has ended by itself. Returns 1 if there are results.
static int look_at_results(const struct test *test, const char *folder, struct test_result *result) {
    char path[MAX_PATH];
    struct message why = {""};
    if (text_path(path, &why, "%s/out/o_%s.npy", folder, test->kernel) == 0 && access(path, F_OK) == 0)
        return only_files(test, folder, result);
    result_say(
        result,
        "The program ended with exit code 0, but wrote no results: something in it ended it before the "
        "kernel's results were written. What it prints about itself does not count.");
    return 0;
}

int run_program(const struct grader *g, const struct workshop *w, const struct test *const *tests, int count,
                const char *program, const char *folder, struct test_result *result) {
    const struct test *test = tests[0];
    struct words words;
    static struct outcome o;
    struct message why = {""};
    int on_gpu = run_on_gpu(g, test);
    struct limits limits = {.cpu_seconds = g->seconds,
                            .wall_seconds = 4 * g->seconds + 20,  // others may use the processors, too
                            .memory_mb = on_gpu ? 0 : RUNS_MB,    // a driver reserves any number of addresses
                            .file_mb = on_gpu ? RUN_GPU_FILES_MB : RUN_FILES_MB,
                            .processes = 64,
                            .confined = 1,
                            .shared = on_gpu ? g->gpu_shared : 0,
                            .slot = w->slot,
                            .writable = folder};
    char ended[200];
    run_hide(g, &limits);
    prepare_words(&words, program, tests, count);
    if (remove_results(folder) != 0) return 0;
    int place = on_gpu && test->kind != KIND_SPEED ? gate_pass(&g->gpu_runs) : -1;
    int status = confine_run(words.word, folder, &limits, &o, &why);
    gate_leave(place);
    if (status != 0) {
        grader_failed(result, why.text);
        return 0;
    }
    confine_describe(&o, &limits, ended, sizeof ended);
    if (ended[0]) {
        result->out_of_time = confine_out_of_time(&o, &limits);
        result_say(result, "The program did not come to its end: %s.", ended);
        last_lines(result, o.output);
    } else if (on_gpu && o.exit_code == 77) {
        say_no_gpu(g, w, test, program, folder, o.output, result);
    } else if (o.exit_code != 0) {
        result_say(result, o.exit_code == 2 ? "The program refuses this case."
                                            : "The program says that it is wrong.");
        last_lines(result, o.output);
    } else {
        int there = 1;
        for (int i = 0; i < count && there; ++i) there = look_at_results(tests[i], folder, result);
        return there;
    }
    return 0;
}

// ---------------------------------------------------------------- budgets of bytes

static int within_budget(const struct grader *g, const struct test *test, const char *folder,
                         struct test_result *result) {
    char script[MAX_PATH], table[MAX_PATH], counts[MAX_PATH];
    struct words w = {.count = 0};
    static struct outcome o;
    struct message why = {""};
    struct limits limits = {.wall_seconds = CHECK_WALL};
    if (text_path(script, &why, "%s/tests/io/io.sh", g->root) != 0 ||
        text_path(table, &why, "%s/grade/io/%s.io", g->root, test->lab) != 0 ||
        text_path(counts, &why, "%s/out.json", folder) != 0)
        return 0;
    add(&w, "/bin/sh"), add(&w, script), add(&w, "--counted"), add(&w, counts), add(&w, "--kernel");
    add(&w, test->kernel), add(&w, table);
    add_options(&w, test->options, 1);
    w.word[w.count] = NULL;
    if (confine_run(w.word, folder, &limits, &o, &why) != 0) {
        grader_failed(result, why.text);
        return 0;
    }
    if (o.exit_code == 0) return 1;
    char *at = o.output;
    for (char *line; (line = text_line(&at)) != NULL;)
        if (strstr(line, "measured") || strstr(line, "not understood")) result_say(result, "%s", line);
    if (!result->text[0]) grader_failed(result, o.output);
    return 0;
}

// ---------------------------------------------------------------- the test

static int make_folder(const struct workshop *w, char folder[MAX_PATH], struct test_result *result) {
    struct message why = {""};
    if (text_path(folder, &why, "%s/run%d", w->folder, w->slot) != 0 ||
        text_make_folder(folder, 0700, &why) != 0) {
        grader_failed(result, why.text);
        return -1;
    }
    return 0;
}

// The folder and the inputs in it are the run's own user's, if it has one.
static int hand_over(const struct workshop *w, const char *folder, struct test_result *result) {
    static const char *const names[] = {"", "/in", "/in/q.npy", "/in/k.npy", "/in/v.npy", "/in/do.npy"};
    unsigned user = confine_user(w->slot);
    for (size_t i = 0; i < sizeof names / sizeof *names && geteuid() == 0; ++i) {
        char path[MAX_PATH];
        struct message why = {""};
        if (text_path(path, &why, "%s%s", folder, names[i]) != 0 ||
            (chown(path, user, user) != 0 && errno != ENOENT)) {
            grader_failed(result, "the inputs cannot be given to the user that the run has.");
            return -1;
        }
    }
    return 0;
}

int run_begin(const struct grader *g, const struct workshop *w, const struct test *test,
              char folder[MAX_PATH], struct test_result *result) {
    if (make_folder(w, folder, result) != 0) return -1;
    if (make_inputs(g, test, folder, result) == 0 && hand_over(w, folder, result) == 0) return 0;
    text_remove_folder(folder);
    return -1;
}

void run_end(const char *folder, const struct test *test, double share, struct test_result *result) {
    if (folder) text_remove_folder(folder);
    if (result->status == STATUS_FAILED && share > 0)
        result->status = share < 1 ? STATUS_PARTLY : STATUS_PASSED;
    if (result->status == STATUS_PASSED || result->status == STATUS_PARTLY)
        result->earned = share * test->points;
}

void run_test(const struct grader *g, const struct workshop *w, const struct test *test,
              struct test_result *result) {
    char folder[MAX_PATH];
    const char *program = run_on_gpu(g, test) ? w->gpu_program : w->program;
    if (run_begin(g, w, test, folder, result) != 0) return;
    int good =
        run_program(g, w, &test, 1, program, folder, result) && run_judge(g, test, folder, "out", result);
    if (good && test->kind == KIND_IO) good = within_budget(g, test, folder, result);
    run_end(folder, test, good, result);
}
