#define _DEFAULT_SOURCE
#include "grader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

enum { SOURCE_BYTES = 1 << 20, COMPILE_CPU = 300, COMPILE_WALL = 580, COMPILE_MB = 6144, COMPILED_MB = 256 };

// ---------------------------------------------------------------- sources

static int is_file(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static int is_link(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

static int names_lab(const char *path, const char *lab) {
    const char *name = strrchr(path, '/');
    size_t length = strlen(lab);
    name = name ? name + 1 : path;
    return strncmp(name, lab, length) == 0 && strcmp(name + length, ".cu") == 0;
}

int grader_find_source(const char *submission, const char *lab, char **source, struct message *why) {
    char path[MAX_PATH], folder[MAX_PATH];
    *source = NULL;
    if (text_path(folder, why, "%s/%s", submission, lab) != 0 ||
        text_path(path, why, "%s/%s/%s.cu", submission, lab, lab) != 0)
        return -1;
    int found = is_file(path);
    if (found && is_link(folder)) return fail(why, "%s is a link, and a submission has folders.", folder);
    if (!found && text_path(path, why, "%s/%s.cu", submission, lab) != 0) return -1;
    found = found || is_file(path);
    if (!found && is_file(submission) && names_lab(submission, lab)) {
        if (text_path(path, why, "%s", submission) != 0) return -1;
        found = 1;
    }
    if (!found) return 0;
    *source = text_read(path, SOURCE_BYTES, why);
    return *source ? 1 : -1;
}

uint64_t grader_key(const struct grader *g, const char *lab, const char *source) {
    static const char none[] = "no source";
    uint64_t key = text_checksum(TEXT_CHECKSUM, lab, strlen(lab));
    key = text_checksum(key, &g->plan.checksum, sizeof g->plan.checksum);
    key = text_checksum(key, &g->tools_checksum, sizeof g->tools_checksum);
    key = text_checksum(key, &g->seconds, sizeof g->seconds);
    return text_checksum(key, source ? source : none, source ? strlen(source) : sizeof none);
}

// The lab's own source, for the scan.
static char *read_original(const struct grader *g, const char *lab, struct message *why) {
    char path[MAX_PATH];
    if (text_path(path, why, "%s/%s/%s.cu", g->root, lab, lab) != 0) return NULL;
    return text_read(path, SOURCE_BYTES, why);
}

// ---------------------------------------------------------------- building

static int write_source(const struct workshop *w, const char *lab, const char *source, struct message *why) {
    char folder[MAX_PATH], path[MAX_PATH];
    unsigned user = confine_user(w->slot);
    if (text_path(folder, why, "%s/build", w->folder) != 0) return -1;
    text_remove_folder(folder);
    if (text_path(path, why, "%s/build/%s", w->folder, lab) != 0 || text_make_folder(path, 0755, why) != 0)
        return -1;
    if (geteuid() == 0 && (chown(folder, user, user) != 0 || chown(path, user, user) != 0))
        return fail(why, "%s cannot be given to another user: %s.", folder, strerror(errno));
    if (text_path(path, why, "%s/build/%s/%s.cu", w->folder, lab, lab) != 0) return -1;
    FILE *file = fopen(path, "w");
    if (!file) return fail(why, "%s cannot be written: %s.", path, strerror(errno));
    int good = fputs(source, file) >= 0;
    return fclose(file) == 0 && good ? 0 : fail(why, "%s could not be written to its end.", path);
}

// The lines of the compiler that say what is wrong.
static void say_errors(struct test_result *of_build, char *output) {
    int lines = 0;
    char *at = output;
    for (char *line; lines < 5 && (line = text_line(&at)) != NULL;)
        if (strstr(line, "error") || strstr(line, "undefined reference") || strstr(line, "simt-rewrite"))
            result_say(of_build, "%.300s", line), ++lines;
}

// Compiles it with the flags of one backend. Returns 1 and the program; 0 if it does not compile, and why is
// in of_build; -1 if the grader failed.
static int compile(const struct grader *g, const char *tools, const struct workshop *w, const char *lab,
                   const char *source, char program[MAX_PATH], struct test_result *of_build,
                   struct message *why) {
    char script[MAX_PATH], folder[MAX_PATH], ended[200];
    static struct outcome o;
    program[0] = '\0';
    if (write_source(w, lab, source, why) != 0 || text_path(script, why, "%s/grade/compile.sh", tools) != 0 ||
        text_path(folder, why, "%s/build", w->folder) != 0)
        return -1;
    struct limits limits = {.cpu_seconds = COMPILE_CPU,
                            .wall_seconds = COMPILE_WALL,
                            .memory_mb = COMPILE_MB,
                            .file_mb = COMPILED_MB,
                            .processes = 128,
                            .confined = 1,
                            .slot = w->slot,
                            .writable = folder};
    const char *const argv[] = {"/bin/sh", script, lab, folder, g->half_only ? "-DLAB16_HALF_ONLY" : NULL,
                                NULL};
    run_hide(g, &limits);
    if (confine_run(argv, folder, &limits, &o, why) != 0) return -1;
    confine_describe(&o, &limits, ended, sizeof ended);
    char built[MAX_PATH];
    if (text_path(built, why, "%s/build/%s.bin", w->folder, lab) != 0 ||
        text_path(program, why, "%s/%s.%s", w->folder, lab, tools == g->gpu ? "gpu" : "cpu") != 0)
        return -1;
    if (o.exit_code == 0 && rename(built, program) == 0) {
        if (geteuid() == 0 && chown(program, 0, 0) != 0)
            return fail(why, "%s cannot be taken back: %s.", program, strerror(errno));
        return chmod(program, 0755) == 0 ? 1 : fail(why, "%s: %s.", program, strerror(errno));
    }
    program[0] = '\0';
    result_say(of_build, "It does not compile%s%s.", ended[0] ? ": " : "", ended);
    say_errors(of_build, o.output);
    return 0;
}

static int make_workshop(struct workshop *w, int slot, struct message *why) {
    memset(w, 0, sizeof *w);
    w->slot = slot;
    return temporary_folder(w->folder, why);
}

int grader_build_reference(const struct grader *g, const char *lab, struct message *why) {
    struct workshop w;
    struct test_result said = {.name = ""};
    char path[MAX_PATH], program[MAX_PATH];
    char *source = read_original(g, lab, why);
    if (!source) return -1;
    int built = make_workshop(&w, g->slot, why);
    if (built == 0) built = compile(g, g->gpu, &w, lab, source, program, &said, why);
    free(source);
    if (built == 0) fail(why, "The reference solution of %s does not compile: %.800s", lab, said.text);
    int status = built == 1 ? text_path(path, why, "%s/%s.bin", g->references, lab) : -1;
    if (status == 0 && rename(program, path) != 0)
        status = fail(why, "%s cannot be written: %s.", path, strerror(errno));
    text_remove_folder(w.folder);
    return status;
}

// ---------------------------------------------------------------- a lab

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct test_result *begin_test(struct lab_result *result, const struct test *test) {
    struct test_result *t = &result->tests[result->count++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", test->name);
    t->kind = test->kind, t->possible = test->points, t->hidden = test->hidden;
    t->status = STATUS_FAILED;
    return t;
}

// What became of the tests of this kernel that only ask for right results: STATUS_PASSED if all are passed,
// STATUS_BLOCKED if some could not be tried here and none is failed.
static enum status status_of_kernel(const struct grader *g, const struct lab_result *result,
                                    const struct test *test) {
    enum status status = STATUS_PASSED;
    for (int i = 0; i + 1 < result->count; ++i)
        for (int j = 0; j < g->plan.count; ++j) {
            const struct test *other = &g->plan.tests[j];
            if (strcmp(other->name, result->tests[i].name) != 0 || other->kind != KIND_CORRECT ||
                strcmp(other->kernel, test->kernel) != 0 || result->tests[i].status == STATUS_PASSED)
                continue;
            if (result->tests[i].status == STATUS_FAILED) return STATUS_FAILED;
            status = STATUS_BLOCKED;
        }
    return status;
}

// How many tests of this kernel ran out of time. A kernel that hangs does so in all of them, and a class is
// waiting.
static int times_out_of_time(const struct grader *g, const struct lab_result *result,
                             const struct test *test) {
    int times = 0;
    for (int i = 0; i + 1 < result->count; ++i)
        for (int j = 0; j < g->plan.count && result->tests[i].out_of_time; ++j)
            times += strcmp(g->plan.tests[j].name, result->tests[i].name) == 0 &&
                     strcmp(g->plan.tests[j].kernel, test->kernel) == 0;
    return times;
}

// All tests of the lab, speed at the end: it needs the verdicts of the others. `broken`: what is wrong with
// all of them, if it could not be built.
static void run_tests(const struct grader *g, const struct workshop *w, const char *broken,
                      struct lab_result *result) {
    for (int speed = 0; speed < 2; ++speed)
        for (int i = 0; i < g->plan.count; ++i) {
            const struct test *test = &g->plan.tests[i];
            if (strcmp(test->lab, result->lab) != 0 || (test->kind == KIND_SPEED) != speed) continue;
            struct test_result *t = begin_test(result, test);
            if (speed && !g->gpu) {
                t->status = STATUS_BLOCKED;
                result_say(t, "%s", RESULT_NO_GPU);
            } else if (broken) {
                result_say(t, "%s", broken);
            } else if (speed && status_of_kernel(g, result, test) != STATUS_PASSED) {
                t->status = status_of_kernel(g, result, test);
                result_say(t, t->status == STATUS_BLOCKED
                                  ? "Some tests of this kernel could not be tried here, and so not its speed."
                                  : "Speed counts once all results of this kernel are right.");
            } else if (times_out_of_time(g, result, test) >= 2) {
                result_say(t, "It was not run: two other tests of this kernel took too long.");
            } else {
                run_test(g, w, test, t);
            }
        }
}

// Scan and compilation. What is wrong with the whole lab goes into `broken`.
static int build(const struct grader *g, struct workshop *w, const char *lab, const char *source,
                 struct lab_result *result, struct test_result *broken, struct message *why) {
    char *original = read_original(g, lab, why);
    static struct scan scan;
    if (!original) return -1;
    scan_source(source, original, &scan);
    free(original);
    for (; result->remarks < scan.count; ++result->remarks)
        memcpy(result->remark[result->remarks], scan.remark[result->remarks], sizeof *result->remark);
    if (scan.refused.text[0]) {
        result_say(broken, "It was not compiled: %s", scan.refused.text);
        return 0;
    }
    int built = compile(g, g->tools, w, lab, source, w->program, broken, why);
    if (built == 1 && g->gpu) built = compile(g, g->gpu, w, lab, source, w->gpu_program, broken, why);
    return built < 0 ? -1 : 0;
}

int grader_run(const struct grader *g, const char *lab, const char *source, int slot,
               struct lab_result *result, struct message *why) {
    struct workshop w;
    struct test_result broken = {.name = ""};
    double begin = now();
    memset(result, 0, sizeof *result);
    snprintf(result->lab, sizeof result->lab, "%s", lab);
    result->key = grader_key(g, lab, source);
    result->tests = malloc((size_t)g->plan.count * sizeof *result->tests);
    if (!result->tests) return fail(why, "There is no memory left.");
    if (make_workshop(&w, slot, why) != 0) return -1;
    int status = 0;
    if (!source)
        result_say(&broken, "There is no %s/%s.cu in the submission.", lab, lab);
    else
        status = build(g, &w, lab, source, result, &broken, why);
    if (status == 0) run_tests(g, &w, broken.text[0] ? broken.text : NULL, result);
    text_remove_folder(w.folder);
    result->seconds = now() - begin;
    return status;
}
