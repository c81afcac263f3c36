#define _DEFAULT_SOURCE
#include "class.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "namespaces.h"

enum { MOST_JOBS = 128 };  // each has a process for every kernel of its lab, which takes a slot

// A lab of a submission.
struct unit {
    int submission, lab;
};

// What works at the same time: slot n has process worker[n].
struct pool {
    pid_t worker[MOST_JOBS];
    struct unit unit[MOST_JOBS];
    int busy, done, total;
};

static int result_path(const struct class *c, struct unit u, char path[MAX_PATH], struct message *why) {
    return text_path(path, why, "%s/%s/%s.result", c->grader->out, c->submissions[u.submission].name,
                     c->labs[u.lab]);
}

static void blame(struct class *c, struct unit u, const char *text) {
    struct submission *s = &c->submissions[u.submission];
    ++c->failures;
    fprintf(stderr, "%s, %s: %s\n", s->name, c->labs[u.lab], text);
    if (!s->blame && (s->blame = malloc(strlen(text) + strlen(c->labs[u.lab]) + 3)))
        sprintf(s->blame, "%s: %s", c->labs[u.lab], text);
}

static void progress(const struct pool *pool) {
    if (pool->total < 2) return;
    fprintf(stderr, isatty(2) ? "\r%d of %d labs graded" : "%d of %d labs graded\n", pool->done, pool->total);
    if (isatty(2) && pool->done == pool->total) fputc('\n', stderr);
}

// ---------------------------------------------------------------- a worker

__attribute__((noreturn)) static void work(const struct class *c, struct unit u, const char *source) {
    struct lab_result result;
    struct message why = {""};
    char path[MAX_PATH];
    int slot = confine_reserve();
    int status = slot < 0 ? fail(&why, "Too many submissions are graded on this machine at the same time.")
                          : grader_run(c->grader, c->labs[u.lab], source, slot, &result, &why);
    if (status == 0) status = result_path(c, u, path, &why);
    if (status == 0) status = result_write(&result, path, &why);
    if (status != 0) fprintf(stderr, "%s\n", why.text);
    fflush(NULL);
    _exit(status != 0);
}

static void wait_for_one(struct class *c, struct pool *pool) {
    int status = 0;
    pid_t ended = wait(&status);
    for (int slot = 0; slot < c->jobs && ended > 0; ++slot) {
        if (pool->worker[slot] != ended) continue;
        pool->worker[slot] = 0, --pool->busy, ++pool->done;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            blame(c, pool->unit[slot], "it could not be graded, because the grader failed");
        progress(pool);
    }
}

static int start(struct class *c, struct pool *pool, struct unit u, const char *source, struct message *why) {
    while (pool->busy == c->jobs) wait_for_one(c, pool);
    int slot = 0;
    while (pool->worker[slot] != 0) ++slot;
    fflush(NULL);
    pid_t worker = fork();
    if (worker == 0) {
        namespaces_end_with_parent();
        work(c, u, source);
    }
    if (worker < 0) return fail(why, "There is no process left: %s.", strerror(errno));
    pool->worker[slot] = worker, pool->unit[slot] = u, ++pool->busy;
    return 0;
}

// ---------------------------------------------------------------- all of them

// Takes the result of an earlier run, or starts one. A submission without this lab is graded as well, in no
// time: its tests are failed.
static int take_or_start(struct class *c, struct pool *pool, struct unit u, struct message *why) {
    char path[MAX_PATH], *source = NULL;
    struct submission *s = &c->submissions[u.submission];
    struct message unreadable = {""};
    if (result_path(c, u, path, why) != 0) return -1;
    if (grader_find_source(s->path, c->labs[u.lab], &source, &unreadable) < 0) {
        blame(c, u, unreadable.text);
        ++pool->done;
        return 0;
    }
    int status = 0;
    if (result_read(&s->labs[u.lab], path, grader_key(c->grader, c->labs[u.lab], source)))
        ++pool->done;
    else
        status = start(c, pool, u, source, why);
    free(source);
    return status;
}

static int read_results(struct class *c, struct message *why) {
    for (int s = 0; s < c->count; ++s)
        for (int l = 0; l < c->lab_count; ++l) {
            struct unit u = {s, l};
            char path[MAX_PATH], *source = NULL;
            struct lab_result *result = &c->submissions[s].labs[l];
            struct message unreadable = {""};
            if (result->tests) continue;
            snprintf(result->lab, sizeof result->lab, "%s", c->labs[l]);
            if (grader_find_source(c->submissions[s].path, c->labs[l], &source, &unreadable) < 0) continue;
            if (result_path(c, u, path, why) != 0) return -1;
            if (!result_read(result, path, grader_key(c->grader, c->labs[l], source)) &&
                !c->submissions[s].blame)
                blame(c, u, "its result is not there");
            free(source);
        }
    return 0;
}

static int has_any_lab(const struct class *c, const struct submission *s) {
    for (int l = 0; l < c->lab_count; ++l) {
        char *source = NULL;
        struct message why = {""};
        int found = grader_find_source(s->path, c->labs[l], &source, &why);
        free(source);
        if (found != 0) return 1;
    }
    return 0;
}

int class_run(struct class *c, struct message *why) {
    static struct pool pool;
    int status = 0;
    memset(&pool, 0, sizeof pool);
    if (c->jobs > MOST_JOBS) c->jobs = MOST_JOBS;
    pool.total = c->count * c->lab_count;
    for (int s = 0; s < c->count && status == 0; ++s) {
        struct submission *submission = &c->submissions[s];
        char folder[MAX_PATH];
        submission->labs = calloc((size_t)c->lab_count, sizeof *submission->labs);
        if (!submission->labs) status = fail(why, "There is no memory left.");
        if (status == 0) status = text_path(folder, why, "%s/%s", c->grader->out, submission->name);
        if (status == 0) status = text_make_folder(folder, 0755, why);
        if (status == 0 && !has_any_lab(c, submission)) {
            struct unit first = {s, 0};
            blame(c, first, "there is no source of a lab in it: labNN_name/labNN_name.cu, or labNN_name.cu");
        }
        for (int l = 0; l < c->lab_count && status == 0; ++l)
            status = take_or_start(c, &pool, (struct unit){s, l}, why);
    }
    while (pool.busy > 0) wait_for_one(c, &pool);
    return status == 0 ? read_results(c, why) : -1;
}
