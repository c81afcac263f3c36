#define _DEFAULT_SOURCE
#include "grader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "build.h"
#include "lanes.h"

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
    key = text_checksum(key, g->gpu_name, strlen(g->gpu_name));
    key = text_checksum(key, g->no_gpu, strlen(g->no_gpu));
    return text_checksum(key, source ? source : none, source ? strlen(source) : sizeof none);
}

int grader_has_gpu(const struct grader *g) { return g->gpu && !g->no_gpu[0]; }

// ---------------------------------------------------------------- a lab

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int make_workshop(struct workshop *w, int slot, struct message *why) {
    memset(w, 0, sizeof *w);
    w->slot = slot;
    return temporary_folder(w->folder, why);
}

int grader_run(const struct grader *g, const char *lab, const char *source, int slot,
               struct lab_result *result, struct message *why) {
    struct workshop w;
    struct test_result broken = {.name = ""};
    double begin = now();
    memset(result, 0, sizeof *result);
    snprintf(result->lab, sizeof result->lab, "%s", lab);
    result->key = grader_key(g, lab, source);
    if (make_workshop(&w, slot, why) != 0) return -1;
    int status = 0;
    if (!source) {
        result_say(&broken, "There is no %s/%s.cu in the submission.", lab, lab);
    } else {
        int place = gate_pass(&g->jobs);
        status = build_lab(g, &w, lab, source, result, &broken, why);
        gate_leave(place);
    }
    if (status == 0) status = lanes_run(g, &w, broken.text[0] ? broken.text : NULL, result, why);
    text_remove_folder(w.folder);
    result->seconds = now() - begin;
    return status;
}
