// grade.c - ./lab grade: grades a submission, or a class of them. README.md here says how.
//
// Exit 0: graded. 1: something could not be graded, and is named. 2: wrong usage, with one sentence.
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "class.h"
#include "probe.h"
#include "settings.h"

enum { GPU_RUNS = 12 };  // at the same time: each takes some of the GPU's memory to begin with

static int refuse(const struct message *why) {
    fflush(stdout);
    fprintf(stderr, "lab grade: %s\n", why->text);
    return 2;
}

// ---------------------------------------------------------------- what is graded

// The whole path of something that is there; null with a sentence.
static char *whole_path(const char *path, const char *what, struct message *why) {
    char *whole = realpath(path, NULL);
    if (!whole) fail(why, "%s %.400s cannot be found: %s.", what, path, strerror(errno));
    return whole;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct submission *)a)->name, ((const struct submission *)b)->name);
}

// A submission more, of a folder or file whose whole path this is.
static int add_submission(struct class *c, const char *path, struct message *why) {
    const char *name = strrchr(path, '/');
    struct submission *more = realloc(c->submissions, (size_t)(c->count + 1) * sizeof *more);
    if (more) {
        c->submissions = more;
        struct submission *s = &more[c->count++];
        memset(s, 0, sizeof *s);
        s->path = strdup(path);
        s->name = strdup(name && name[1] ? name + 1 : "submission");
        if (s->path && s->name) return 0;
    }
    fail(why, "There is no memory left.");
    return -1;
}

// Each folder in the folder is a submission. One that begins with a dot is a tool's.
static int add_all(struct class *c, const char *folder, struct message *why) {
    DIR *open = opendir(folder);
    if (!open) return fail(why, "The folder %.400s of --all cannot be read: %s.", folder, strerror(errno));
    int status = 0;
    for (struct dirent *entry; status == 0 && (entry = readdir(open)) != NULL;) {
        char path[MAX_PATH];
        struct stat info;
        if (entry->d_name[0] == '.') continue;
        status = text_path(path, why, "%s/%s", folder, entry->d_name);
        if (status == 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            status = add_submission(c, path, why);
    }
    closedir(open);
    if (status != 0) return -1;
    if (c->count == 0) {
        fail(why, "%.400s has no folders: each is a submission.", folder);
        return -1;
    }
    qsort(c->submissions, (size_t)c->count, sizeof *c->submissions, by_name);
    return 0;
}

// Leaves the tests of the labs that are asked for in the plan, and lists these labs.
static int choose_labs(struct class *c, struct plan *plan, const struct settings *s, struct message *why) {
    int kept = 0;
    c->labs = calloc((size_t)plan->count, sizeof *c->labs);
    if (!c->labs) return fail(why, "There is no memory left.");
    for (int i = 0; i < plan->count; ++i)
        if (settings_choose(s, plan->tests[i].lab)) plan->tests[kept++] = plan->tests[i];
    plan->count = kept;
    if (kept == 0)
        return fail(why, "--lab %.60s: no lab of that name has tests in tests/points.csv.", s->labs[0]);
    for (int i = 0; i < kept; ++i) {
        int known = 0;
        for (int l = 0; l < c->lab_count; ++l)
            known |= c->labs[l] && strcmp(c->labs[l], plan->tests[i].lab) == 0;
        if (!known) c->labs[c->lab_count++] = plan->tests[i].lab;
    }
    return 0;
}

// ---------------------------------------------------------------- the tools

// Names come in any order, and so sums are taken.
static uint64_t checksum_folder(const char *path) {
    uint64_t sum = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        char file[MAX_PATH];
        struct message why = {""};
        if (entry->d_name[0] == '.' || text_path(file, &why, "%s/%s", path, entry->d_name) != 0) continue;
        sum += text_checksum_file(text_checksum(TEXT_CHECKSUM, entry->d_name, strlen(entry->d_name)), file);
    }
    if (folder) closedir(folder);
    return sum;
}

static int checksum_tools(struct grader *g, struct message *why) {
    static const char *const of_tools[] = {"grade/runtime.o", "grade/compile.sh", "grade/grade_check",
                                           "grade/grade_device"};
    static const char *const headers[] = {"common", "common/ptx", "common/simt/include"};
    enum { TOOLS = sizeof of_tools / sizeof *of_tools, HEADERS = sizeof headers / sizeof *headers };
    char path[MAX_PATH];
    g->tools_checksum = TEXT_CHECKSUM;
    for (int i = 0; i < 2 * TOOLS; ++i) {
        const char *tools = i < TOOLS ? g->tools : g->gpu;
        if (!tools) break;
        if (text_path(path, why, "%s/%s", tools, of_tools[i % TOOLS]) != 0) return -1;
        if (access(path, R_OK) != 0)
            return fail(why, "%s is not there: start the grader as ./lab grade, which builds it.", path);
        g->tools_checksum = text_checksum_file(g->tools_checksum, path);
    }
    for (int i = 0; i < HEADERS; ++i) {
        if (text_path(path, why, "%s/%s", g->root, headers[i]) != 0) return -1;
        uint64_t sum = checksum_folder(path);
        g->tools_checksum = text_checksum(g->tools_checksum, &sum, sizeof sum);
    }
    for (int i = 0; i < g->plan.count; ++i) {
        if (g->plan.tests[i].kind != KIND_IO) continue;
        if (text_path(path, why, "%s/grade/io/%s.io", g->root, g->plan.tests[i].lab) != 0) return -1;
        g->tools_checksum = text_checksum_file(g->tools_checksum, path);
    }
    return 0;
}

// ---------------------------------------------------------------- reports

typedef void write_grade(FILE *out, const struct grade *grade);

static int write_report(const char *path, write_grade *write, const struct grade *grade,
                        struct message *why) {
    FILE *out = path ? fopen(path, "w") : NULL;
    if (!path) return 0;
    if (!out) return fail(why, "%.400s cannot be written: %s.", path, strerror(errno));
    write(out, grade);
    int good = !ferror(out);
    return fclose(out) == 0 && good ? 0 : fail(why, "%.400s could not be written to its end.", path);
}

static int write_own(const struct grader *g, const struct grade *grade, struct message *why) {
    static const struct {
        const char *name;
        write_grade *write;
    } own[] = {{"report.md", report_write_markdown},
               {"remarks.txt", report_write_remarks},
               {"grade.json", report_write_json},
               {"junit.xml", report_write_junit},
               {"results.json", report_write_gradescope}};
    for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
        char path[MAX_PATH];
        if (text_path(path, why, "%s/%s/%s", g->out, grade->name, own[i].name) != 0 ||
            write_report(path, own[i].write, grade, why) != 0)
            return -1;
    }
    return 0;
}

static int write_scores(const struct class *c, const struct grade *grades, struct message *why) {
    char path[MAX_PATH];
    if (text_path(path, why, "%s/scores.csv", c->grader->out) != 0) return -1;
    FILE *out = fopen(path, "w");
    if (!out) return fail(why, "%s cannot be written: %s.", path, strerror(errno));
    report_write_scores(out, grades, c->count, c->labs, c->lab_count);
    if (fclose(out) != 0) return fail(why, "%s could not be written to its end.", path);
    printf("%s has the points of %d submissions; beside it each has a folder with report.md.\n", path,
           c->count);
    return 0;
}

static int write_all(const struct class *c, const struct settings *s, struct message *why) {
    struct grade *grades = calloc((size_t)c->count, sizeof *grades);
    int status = 0;
    if (!grades) {
        fail(why, "There is no memory left.");
        return -1;
    }
    for (int i = 0; i < c->count && status == 0; ++i) {
        const struct submission *of = &c->submissions[i];
        grades[i] = (struct grade){of->name, of->labs, c->lab_count, of->blame};
        status = write_own(c->grader, &grades[i], why);
        report_write_remarks(stdout, &grades[i]);
    }
    if (status == 0 && s->all) status = write_scores(c, grades, why);
    if (status == 0 && !s->all) {
        report_write_markdown(stdout, &grades[0]);
        status = write_report(s->json, report_write_json, grades, why);
        if (status == 0) status = write_report(s->junit, report_write_junit, grades, why);
        if (status == 0) status = write_report(s->gradescope, report_write_gradescope, grades, why);
    }
    // An error of the grader in a single test leaves its points out; it has to be seen all the same.
    for (int i = 0; i < c->count && status == 0; ++i)
        if (grade_points(&grades[i]).errors > 0) status = 1;
    free(grades);
    return status;
}

// ---------------------------------------------------------------- main

// Two graders in one folder would write over each other's results. The lock ends with the last process that
// has it.
static int take_folder(const struct grader *g, struct message *why) {
    char path[MAX_PATH];
    if (text_path(path, why, "%s/.lock", g->out) != 0) return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return fail(why, "%.400s cannot be written: %s.", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    close(fd);
    return fail(why,
                "Another ./lab grade is at work in %.400s: wait until it has ended, or give another --out.",
                g->out);
}

static int prepare(struct grader *g, struct class *c, const struct settings *s, struct message *why) {
    char path[MAX_PATH];
    if (!(g->root = whole_path(s->root, "The tree", why)) ||
        !(g->tools = whole_path(s->tools, "The build folder", why)) ||
        (s->gpu && !(g->gpu = whole_path(s->gpu, "The build folder", why))) ||
        (s->hidden && !(g->hidden = whole_path(s->hidden, "The folder of --hidden,", why))))
        return -1;
    char *submissions = whole_path(s->all ? s->all : s->submission, "The submission", why);
    if (!submissions) return -1;
    g->submissions = submissions;
    if ((s->all ? add_all(c, submissions, why) : add_submission(c, submissions, why)) != 0) return -1;
    if (plan_read(&g->plan, g->root, g->hidden, why) != 0 || choose_labs(c, &g->plan, s, why) != 0) return -1;
    g->half_only = 1, g->seconds = s->seconds;
    for (int i = 0; i < g->plan.count; ++i) g->half_only &= !strstr(g->plan.tests[i].options, "bf16");
    if (text_path(path, why, "%s/build/grade", g->root) != 0) return -1;
    if (text_make_folder(s->out ? s->out : path, 0755, why) != 0) return -1;
    if (!(g->out = whole_path(s->out ? s->out : path, "The folder of --out", why)) ||
        take_folder(g, why) != 0)
        return -1;
    return checksum_tools(g, why);
}

static int make_gates(struct grader *g, int jobs, char folder[MAX_PATH], struct message *why) {
    if (temporary_folder(folder, why) != 0) return -1;
    g->jobs = (struct gate){folder, "jobs", jobs};
    g->gpu_runs = (struct gate){folder, "gpu", GPU_RUNS};
    return 0;
}

int main(int argc, char **argv) {
    static struct settings settings;
    static struct grader grader;
    static struct class class;
    static char gates[MAX_PATH];
    struct message why = {""};
    if (settings_read(argc, argv, &settings, &why) != 0) return refuse(&why);
    class.grader = &grader, class.jobs = settings.jobs;
    if (prepare(&grader, &class, &settings, &why) != 0) return refuse(&why);
    grader.slot = confine_reserve();
    int status = grader.slot < 0 ? fail(&why, "/tmp cannot be written, or too many graders run.")
                                 : make_gates(&grader, settings.jobs, gates, &why);
    if (status == 0) status = probe_runs(&grader, &why);
    if (status == 0) status = probe_gpu(&grader, &why);
    if (status == 0) status = class_run(&class, &why);
    if (status == 0) status = write_all(&class, &settings, &why);
    if (gates[0]) text_remove_folder(gates);
    if (status < 0) fprintf(stderr, "lab grade: %s\n", why.text);
    return status != 0 || class.failures > 0;
}
