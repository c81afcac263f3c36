// mutate.c - makes a wrong kernel: copies a lab's source with one line replaced, as wrong.txt says, and with
// the kernels that the entry is not about left out of the lab's table, so that they need not be compiled.
//
//     mutate WRONG.TXT NAME ROOT OUT.cu
//     mutate WRONG.TXT ROOT               writes nothing, but says of each entry that cannot be made why not
//
// NAME is an entry of WRONG.TXT; ROOT is the folder that the entry's file is relative to. The line to replace
// must be there exactly once: were it gone, or doubled, after an edit of the lab, the mutant would quietly be
// another one or none at all. Then OUT.cu becomes a program that only says so and exits 3, which
// run_wrong.sh takes for a failure: this one test fails, and the other wrong kernels are built and run.
// Exit 0 (without OUT.cu 1, if there is such an entry), or 2 with one sentence for what no edit of a lab
// explains.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1024, PATH_MAX_BYTES = 4096 };

struct entry {
    char file[LINE_MAX_BYTES];  // relative to ROOT
    char find[LINE_MAX_BYTES];  // the right line, without its indentation
    char with[LINE_MAX_BYTES];  // what takes its place
    char in[LINE_MAX_BYTES];    // if not empty: look only between the line that begins like this and the next
                                // "}"
    char kernel[LINE_MAX_BYTES];  // if not empty: the one kernel to keep
};

// Where a lab's table of kernels begins; it ends at the next "}" in the first column. A kernel's part of it
// begins with {"NAME".
static const char table_begins[] = "static const struct kernel kernels[] = {";

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("mutate: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

// Reads a line without its end into line (LINE_MAX_BYTES). Returns 0 at the end of the file.
static int read_line(FILE *file, const char *path, char *line) {
    if (!fgets(line, LINE_MAX_BYTES, file)) return 0;
    size_t length = strlen(line);
    if (length + 1 == LINE_MAX_BYTES) refuse("%s has a line of %d bytes or more", path, LINE_MAX_BYTES - 1);
    line[strcspn(line, "\r\n")] = '\0';
    return 1;
}

static const char *without_indentation(const char *line) { return line + strspn(line, " \t"); }

// If line is "key value" copies the value, less the spaces that align it, and returns 1.
static int take(const char *line, const char *key, char *value) {
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0 || (line[length] != ' ' && line[length] != '\0')) return 0;
    strcpy(value, without_indentation(line + length));
    return 1;
}

static struct entry read_entry(const char *path, const char *name) {
    FILE *file = fopen(path, "r");
    if (!file) refuse("cannot read %s", path);
    struct entry entry = {.file = ""};
    char line[LINE_MAX_BYTES], value[LINE_MAX_BYTES];
    int here = 0, found = 0;
    while (read_line(file, path, line)) {
        if (take(line, "wrong", value)) {
            here = strcmp(value, name) == 0;
            found += here;
        } else if (here) {
            // The other keys are for CMakeLists.txt and the runner.
            if (!take(line, "file", entry.file) && !take(line, "find", entry.find) &&
                !take(line, "with", entry.with) && !take(line, "in", entry.in))
                take(line, "kernel", entry.kernel);
        }
    }
    fclose(file);
    if (found != 1) refuse("%s has %d entries named %s, not one", path, found, name);
    if (!entry.file[0] || !entry.find[0]) refuse("entry %s of %s lacks a file or find line", name, path);
    return entry;
}

// Whether code, a line of the table of kernels, begins the part of a kernel, and of that one.
static int begins_kernel(const char *code) { return strncmp(code, "{\"", 2) == 0; }
static int begins_kernel_named(const char *code, const char *name) {
    size_t length = strlen(name);
    return begins_kernel(code) && strncmp(code + 2, name, length) == 0 && code[2 + length] == '"';
}

// Writes text into a C string literal.
static void write_escaped(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '"' || *text == '\\' || *text == '?') fputc('\\', out);  // ? begins trigraphs
        fputc(*text, out);
    }
}

// Writes, in place of the mutant, the program that says why there is none: FILE REASON "QUOTED" ....
static int write_refusal(const char *path, const char *file, const char *reason, const char *quoted) {
    FILE *out = fopen(path, "w");
    if (!out) return -1;
    fputs("#include <stdio.h>\n\nint main() {\n    puts(\"this wrong kernel cannot be made: ", out);
    write_escaped(out, file);
    fprintf(out, " %s \\\"", reason);
    write_escaped(out, quoted);
    fputs("\\\" (you changed it? then bring wrong.txt up to date)\");\n    return 3;\n}\n", out);
    return fclose(out);
}

// What was seen of an entry on the way through its file.
struct seen {
    int places, matches;  // lines that begin like entry.in, lines to replace
    int tables, kept;     // tables of kernels, and kernels of them that are not left out
};

// Writes to out, if there is one.
static struct seen copy_lab(FILE *in, const char *path, const struct entry *entry, FILE *out) {
    char line[LINE_MAX_BYTES];
    struct seen seen = {0, 0, 0, 0};
    int looking = !entry->in[0], in_table = 0, left_out = 0;
    while (read_line(in, path, line)) {
        if (entry->in[0] && strncmp(line, entry->in, strlen(entry->in)) == 0) looking = 1, seen.places++;
        if (entry->in[0] && line[0] == '}') looking = 0;
        const char *code = without_indentation(line);
        if (strcmp(line, table_begins) == 0) {
            in_table = 1, seen.tables++;
        } else if (in_table && line[0] == '}') {
            in_table = left_out = 0;
        } else if (in_table && entry->kernel[0] && begins_kernel(code)) {
            left_out = !begins_kernel_named(code, entry->kernel);
            seen.kept += !left_out;
        }
        int is_match = !left_out && looking && strcmp(code, entry->find) == 0;
        seen.matches += is_match;
        if (!out) continue;
        if (left_out)
            fputc('\n', out);  // the lines below keep their numbers
        else if (is_match)
            fprintf(out, "%.*s%s\n", (int)(code - line), line, entry->with);
        else
            fprintf(out, "%s\n", line);
    }
    return seen;
}

// The lab's source, for reading; path (PATH_MAX_BYTES) is where it is.
static FILE *open_lab(const struct entry *entry, const char *name, const char *root, char *path) {
    if (snprintf(path, PATH_MAX_BYTES, "%s/%s", root, entry->file) >= PATH_MAX_BYTES) refuse("path too long");
    FILE *in = fopen(path, "r");
    if (!in) refuse("cannot read %s, named by entry %s", path, name);
    return in;
}

// Makes the wrong kernel of the lab, closes that, and writes the kernel to out, if there is one. Returns
// NULL, or why it cannot be made; then *quoted is what that is about.
static const char *make(const struct entry *entry, FILE *in, const char *path, FILE *out,
                        const char **quoted) {
    struct seen seen = copy_lab(in, path, entry, out);
    fclose(in);
    *quoted = entry->in;
    if (entry->in[0] && seen.places != 1)
        return seen.places ? "has several lines that begin" : "no longer has a line that begins";
    *quoted = entry->find;
    if (seen.matches != 1) return seen.matches ? "has more than once the line" : "no longer has the line";
    *quoted = entry->kernel;
    if (seen.tables && entry->kernel[0] && seen.kept != 1) return "no longer has the kernel";
    return NULL;
}

// Whether all entries of the table can be made; says which cannot.
static int check_table(const char *table, const char *root) {
    FILE *file = fopen(table, "r");
    if (!file) refuse("cannot read %s", table);
    char line[LINE_MAX_BYTES], name[LINE_MAX_BYTES];
    int entries = 0, bad = 0;
    while (read_line(file, table, line)) {
        if (!take(line, "wrong", name)) continue;
        struct entry entry = read_entry(table, name);
        char path[PATH_MAX_BYTES];
        FILE *in = open_lab(&entry, name, root, path);
        const char *quoted, *reason = make(&entry, in, path, NULL, &quoted);
        if (reason)
            printf("the wrong kernel %s cannot be made: %s %s \"%s\"\n", name, entry.file, reason, quoted);
        entries++, bad += reason != NULL;
    }
    fclose(file);
    if (!entries) refuse("%s has no entries", table);
    printf("%d of %d wrong kernels can be made\n", entries - bad, entries);
    return bad == 0;
}

int main(int argc, char **argv) {
    if (argc == 3) return check_table(argv[1], argv[2]) ? 0 : 1;
    if (argc != 5) refuse("usage: mutate WRONG.TXT NAME ROOT OUT.cu, or mutate WRONG.TXT ROOT");
    struct entry entry = read_entry(argv[1], argv[2]);
    char path[PATH_MAX_BYTES];
    FILE *in = open_lab(&entry, argv[2], argv[3], path), *out = fopen(argv[4], "w");
    if (!out) refuse("cannot write %s", argv[4]);
    const char *quoted, *reason = make(&entry, in, path, out, &quoted);
    int failed = fclose(out) != 0;
    if (!failed && reason) failed = write_refusal(argv[4], entry.file, reason, quoted) != 0;
    if (!failed) return 0;
    remove(argv[4]);
    refuse("cannot write %s", argv[4]);
}
