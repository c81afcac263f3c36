// lab_markers - makes the starter of a lab from its solution, and the solution from the starter (markers.h).
//
//     lab_markers starter [--only TASK]... LAB.cu OUT      the lab with its tasks (or these) to be done
//     lab_markers solutions LAB.cu OUT                     what was cut out, with its markers
//     lab_markers insert STARTER.cu SOLUTIONS OUT          starter + solutions = the lab, to the byte
//     lab_markers list FILE                                its tasks: name, lines, hint
//
// Exit 0, or 2 with one sentence; OUT is then not touched, unless it cannot be written to the end.
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/suggest.h"

#include "markers.h"

static const char usage[] = "lab_markers starter [--only TASK] LAB.cu OUT, lab_markers solutions LAB.cu OUT, "
                            "lab_markers insert STARTER.cu SOLUTIONS OUT or lab_markers list FILE";

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("lab_markers: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

static struct marked_file read_or_refuse(const char *path) {
    struct marked_file file;
    struct message why;
    if (read_marked(path, &file, &why) != 0) refuse("%s", why.text);
    return file;
}

static void suggest_task(const struct marked_file *file, const char *name, char *text, size_t bytes) {
    struct words words = {.count = 0};
    for (int i = 0; i < file->task_count; i++) add_word(&words, file->tasks[i].name);
    suggest(text, bytes, &words, "", name, NULL);
}

static FILE *open_or_refuse(const char *path) {
    FILE *out = fopen(path, "wb");
    if (!out) refuse("cannot write %s: %s", path, strerror(errno));
    return out;
}

static void close_or_refuse(FILE *out, int status, const char *path) {
    if (fclose(out) == 0 && status == 0) return;
    refuse("cannot write all of %s: is the disk full?", path);
}

static void require_solved(const struct marked_file *lab) {
    for (int i = 0; i < lab->task_count; i++)
        if (!lab->tasks[i].is_solved)
            refuse("%s:%d: task %s is still to do: this is a starter, give the solved lab", lab->path,
                   lab->tasks[i].first + 1, lab->tasks[i].name);
}

// starter [--only TASK]... LAB OUT
static void make_starter(int count, char **arguments) {
    int named = 0;
    while (named + 1 < count && strcmp(arguments[named], "--only") == 0) named += 2;
    if (count - named != 2) refuse("usage: %s", usage);
    struct marked_file lab = read_or_refuse(arguments[named]);
    require_solved(&lab);
    int wanted[MOST_TASKS] = {0};
    for (int i = 0; i < named; i += 2) {
        const struct task *task = find_task(&lab, arguments[i + 1]);
        if (!task) {
            char text[800];
            suggest_task(&lab, arguments[i + 1], text, sizeof text);
            refuse("%s has no task %s.%s", lab.path, arguments[i + 1], text);
        }
        wanted[task - lab.tasks] = 1;
    }
    FILE *out = open_or_refuse(arguments[named + 1]);
    close_or_refuse(out, write_starter(&lab, named ? wanted : NULL, out), arguments[named + 1]);
    free_marked(&lab);
}

static void take_solutions(const char *lab_path, const char *out_path) {
    struct marked_file lab = read_or_refuse(lab_path);
    require_solved(&lab);
    FILE *out = open_or_refuse(out_path);
    close_or_refuse(out, write_solutions(&lab, out), out_path);
    free_marked(&lab);
}

static void insert_solutions(const char *starter_path, const char *solutions_path, const char *out_path) {
    struct marked_file starter = read_or_refuse(starter_path), solutions = read_or_refuse(solutions_path);
    require_solved(&solutions);
    for (int i = 0; i < solutions.task_count; i++) {
        const char *name = solutions.tasks[i].name;
        if (find_task(&starter, name)) continue;
        char text[800];
        suggest_task(&starter, name, text, sizeof text);
        refuse("%s solves %s, which is no task of %s.%s", solutions_path, name, starter_path, text);
    }
    FILE *out = open_or_refuse(out_path);
    close_or_refuse(out, write_solved(&starter, &solutions, out), out_path);
    free_marked(&solutions);
    free_marked(&starter);
}

static void list_tasks(const char *path) {
    struct marked_file file = read_or_refuse(path);
    for (int i = 0; i < file.task_count; i++)
        printf("%s  lines %d-%d  %s\n", file.tasks[i].name, file.tasks[i].first + 1, file.tasks[i].last + 1,
               file.tasks[i].hint);
    free_marked(&file);
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "starter") == 0)
        make_starter(argc - 2, argv + 2);
    else if (strcmp(command, "solutions") == 0 && argc == 4)
        take_solutions(argv[2], argv[3]);
    else if (strcmp(command, "insert") == 0 && argc == 5)
        insert_solutions(argv[2], argv[3], argv[4]);
    else if (strcmp(command, "list") == 0 && argc == 3)
        list_tasks(argv[2]);
    else
        refuse("usage: %s", usage);
    return 0;
}
