#define _DEFAULT_SOURCE
#include "probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

enum { PROBE_WALL = 60 };

static const char *const names[] = {"network", "other processes", "files outside its folder",
                                    "a user of its own"};

// Runs argv in a folder of its own, as submissions are run.
static int try_run(const struct grader *g, const char *const *argv, int confined, unsigned shared,
                   struct outcome *o, struct message *why) {
    char folder[MAX_PATH];
    if (temporary_folder(folder, why) != 0) return -1;
    struct limits limits = {.wall_seconds = PROBE_WALL,
                            .file_mb = RUN_GPU_FILES_MB,
                            .processes = 64,
                            .confined = confined,
                            .shared = shared,
                            .writable = folder,
                            .slot = g->slot};
    int status = 0;
    if (confined && geteuid() == 0 && chown(folder, confine_user(g->slot), confine_user(g->slot)) != 0)
        status = fail(why, "%s cannot be given to another user: %s.", folder, strerror(errno));
    if (status == 0) status = confine_run(argv, folder, &limits, o, why);
    text_remove_folder(folder);
    return status;
}

// A toolkit in somebody's own folder is one that other users cannot run.
static int try_compiler(const struct grader *g, const char *tools, struct message *why) {
    static struct outcome o;
    char script[MAX_PATH];
    const char *const argv[] = {"/bin/sh", script, "--version", NULL};
    if (text_path(script, why, "%s/grade/compile.sh", tools) != 0 || try_run(g, argv, 1, 0, &o, why) != 0)
        return -1;
    if (o.exit_code == 0) return 0;
    return fail(why, "The compiler cannot be run as submissions are compiled, by a user of their own: %.600s",
                o.output);
}

int probe_runs(const struct grader *g, struct message *why) {
    static struct outcome o;
    char header[MAX_PATH];
    const char *const argv[] = {"/bin/sh", "-c", "test -r \"$0\"", header, NULL};
    if (text_path(header, why, "%s/common/lab.h", g->root) != 0 || try_run(g, argv, 1, 0, &o, why) != 0)
        return -1;
    if (o.exit_code != 0)
        return fail(
            why,
            "Submissions are run by a user of their own, who cannot read %.500s: move the tree to where "
            "all users can read it.",
            g->root);
    for (int i = 0; i < 4; ++i)
        if (!(o.apart >> i & 1) && (i < 3 || geteuid() == 0))
            fprintf(stderr, "Note: here, submissions cannot be kept apart by %s; see grade/README.md.\n",
                    names[i]);
    return try_compiler(g, g->tools, why);
}

// ---------------------------------------------------------------- the GPU

static void first_line(char *line, size_t bytes, const char *text) {
    snprintf(line, bytes, "%.*s", (int)strcspn(text, "\n"), text);
}

static void no_gpu(struct grader *g, const struct outcome *o, int others_only) {
    char said[300];
    first_line(said, sizeof said, o->timed_out ? "it does not answer" : o->output);
    snprintf(g->no_gpu, sizeof g->no_gpu, "There is no GPU that %s here (%s).",
             others_only ? "the user that submissions run as can use" : "can be used",
             said[0] ? said : "nothing is said of why");
    fprintf(stderr, "Note: %s Tests that need one are blocked: their points do not count.\n", g->no_gpu);
}

int probe_gpu(struct grader *g, struct message *why) {
    // A driver may want files of /proc or elsewhere that a space of one's own does not have. (The first try
    // of all may only have shown that nobody had woken the driver yet, which takes root.)
    static const unsigned shared[] = {0, APART_PROCESSES, APART_FILES, APART_PROCESSES | APART_FILES,
                                      APART_PROCESSES | APART_FILES | APART_NETWORK};
    static struct outcome o, alone;
    char program[MAX_PATH];
    const char *const argv[] = {program, NULL};
    if (!g->gpu) return 0;
    if (text_path(program, why, "%s/grade/grade_device", g->gpu) != 0 || try_run(g, argv, 1, 0, &o, why) != 0)
        return -1;
    if (o.exit_code != 0) {
        if (try_run(g, argv, 0, 0, &alone, why) != 0) return -1;
        if (alone.exit_code != 0) return no_gpu(g, &alone, 0), 0;
    }
    for (size_t i = 0; o.exit_code != 0; ++i) {
        if (i == sizeof shared / sizeof *shared) return no_gpu(g, &o, 1), 0;
        g->gpu_shared = shared[i];
        if (try_run(g, argv, 1, g->gpu_shared, &o, why) != 0) return -1;
    }
    first_line(g->gpu_name, sizeof g->gpu_name, o.output);
    for (int i = 0; i < 3; ++i)
        if (g->gpu_shared >> i & 1)
            fprintf(stderr,
                    "Note: here, the GPU works only in runs that are not kept apart by %s; see "
                    "grade/README.md.\n",
                    names[i]);
    return try_compiler(g, g->gpu, why);
}
