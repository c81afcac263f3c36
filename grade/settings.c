#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/suggest.h"

struct option {
    const char *name;
    const char **value;
};

static int is_lab(const char *name, const char *lab) {
    char number[8];
    if (strncmp(name, "lab", 3) == 0 && strcmp(name, lab) == 0) return 1;
    if (strncmp(name, "lab", 3) == 0) name += 3;
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 2 || name[digits] != '\0') return 0;
    snprintf(number, sizeof number, "lab%02d_", atoi(name));  // NOLINT: two digits at most
    return strncmp(lab, number, strlen(number)) == 0;
}

int settings_choose(const struct settings *s, const char *lab) {
    for (int i = 0; i < s->lab_count; ++i)
        if (is_lab(s->labs[i], lab)) return 1;
    return s->lab_count == 0;
}

static int unknown(const char *word, const struct option *options, int count, struct message *why) {
    struct words words = {.count = 0};
    char hint[200];
    for (int i = 0; i < count; ++i) add_word(&words, options[i].name);
    suggest(hint, sizeof hint, &words, "--", word + strspn(word, "-"), NULL);
    return fail(why, "There is no option %.60s.%s", word, hint);
}

static int read_number(const char *option, const char *text, int otherwise, int most, int *number,
                       struct message *why) {
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : otherwise;
    if ((text && (end == text || *end)) || value < 1 || value > most)
        return fail(why, "--%s needs a number from 1 to %d, not \"%.40s\".", option, most, text);
    *number = (int)value;
    return 0;
}

static int check(const struct settings *s, struct message *why) {
    if (!s->root || !s->tools)
        return fail(why,
                    "--root and --tools are missing: start the grader as ./lab grade, which gives them.");
    if (!s->submission && !s->all)
        return fail(why,
                    "There is nothing to grade: name a submission (a folder or a .cu file), or --all FOLDER "
                    "of submissions.");
    if (s->submission && s->all)
        return fail(why, "%.200s and --all are two things to grade; give one of them.", s->submission);
    if (s->all && (s->json || s->junit || s->gradescope))
        return fail(why,
                    "--%s is of one submission; with --all each has its own files in the folder of --out.",
                    s->json    ? "json"
                    : s->junit ? "junit"
                               : "gradescope");
    return 0;
}

int settings_read(int argc, char **argv, struct settings *s, struct message *why) {
    const char *jobs = NULL, *lab = NULL, *seconds = NULL;
    memset(s, 0, sizeof *s);
    const struct option options[] = {{"root", &s->root},     {"tools", &s->tools},
                                     {"gpu", &s->gpu},       {"all", &s->all},
                                     {"hidden", &s->hidden}, {"out", &s->out},
                                     {"json", &s->json},     {"junit", &s->junit},
                                     {"jobs", &jobs},        {"gradescope", &s->gradescope},
                                     {"lab", &lab},          {"seconds", &seconds}};
    enum { OPTIONS = sizeof options / sizeof *options };
    for (int i = 1; i < argc; ++i) {
        const char *word = argv[i];
        if (strncmp(word, "--", 2) != 0) {
            if (s->submission)
                return fail(why, "%.200s and %.200s are two submissions; put both into a folder for --all.",
                            s->submission, word);
            s->submission = word;
            continue;
        }
        size_t length = strcspn(word + 2, "=");
        int at = 0;
        while (at < OPTIONS &&
               (strlen(options[at].name) != length || strncmp(options[at].name, word + 2, length) != 0))
            ++at;
        if (at == OPTIONS) return unknown(word, options, OPTIONS, why);
        const char *value = word[2 + length] == '=' ? word + 3 + length : i + 1 < argc ? argv[++i] : NULL;
        if (!value || !*value) return fail(why, "--%s needs a value.", options[at].name);
        if (*options[at].value && options[at].value != &lab)
            return fail(why, "--%s is given twice.", options[at].name);
        *options[at].value = value;
        if (options[at].value != &lab) continue;
        if (s->lab_count == MAX_LABS) return fail(why, "--lab is given more than %d times.", MAX_LABS);
        s->labs[s->lab_count++] = value;
    }
    if (read_number("jobs", jobs, 1, 500, &s->jobs, why) != 0 ||
        read_number("seconds", seconds, 20, 3600, &s->seconds, why) != 0)
        return -1;
    return check(s, why);
}
