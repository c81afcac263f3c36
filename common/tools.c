#define _DEFAULT_SOURCE
#include "tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file.h"
#include "ncu.h"

enum { MAX_PATH_BYTES = 1024, MAX_WORDS = 200, OWN_WORDS = 6 };

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

// A command line in the making. Its words are borrowed, but for those in `own`.
struct command {
    const char *word[MAX_WORDS + 1];
    int count;
    char own[OWN_WORDS][64];
    int own_count;
};

static void add_word(struct command *c, const char *word) {
    if (c->count < MAX_WORDS) c->word[c->count++] = word;
}

static void add_words(struct command *c, const char *const *words) {
    for (; *words; ++words) add_word(c, *words);
}

static void add_number(struct command *c, const char *option, int value) {
    char *own = c->own[c->own_count++];
    snprintf(own, sizeof c->own[0], "--%s=%d", option, value);
    add_word(c, own);
}

// 1 if the word is this option, alone ("--json", its value follows) or with its value ("--json=FILE").
static int is_option(const char *word, const char *option) {
    size_t length = strlen(option);
    return strncmp(word, option, length) == 0 && (word[length] == '\0' || word[length] == '=');
}

// Adds the lab's own command line without what this run does itself, and with the shape spelt out.
static void add_lab_command(struct command *c, int argc, char **argv, const struct options *o) {
    static const char *const flags[] = {"--sanitize", "--profile"};
    static const char *const with_value[] = {"--kernel", "--json"};
    for (int i = 0; i < argc; ++i) {
        if (strcmp(argv[i], flags[0]) == 0 || strcmp(argv[i], flags[1]) == 0) continue;
        if (o->profile && (is_option(argv[i], with_value[0]) || is_option(argv[i], with_value[1]))) {
            if (!strchr(argv[i], '=')) ++i;
            continue;
        }
        add_word(c, argv[i]);
    }
    if (o->load) return;  // the files say what the shape is
    if (!(o->given & GIVEN_BATCH)) add_number(c, "batch", o->batch);
    if (!(o->given & GIVEN_HEADS)) add_number(c, "heads", o->heads);
    if (!(o->given & GIVEN_KV_HEADS)) add_number(c, "kv-heads", o->kv_heads);
    if (!(o->given & GIVEN_SEQLEN_Q)) add_number(c, "seqlen-q", o->seqlen_q);
    if (!(o->given & GIVEN_SEQLEN_K)) add_number(c, "seqlen-k", o->seqlen_k);
    if (!(o->given & GIVEN_DIM)) add_number(c, "dim", o->head_dim);
}

// Runs it and returns its exit status, or -1.
static int run_command(const struct command *c) {
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    if (child == 0) {
        execv(c->word[0], (char *const *)c->word);
        fprintf(stderr, "%s cannot be started: %s\n", c->word[0], strerror(errno));
        _exit(127);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int tools_sanitize(int argc, char **argv, const struct options *options) {
    static const char *const checkers[] = {"memcheck", "racecheck", "synccheck", "initcheck"};
    char program[MAX_PATH_BYTES];
    if (!find_program("compute-sanitizer", program)) {
        fprintf(stderr, "--sanitize needs compute-sanitizer, which comes with the CUDA toolkit: it is "
                        "neither on the PATH "
                        "nor in $CUDA_HOME/bin.\n");
        return LAB_SKIPPED;
    }
    int worst = LAB_OK;
    for (int i = 0; i < 4; ++i) {
        // Our own code for "wrong": a finding of the checker makes the command fail as a wrong result does.
        const char *const tool[] = {program, "--tool", checkers[i], "--error-exitcode", "1", NULL};
        struct command command = {.count = 0};
        add_words(&command, tool);
        add_lab_command(&command, argc, argv, options);
        int status = run_command(&command);
        printf("%s: %s\n", checkers[i], status == 0 ? "clean" : "not clean");
        if (status == LAB_USAGE || status == LAB_SKIPPED) return status;  // the lab itself said why
        if (status != 0) worst = LAB_WRONG;
    }
    return worst;
}

// What ncu's file says about this run: LAB_OK and the launches, or why not.
static int read_counters(const char *text, struct profile *profile) {
    struct message why = {""};
    if (!text) {
        fprintf(stderr, "What ncu wrote cannot be read: %s\n", strerror(errno));
        return LAB_WRONG;
    }
    if (strstr(text, "ERR_NVGPUCTRPERM")) {
        fprintf(stderr, "--profile needs the GPU's counters, which the driver keeps from this user "
                        "(ERR_NVGPUCTRPERM): run it as root, or have NVreg_RestrictProfilingToAdminUsers=0 "
                        "set.\n");
        return LAB_SKIPPED;
    }
    if (ncu_parse(text, profile, &why) == 0) return LAB_OK;
    fprintf(stderr, "%s\n", why.text);
    return LAB_WRONG;
}

int tools_profile(int argc, char **argv, const struct options *options, struct profile *profile) {
    char program[MAX_PATH_BYTES], path[MAX_PATH_BYTES], kernel[96];
    if (!find_program("ncu", program)) {
        fprintf(stderr, "--profile needs ncu (Nsight Compute), which comes with the CUDA toolkit: it is "
                        "neither on the PATH "
                        "nor in $CUDA_HOME/bin.\n");
        return LAB_SKIPPED;
    }
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%.900s/lab_ncu_XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0) {
        fprintf(stderr, "%s, for what ncu counts, cannot be written: %s\n", path, strerror(errno));
        return LAB_USAGE;
    }
    close(file);
    snprintf(kernel, sizeof kernel, "--kernel=%.80s", profile->kernel);
    // Its table goes to a file of its own; what the lab prints stays on the screen.
    const char *const tool[] = {program,
                                "--csv",
                                "--page",
                                "raw",
                                "--print-units",
                                "base",
                                "--print-kernel-base",
                                "function",
                                "--log-file",
                                path,
                                "--force-overwrite",
                                "--metrics",
                                ncu_metrics,
                                "--profile-from-start",
                                "off",
                                NULL};
    struct command command = {.count = 0};
    add_words(&command, tool);
    add_lab_command(&command, argc, argv, options);
    add_word(&command, kernel);
    int status = run_command(&command);
    char *text = file_read(path);
    if (status == LAB_OK || (text && strstr(text, "ERR_NVGPUCTRPERM")))
        status = read_counters(text, profile);
    else if (status != LAB_USAGE && status != LAB_SKIPPED)
        status = LAB_WRONG;
    // ncu's own complaints are in its file; the lab's were printed.
    if (status == LAB_WRONG && text && profile->launch_count == 0) fprintf(stderr, "%.2000s", text);
    free(text);
    unlink(path);
    return status;
}
