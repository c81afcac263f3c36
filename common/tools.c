#define _DEFAULT_SOURCE
#include "tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 1024, TOOL_ARGUMENTS = 12, SHAPE_ARGUMENTS = 5 };

static int is_program(const char *folder, size_t folder_length, const char *name, char path[MAX_PATH_BYTES]) {
    int length = snprintf(path, MAX_PATH_BYTES, "%.*s/%s", (int)folder_length, folder, name);
    return length > 0 && length < MAX_PATH_BYTES && access(path, X_OK) == 0;
}

// Where the program is: on the PATH, else in the CUDA toolkit's folder.
static int find_program(const char *name, char path[MAX_PATH_BYTES]) {
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":");
        if (length && is_program(at, length, name, path)) return 1;
        at += length + (at[length] == ':');
    }
    const char *toolkits[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    for (int i = 0; i < 3; ++i) {
        char folder[MAX_PATH_BYTES];
        if (!toolkits[i]) continue;
        int length = snprintf(folder, sizeof folder, "%s/bin", toolkits[i]);
        if (length > 0 && length < MAX_PATH_BYTES && is_program(folder, (size_t)length, name, path)) return 1;
    }
    return 0;
}

// Runs `program tool... argv... extra...`, argv without the option `without`. Returns the exit status, or -1.
static int run_under(const char *program, const char *const *tool, int argc, char **argv, const char *without,
                     const char *const *extra) {
    const char **command = calloc((size_t)argc + TOOL_ARGUMENTS + SHAPE_ARGUMENTS + 2, sizeof *command);
    if (!command) return -1;
    int n = 0;
    command[n++] = program;
    for (int i = 0; i < TOOL_ARGUMENTS && tool[i]; ++i) command[n++] = tool[i];
    for (int i = 0; i < argc; ++i)
        if (strcmp(argv[i], without) != 0) command[n++] = argv[i];
    for (int i = 0; i < SHAPE_ARGUMENTS && extra[i]; ++i) command[n++] = extra[i];
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    if (child == 0) {
        execv(program, (char *const *)command);
        fprintf(stderr, "%s cannot be started: %s\n", program, strerror(errno));
        _exit(127);
    }
    free(command);
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int tools_sanitize(int argc, char **argv, const struct shape *shape) {
    static const char *const checkers[] = {"memcheck", "racecheck", "synccheck", "initcheck"};
    char program[MAX_PATH_BYTES];
    if (!find_program("compute-sanitizer", program)) {
        fprintf(stderr, "--sanitize needs compute-sanitizer, which comes with the CUDA toolkit: it is "
                        "neither on the PATH "
                        "nor in $CUDA_HOME/bin.\n");
        return LAB_SKIPPED;
    }
    char word[SHAPE_ARGUMENTS][40];
    const char *extra[SHAPE_ARGUMENTS + 1] = {NULL};
    if (shape) {
        snprintf(word[0], sizeof word[0], "--batch=%d", shape->batch);
        snprintf(word[1], sizeof word[1], "--heads=%d", shape->heads);
        snprintf(word[2], sizeof word[2], "--kv-heads=%d", shape->kv_heads);
        snprintf(word[3], sizeof word[3], "--seqlen=%d", shape->seqlen);
        snprintf(word[4], sizeof word[4], "--dim=%d", shape->head_dim);
        for (int i = 0; i < SHAPE_ARGUMENTS; ++i) extra[i] = word[i];
    }
    int worst = LAB_OK;
    for (int i = 0; i < 4; ++i) {
        // Our own code for "wrong": a finding of the checker makes the command fail as a wrong result does.
        const char *const tool[] = {"--tool", checkers[i], "--error-exitcode", "1", NULL};
        int status = run_under(program, tool, argc, argv, "--sanitize", extra);
        printf("%s: %s\n", checkers[i], status == 0 ? "clean" : "not clean");
        if (status == LAB_USAGE || status == LAB_SKIPPED) return status;  // the lab itself said why
        if (status != 0) worst = LAB_WRONG;
    }
    return worst;
}

int tools_profile(int argc, char **argv) {
    char program[MAX_PATH_BYTES];
    if (!find_program("ncu", program)) {
        fprintf(stderr, "--profile needs ncu (Nsight Compute), which comes with the CUDA toolkit: it is "
                        "neither on the PATH "
                        "nor in $CUDA_HOME/bin.\n");
        return LAB_SKIPPED;
    }
    const char *const tool[] = {"--section", "SpeedOfLight", "--section", "MemoryWorkloadAnalysis",
                                "--section", "Occupancy",    "--section", "LaunchStats",
                                NULL};
    const char *const nothing[] = {NULL};
    int status = run_under(program, tool, argc, argv, "--profile", nothing);
    return status < 0 ? LAB_WRONG : status;
}
