#include "markers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char begin_solution[] = "// BEGIN SOLUTION", end_solution[] = "// END SOLUTION";
static const char begin_todo[] = "// TODO", end_todo[] = "// END TODO";
static const char stub[] = "// STUB";

// ---- lines ----

// The file's text in memory, or NULL and why.
static char *read_text(const char *path, size_t *bytes, struct message *why) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail(why, "cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = NULL;
    size_t room = 0, got = 1;
    for (*bytes = 0; got > 0; *bytes += got) {
        if (*bytes == room) {
            room = room ? 2 * room : 1 << 17;
            char *more = realloc(text, room);
            if (!more) break;
            text = more;
        }
        got = fread(text + *bytes, 1, room - *bytes, file);
    }
    int whole = text && feof(file) && !ferror(file);
    fclose(file);
    if (whole && !memchr(text, '\0', *bytes)) return text;
    fail(why, whole ? "%s has a byte 0 in it, and is no text" : "cannot read all of %s", path);
    free(text);
    return NULL;
}

static int split_lines(struct marked_file *file, size_t bytes, struct message *why) {
    int count = 0;
    for (size_t i = 0; i < bytes; i++) count += file->text[i] == '\n';
    file->lines = calloc((size_t)count + 1, sizeof *file->lines);
    if (!file->lines) return fail(why, "no memory for the lines of %s", file->path);
    file->line_count = 0;
    for (size_t at = 0; at < bytes;) {
        const char *start = file->text + at, *end = memchr(start, '\n', bytes - at);
        size_t length = end ? (size_t)(end - start) + 1 : bytes - at;
        file->lines[file->line_count++] = (struct line){start, length};
        at += length;
    }
    return 0;
}

static size_t indentation(struct line line) {
    size_t n = 0;
    while (n < line.bytes && (line.text[n] == ' ' || line.text[n] == '\t')) n++;
    return n;
}

// The line without its indentation and without the spaces and the end of the line behind it.
static struct line content(struct line line) {
    size_t from = indentation(line), to = line.bytes;
    while (to > from && strchr(" \t\r\n", line.text[to - 1])) to--;
    return (struct line){line.text + from, to - from};
}

// Whether the line is this marker, alone or with something behind it: that goes to *rest.
static int is_marker(struct line line, const char *marker, struct line *rest) {
    struct line all = content(line);
    size_t length = strlen(marker);
    if (all.bytes < length || memcmp(all.text, marker, length) != 0) return 0;
    if (all.bytes > length && all.text[length] != ' ') return 0;
    *rest = content((struct line){all.text + length, all.bytes - length});
    return 1;
}

static char lower(char c) { return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

static int mentions(struct line line, const char *words) {
    size_t length = strlen(words);
    for (size_t at = 0; at + length <= line.bytes; at++) {
        size_t n = 0;
        while (n < length && lower(line.text[at + n]) == words[n]) n++;
        if (n == length) return 1;
    }
    return 0;
}

// ---- tasks ----

// "name: hint", behind a marker that opens a task.
static int parse_opening(const struct marked_file *file, int number, struct line rest, struct task *task,
                         struct message *why) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz", others[] = "0123456789_";
    const char *colon = memchr(rest.text, ':', rest.bytes);
    size_t length = colon ? (size_t)(colon - rest.text) : 0, n = 0;
    while (n < length && (strchr(letters, rest.text[n]) || (n > 0 && strchr(others, rest.text[n])))) n++;
    if (n == 0 || n != length || length >= sizeof task->name)
        return fail(why, "%s:%d: this marker needs a name in small letters and a hint: %s name: hint",
                    file->path, number + 1, task->is_solved ? begin_solution : begin_todo);
    memcpy(task->name, rest.text, length);
    task->name[length] = '\0';
    struct line hint = content((struct line){colon + 1, rest.bytes - length - 1});
    if (hint.bytes == 0 || hint.bytes >= sizeof task->hint)
        return fail(why, "%s:%d: task %s needs a hint of one to %zu characters behind its name and a colon",
                    file->path, number + 1, task->name, sizeof task->hint - 1);
    memcpy(task->hint, hint.text, hint.bytes);
    task->hint[hint.bytes] = '\0';
    const struct task *other = find_task(file, task->name);
    if (other)
        return fail(why, "%s:%d: there is a task %s already, in line %d: give this one another name",
                    file->path, number + 1, task->name, other->first + 1);
    task->first = number;
    return 0;
}

static int open_task(struct marked_file *file, int number, struct line rest, int is_solved,
                     const struct task *open, struct message *why) {
    if (open)
        return fail(why, "%s:%d: task %s, which begins in line %d, has not ended: tasks cannot be nested",
                    file->path, number + 1, open->name, open->first + 1);
    if (file->task_count == MOST_TASKS)
        return fail(why, "%s:%d: a file has %d tasks at most", file->path, number + 1, MOST_TASKS);
    struct task *task = &file->tasks[file->task_count];
    task->is_solved = is_solved;
    if (parse_opening(file, number, rest, task, why) != 0) return -1;
    file->task_count++;
    return 0;
}

static int close_task(const struct marked_file *file, int number, struct line rest, int is_solved,
                      struct task *open, int code_lines, struct message *why) {
    const char *wanted = open && open->is_solved ? end_solution : end_todo;
    if (!open)
        return fail(why, "%s:%d: this ends a task that never began: take it out, or add %s above it",
                    file->path, number + 1, is_solved ? begin_solution : begin_todo);
    if (open->is_solved != is_solved || rest.bytes > 0)
        return fail(why, "%s:%d: task %s, which begins in line %d, must end with a line %s", file->path,
                    number + 1, open->name, open->first + 1, wanted);
    if (is_solved && code_lines == 0)
        return fail(why, "%s:%d: task %s, which begins in line %d, has no solution in it", file->path,
                    number + 1, open->name, open->first + 1);
    open->last = number;
    return 0;
}

// A marker with a misprint would hand the solution out, so that what only resembles one is refused.
static int check_no_marker(const struct marked_file *file, int number, struct message *why) {
    struct line line = file->lines[number];
    if (!mentions(line, "begin solution") && !mentions(line, "end solution") && !mentions(line, "// stub") &&
        !mentions(line, "//stub"))
        return 0;
    return fail(why,
                "%s:%d: this is nearly a marker: one is a line of its own, \"%s name: hint\", \"%s code\" "
                "or \"%s\"",
                file->path, number + 1, begin_solution, stub, end_solution);
}

static int find_tasks(struct marked_file *file, struct message *why) {
    struct task *open = NULL;
    int code_lines = 0;
    for (int n = 0; n < file->line_count; n++) {
        struct line line = file->lines[n], rest;
        int solved = is_marker(line, begin_solution, &rest);
        if (solved || is_marker(line, begin_todo, &rest)) {
            if (open_task(file, n, rest, solved, open, why) != 0) return -1;
            open = &file->tasks[file->task_count - 1];
            code_lines = 0;
            continue;
        }
        solved = is_marker(line, end_solution, &rest);
        if (solved || is_marker(line, end_todo, &rest)) {
            if (close_task(file, n, rest, solved, open, code_lines, why) != 0) return -1;
            open = NULL;
        } else if (open && open->is_solved && is_marker(line, stub, &rest) && rest.bytes > 0) {
            continue;
        } else if (check_no_marker(file, n, why) != 0) {
            return -1;
        } else {
            code_lines += content(line).bytes > 0;
        }
    }
    if (!open) return 0;
    return fail(why, "%s:%d: task %s never ends: add a line %s", file->path, open->first + 1, open->name,
                open->is_solved ? end_solution : end_todo);
}

int read_marked(const char *path, struct marked_file *file, struct message *why) {
    size_t bytes = 0;
    *file = (struct marked_file){.path = path};
    file->text = read_text(path, &bytes, why);
    if (!file->text) return -1;
    if (split_lines(file, bytes, why) == 0 && find_tasks(file, why) == 0) {
        if (file->task_count > 0) return 0;
        fail(why, "%s has no task: mark one with %s name: hint and %s", path, begin_solution, end_solution);
    }
    free_marked(file);
    return -1;
}

void free_marked(struct marked_file *file) {
    free(file->lines);
    free(file->text);
    file->lines = NULL;
    file->text = NULL;
}

const struct task *find_task(const struct marked_file *file, const char *name) {
    for (int i = 0; i < file->task_count; i++)
        if (strcmp(file->tasks[i].name, name) == 0) return &file->tasks[i];
    return NULL;
}

// ---- what is made of them ----

static void write_lines(const struct marked_file *file, int first, int end, FILE *out) {
    for (int n = first; n < end; n++) fwrite(file->lines[n].text, 1, file->lines[n].bytes, out);
}

// The line with `text` and then `rest` for its content: it keeps its indentation and its end.
static void write_instead(struct line line, const char *text, struct line rest, FILE *out) {
    size_t indent = indentation(line), end = line.bytes;
    while (end > indent && strchr("\r\n", line.text[end - 1])) end--;
    fwrite(line.text, 1, indent, out);
    fputs(text, out);
    if (text[0] && rest.bytes > 0) fputc(' ', out);
    fwrite(rest.text, 1, rest.bytes, out);
    fwrite(line.text + end, 1, line.bytes - end, out);
}

static void write_todo(const struct marked_file *lab, const struct task *task, FILE *out) {
    struct line rest;
    if (is_marker(lab->lines[task->first], begin_solution, &rest))
        write_instead(lab->lines[task->first], begin_todo, rest, out);
    for (int n = task->first + 1; n < task->last; n++)
        if (is_marker(lab->lines[n], stub, &rest)) write_instead(lab->lines[n], "", rest, out);
    write_instead(lab->lines[task->last], end_todo, (struct line){"", 0}, out);
}

int write_starter(const struct marked_file *lab, const int *wanted, FILE *out) {
    int at = 0;
    for (int i = 0; i < lab->task_count; i++) {
        const struct task *task = &lab->tasks[i];
        if (wanted && !wanted[i]) continue;
        write_lines(lab, at, task->first, out);
        write_todo(lab, task, out);
        at = task->last + 1;
    }
    write_lines(lab, at, lab->line_count, out);
    return ferror(out) ? -1 : 0;
}

int write_solutions(const struct marked_file *lab, FILE *out) {
    for (int i = 0; i < lab->task_count; i++)
        if (lab->tasks[i].is_solved) write_lines(lab, lab->tasks[i].first, lab->tasks[i].last + 1, out);
    return ferror(out) ? -1 : 0;
}

int write_solved(const struct marked_file *starter, const struct marked_file *solutions, FILE *out) {
    int at = 0;
    for (int i = 0; i < starter->task_count; i++) {
        const struct task *task = &starter->tasks[i], *solution = find_task(solutions, task->name);
        if (!solution) continue;
        write_lines(starter, at, task->first, out);
        write_lines(solutions, solution->first, solution->last + 1, out);
        at = task->last + 1;
    }
    write_lines(starter, at, starter->line_count, out);
    return ferror(out) ? -1 : 0;
}
