#define _DEFAULT_SOURCE
#include "result.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

const char *status_name(enum status status) {
    static const char *const names[] = {"passed", "partly", "failed", "blocked", "error"};
    return status < STATUSES ? names[status] : "?";
}

struct points result_points(const struct lab_result *result) {
    struct points p = {0, 0, 0, 0};
    for (int i = 0; i < result->count; ++i) {
        const struct test_result *t = &result->tests[i];
        int counts = t->status != STATUS_BLOCKED && t->status != STATUS_ERROR;
        *(counts ? &p.possible : &p.blocked) += t->possible;
        p.earned += counts ? t->earned : 0;
        p.errors += t->status == STATUS_ERROR;
    }
    return p;
}

void result_say(struct test_result *test, const char *format, ...) {
    size_t length = strlen(test->text);
    if (length + 2 >= sizeof test->text) return;
    if (length > 0) test->text[length++] = '\n';
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(test->text + length, sizeof test->text - length, format, arguments);
    va_end(arguments);
    // What a program printed may hold anything; a report is text, and in JSON and XML has to be some
    // encoding's.
    for (char *at = test->text + length; *at; ++at)
        if (((unsigned char)*at < ' ' && *at != '\n') || (unsigned char)*at > '~') *at = '?';
    length = strlen(test->text);
    while (length > 0 && (test->text[length - 1] == '\n' || test->text[length - 1] == ' '))
        test->text[--length] = '\0';
}

// ---------------------------------------------------------------- the file

static void write_test(FILE *out, const struct test_result *t) {
    fprintf(out, "test %s %d %d %.17g %.17g %d\n", t->name, (int)t->kind, (int)t->status, t->earned,
            t->possible, t->hidden);
    for (const char *line = t->text; *line;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "text %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

int result_write(const struct lab_result *result, const char *path, struct message *why) {
    char temporary[MAX_PATH];
    if (text_path(temporary, why, "%s.new", path) != 0) return -1;
    FILE *out = fopen(temporary, "w");
    if (!out) return fail(why, "%s cannot be written: %s.", temporary, strerror(errno));
    fprintf(out, "key %016" PRIx64 "\nlab %s\nseconds %.3f\n", result->key, result->lab, result->seconds);
    for (int i = 0; i < result->remarks; ++i) fprintf(out, "remark %s\n", result->remark[i]);
    for (int i = 0; i < result->count; ++i) write_test(out, &result->tests[i]);
    fputs("end\n", out);
    int good = !ferror(out);
    if (fclose(out) != 0 || !good || rename(temporary, path) != 0)
        return fail(why, "%s could not be written to its end: %s.", path, strerror(errno));
    return 0;
}

static int add_test(struct lab_result *result, const char *line) {
    struct test_result *more = realloc(result->tests, (size_t)(result->count + 1) * sizeof *more);
    if (!more) return -1;
    result->tests = more;
    struct test_result *t = &more[result->count];
    memset(t, 0, sizeof *t);
    int kind = 0, status = 0;
    if (sscanf(line, "%95s %d %d %lf %lf %d", t->name, &kind, &status, &t->earned, &t->possible,
               &t->hidden) != 6 ||
        kind < 0 || kind >= KINDS || status < 0 || status >= STATUSES)
        return -1;
    t->kind = (enum kind)kind, t->status = (enum status)status;
    ++result->count;
    return 0;
}

// Returns 0, 1 at the end that a whole file has, or -1.
static int take_line(struct lab_result *result, const char *line) {
    if (strncmp(line, "key ", 4) == 0) return sscanf(line + 4, "%" SCNx64, &result->key) == 1 ? 0 : -1;
    if (strncmp(line, "lab ", 4) == 0) return sscanf(line + 4, "%47s", result->lab) == 1 ? 0 : -1;
    if (strncmp(line, "seconds ", 8) == 0) return sscanf(line + 8, "%lf", &result->seconds) == 1 ? 0 : -1;
    if (strncmp(line, "test ", 5) == 0) return add_test(result, line + 5);
    if (strncmp(line, "text ", 5) == 0 && result->count > 0) {
        result_say(&result->tests[result->count - 1], "%s", line + 5);
        return 0;
    }
    if (strncmp(line, "remark ", 7) == 0 && result->remarks < SCAN_REMARKS) {
        snprintf(result->remark[result->remarks++], sizeof *result->remark, "%s", line + 7);
        return 0;
    }
    return strcmp(line, "end") == 0 ? 1 : -1;
}

int result_read(struct lab_result *result, const char *path, uint64_t key) {
    struct message why = {""};
    memset(result, 0, sizeof *result);
    char *text = text_read(path, 1 << 24, &why);
    if (!text) return 0;
    char *at = text;
    int status = 0;
    for (char *line; status == 0 && (line = text_line(&at)) != NULL;) status = take_line(result, line);
    free(text);
    if (status == 1 && result->key == key) return 1;
    result_free(result);
    return 0;
}

void result_free(struct lab_result *result) {
    free(result->tests);
    memset(result, 0, sizeof *result);
}
