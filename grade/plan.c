#define _DEFAULT_SOURCE
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum { COLUMNS = 7, MOST_BYTES = 1 << 20 };
static const char *const heads[COLUMNS] = {"test", "lab", "kernel", "kind", "judged", "points", "case"};

const char *kind_name(enum kind kind) {
    static const char *const names[] = {"correct", "sanitize", "io", "speed"};
    return kind < KINDS ? names[kind] : "?";
}

// ---------------------------------------------------------------- cases.cmake

static int has_word(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return 1;
    return 0;
}

static void add_word(char options[TEST_OPTIONS], const char *word) {
    size_t length = strlen(options);
    snprintf(options + length, TEST_OPTIONS - length, "%s%s", length ? " " : "", word);
}

// What a case leaves out: tests/CMakeLists.txt, complete_case.
static void complete(char options[TEST_OPTIONS]) {
    if (!has_word(options, "--causal") && !has_word(options, "--full")) add_word(options, "--full");
    if (!has_word(options, "--seqlens") && !has_word(options, "--seqlens-q") && !has_word(options, "--batch"))
        add_word(options, "--batch 1");
    if (!has_word(options, "--heads")) add_word(options, "--heads 2");
    if (!has_word(options, "--dim")) add_word(options, "--dim 64");
}

// The options of the case of that name, if the text has it: lab_case(NAME [KEYWORD...] OPTIONS...).
static int find_case(const char *text, const char *name, char options[TEST_OPTIONS]) {
    static const char begin[] = "lab_case(";
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, begin, sizeof begin - 1) != 0) continue;
        char words[TEST_OPTIONS];
        size_t length = strcspn(line + sizeof begin - 1, ")\n");
        if (length >= sizeof words) continue;
        memcpy(words, line + sizeof begin - 1, length);
        words[length] = '\0';
        char *rest = NULL, *word = strtok_r(words, " ", &rest);
        if (!word || strcmp(word, name) != 0) continue;
        options[0] = '\0';
        while ((word = strtok_r(NULL, " ", &rest)) != NULL)
            if (word[0] < 'A' || word[0] > 'Z') add_word(options, word);
        complete(options);
        return strchr(options, '$') == NULL;
    }
    return 0;
}

// ---------------------------------------------------------------- points.csv

// Splits a line at its commas; the last column takes the rest, commas and all, and may be in quotes.
static int split(char *line, char *column[COLUMNS]) {
    for (int i = 0; i < COLUMNS; ++i) {
        column[i] = line;
        if (i + 1 == COLUMNS) break;
        char *comma = strchr(line, ',');
        if (!comma) return -1;
        *comma = '\0';
        line = comma + 1;
    }
    char *last = column[COLUMNS - 1];
    size_t length = strlen(last);
    if (length >= 2 && last[0] == '"' && last[length - 1] == '"')
        last[length - 1] = '\0', column[COLUMNS - 1] = last + 1;
    return 0;
}

static int copy_word(char *to, size_t bytes, const char *from) {
    // They become parts of paths, of command lines and of reports.
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    if (!*from || strlen(from) >= bytes || from[strspn(from, allowed)] != '\0') return -1;
    strcpy(to, from);
    return 0;
}

static int read_test(struct test *t, char *column[COLUMNS], const char *const cases[2], const char *where,
                     struct message *why) {
    char *words[] = {t->name, t->lab, t->kernel, NULL, t->judged};
    static const size_t sizes[] = {TEST_NAME, TEST_WORD, TEST_WORD, 0, TEST_WORD};
    for (int i = 0; i < 5; ++i)
        if (words[i] && copy_word(words[i], sizes[i], column[i]) != 0)
            return fail(why, "%s: \"%.60s\" is no %s: letters, digits, . - and _ only.", where, column[i],
                        heads[i]);
    t->kind = KINDS;
    for (int i = 0; i < KINDS; ++i)
        if (strcmp(column[3], kind_name((enum kind)i)) == 0) t->kind = (enum kind)i;
    if (t->kind == KINDS)
        return fail(why, "%s: the kind \"%.60s\" is not correct, sanitize, io or speed.", where, column[3]);
    char *end = NULL;
    t->points = strtod(column[5], &end);
    if (end == column[5] || *end || !(t->points > 0 && t->points <= 1000))
        return fail(why, "%s: \"%.60s\" are no points: a number above 0, at most 1000.", where, column[5]);
    if (strncmp(column[6], "--", 2) == 0) {
        snprintf(t->options, sizeof t->options, "%s", column[6]);
        complete(t->options);
        return 0;
    }
    for (int i = 0; i < 2; ++i)
        if (cases[i] && find_case(cases[i], column[6], t->options)) return 0;
    return fail(why, "%s: there is no case \"%.60s\" in cases.cmake.", where, column[6]);
}

static int add_test(struct plan *plan, const struct test *test, const char *where, struct message *why) {
    for (int i = 0; i < plan->count; ++i)
        if (strcmp(plan->tests[i].name, test->name) == 0)
            return fail(why, "%s: there are two tests named %s.", where, test->name);
    struct test *more = realloc(plan->tests, (size_t)(plan->count + 1) * sizeof *more);
    if (!more) return fail(why, "There is no memory left.");
    plan->tests = more;
    plan->tests[plan->count++] = *test;
    return 0;
}

static int read_points(struct plan *plan, const char *path, const char *const cases[2], int hidden,
                       struct message *why) {
    char *text = text_read(path, MOST_BYTES, why);
    if (!text) return -1;
    int status = 0, number = 0, first = 1;
    char *at = text;
    for (char *line; status == 0 && (line = text_line(&at)) != NULL;) {
        char where[MAX_PATH + 40], *column[COLUMNS];
        snprintf(where, sizeof where, "%s, line %d", path, ++number);
        if (line[0] == '#' || line[0] == '\0') continue;
        if (split(line, column) != 0) {
            status = fail(why, "%s: it has fewer than %d columns.", where, COLUMNS);
            break;
        }
        if (first && strcmp(column[0], heads[0]) == 0) {
            first = 0;
            continue;
        }
        struct test test = {.hidden = hidden};
        status = read_test(&test, column, cases, where, why);
        if (status == 0) status = add_test(plan, &test, where, why);
    }
    free(text);
    return status;
}

static void take_checksum(struct plan *plan) {
    plan->checksum = TEXT_CHECKSUM;
    for (int i = 0; i < plan->count; ++i) {
        const struct test *t = &plan->tests[i];
        char line[TEST_NAME + 3 * TEST_WORD + TEST_OPTIONS + 100];
        int length = snprintf(line, sizeof line, "%s,%s,%s,%d,%s,%g,%s\n", t->name, t->lab, t->kernel,
                              (int)t->kind, t->judged, t->points, t->options);
        plan->checksum = text_checksum(plan->checksum, line, (size_t)length);
    }
}

int plan_read(struct plan *plan, const char *root, const char *hidden, struct message *why) {
    char path[MAX_PATH];
    char *cases[2] = {NULL, NULL};
    struct message none = {""};
    memset(plan, 0, sizeof *plan);
    int status = text_path(path, why, "%s/tests/cases.cmake", root);
    if (status == 0 && !(cases[0] = text_read(path, MOST_BYTES, why))) status = -1;
    if (status == 0) status = text_path(path, why, "%s/tests/points.csv", root);
    if (status == 0) status = read_points(plan, path, (const char *const *)cases, 0, why);
    if (status == 0 && hidden) {
        status = text_path(path, why, "%s/cases.cmake", hidden);
        if (status == 0) cases[1] = text_read(path, MOST_BYTES, &none);  // it may be missing
        if (status == 0) status = text_path(path, why, "%s/points.csv", hidden);
        if (status == 0) status = read_points(plan, path, (const char *const *)cases, 1, why);
    }
    free(cases[0]);
    free(cases[1]);
    if (status == 0 && plan->count == 0) status = fail(why, "%s has no tests.", path);
    if (status != 0) plan_free(plan);
    take_checksum(plan);
    return status;
}

void plan_free(struct plan *plan) {
    free(plan->tests);
    memset(plan, 0, sizeof *plan);
}
