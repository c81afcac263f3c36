#define _DEFAULT_SOURCE
#include "build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gate.h"

enum { COMPILE_CPU = 300, COMPILE_WALL = 580, COMPILE_MB = 6144, COMPILED_MB = 256 };

// The lab's own source, for the scan.
static char *read_original(const struct grader *g, const char *lab, struct message *why) {
    char path[MAX_PATH];
    if (text_path(path, why, "%s/%s/%s.cu", g->root, lab, lab) != 0) return NULL;
    return text_read(path, SOURCE_BYTES, why);
}

// ---------------------------------------------------------------- compiling

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

// ---------------------------------------------------------------- the reference solution

int build_reference_path(const struct grader *g, const char *lab, char path[MAX_PATH], struct message *why) {
    return text_path(path, why, "%s/grade/reference/%s.bin", g->gpu, lab);
}

// 1 if the program is there, made of this.
static int is_made(const char *program, const char *key_file, uint64_t key) {
    struct message why = {""};
    char *text = access(program, X_OK) == 0 ? text_read(key_file, 64, &why) : NULL;
    int made = text && strtoull(text, NULL, 16) == key;
    free(text);
    return made;
}

static int write_key(const char *key_file, uint64_t key, struct message *why) {
    FILE *file = fopen(key_file, "w");
    int good = file && fprintf(file, "%016llx\n", (unsigned long long)key) > 0;
    if (file) good = fclose(file) == 0 && good;
    return good ? 0 : fail(why, "%s cannot be written: %s.", key_file, strerror(errno));
}

// Compiles it for the GPU, if that is not done yet: it is the same for all submissions and later runs.
static int make_reference(const struct grader *g, const struct workshop *w, const char *lab,
                          const char *source, struct message *why) {
    char folder[MAX_PATH], path[MAX_PATH], key_file[MAX_PATH], program[MAX_PATH];
    struct test_result said = {.name = ""};
    uint64_t key = text_checksum(g->tools_checksum, source, strlen(source));
    key = text_checksum(key, &g->half_only, sizeof g->half_only);
    if (text_path(folder, why, "%s/grade/reference", g->gpu) != 0 ||
        text_make_folder(folder, 0755, why) != 0 || text_path(key_file, why, "%s/%s.key", folder, lab) != 0 ||
        build_reference_path(g, lab, path, why) != 0)
        return -1;
    const struct gate one = {folder, lab, 1};
    int place = gate_pass(&one), status = 0;
    if (!is_made(path, key_file, key)) {
        unlink(key_file);
        int built = compile(g, g->gpu, w, lab, source, program, &said, why);
        if (built == 0) fail(why, "The reference solution of %s does not compile: %.800s", lab, said.text);
        status = built == 1 ? 0 : -1;
        if (status == 0) status = text_copy(program, path, why);
        if (status == 0) status = write_key(key_file, key, why);
    }
    gate_leave(place);
    return status;
}

// ---------------------------------------------------------------- a lab

// The programs that the lab's tests run. The reference solution handed in is that program.
static int build_programs(const struct grader *g, struct workshop *w, const char *lab, const char *source,
                          const char *original, struct test_result *broken, struct message *why) {
    int built = compile(g, g->tools, w, lab, source, w->program, broken, why);
    if (built != 1 || !grader_has_gpu(g)) return built < 0 ? -1 : 0;
    if (make_reference(g, w, lab, original, why) != 0) return -1;
    if (strcmp(source, original) == 0) return build_reference_path(g, lab, w->gpu_program, why);
    return compile(g, g->gpu, w, lab, source, w->gpu_program, broken, why) < 0 ? -1 : 0;
}

int build_lab(const struct grader *g, struct workshop *w, const char *lab, const char *source,
              struct lab_result *result, struct test_result *broken, struct message *why) {
    char *original = read_original(g, lab, why);
    static struct scan scan;
    if (!original) return -1;
    scan_source(source, original, &scan);
    for (; result->remarks < scan.count; ++result->remarks)
        memcpy(result->remark[result->remarks], scan.remark[result->remarks], sizeof *result->remark);
    int status = 0;
    if (scan.refused.text[0])
        result_say(broken, "It was not compiled: %s", scan.refused.text);
    else
        status = build_programs(g, w, lab, source, original, broken, why);
    free(original);
    return status;
}
