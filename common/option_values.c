#include "option_values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suggest.h"

static const char *const layout_names[LAYOUT_COUNT] = {"bhsd", "bshd"};
const char *layout_name(enum layout layout) { return layout_names[layout]; }

// Types a lab may store its tensors in; fp64 is for files only.
static const char *const dtype_words[] = {"fp16", "bf16", "e4m3", "e5m2", "fp32", "fp8"};
enum { DTYPE_WORDS = sizeof dtype_words / sizeof *dtype_words };

static int unknown_value(const char *option, const char *value, const struct words *words,
                         struct message *why) {
    char hint[600];
    suggest(hint, sizeof hint, words, "", value, NULL);
    return fail(why, "--%s does not know \"%.60s\".%s", option, value, hint);
}

int parse_int(const char *option, const char *value, int least, int *to, struct message *why) {
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    int digits = *value >= '0' && *value <= '9';
    if (*value == '-' && end != value && *end == '\0')
        return fail(why, "--%s is %.40s; it must be at least %d.", option, value, least);
    if (!digits || *end != '\0') return fail(why, "--%s needs a whole number, not \"%.60s\".", option, value);
    if (errno == ERANGE || number > INT32_MAX)
        return fail(why, "--%s is %.40s; it must be at most %d.", option, value, INT32_MAX);
    if (number < least) return fail(why, "--%s is %lld; it must be at least %d.", option, number, least);
    *to = (int)number;
    return 0;
}

int parse_u64(const char *option, const char *value, uint64_t *to, struct message *why) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end != '\0')
        return fail(why, "--%s needs a whole number from 0, not \"%.60s\".", option, value);
    if (errno == ERANGE) return fail(why, "--%s is %.40s; it must be below 2^64.", option, value);
    *to = number;
    return 0;
}

int parse_scale(const char *value, float *to, struct message *why) {
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || *value == ' ')
        return fail(why, "--scale needs a number, not \"%.60s\".", value);
    if (!isfinite(number) || !isfinite((float)number))
        return fail(why, "--scale must be finite, not %.40s.", value);
    *to = (float)number;
    return 0;
}

int parse_dtype(const char *value, enum dtype *to, struct message *why) {
    struct words words = {.count = 0};
    for (int i = 0; i < DTYPE_WORDS; ++i) {
        add_word(&words, dtype_words[i]);
        if (strcmp(value, dtype_words[i]) == 0) {
            *to = dtype_from_name(value);
            return 0;
        }
    }
    return unknown_value("dtype", value, &words, why);
}

int parse_layout(const char *value, enum layout to[4], struct message *why) {
    int n = 0;
    for (const char *at = value;; ++n) {
        size_t length = strcspn(at, ",");
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)(length < 60 ? length : 60), at);
        int layout = 0;
        while (layout < LAYOUT_COUNT && strcmp(word, layout_names[layout]) != 0) ++layout;
        if (layout == LAYOUT_COUNT) {
            struct words words = {.word = {layout_names[0], layout_names[1]}, .count = 2};
            return unknown_value("layout", word, &words, why);
        }
        if (n < 4) to[n] = (enum layout)layout;
        at += length;
        if (*at++ == '\0') break;
    }
    ++n;
    if (n == 1) to[1] = to[2] = to[3] = to[0];
    if (n != 1 && n != 4)
        return fail(why, "--layout takes one word for all tensors or four for q,k,v,o, not %d.", n);
    return 0;
}

// The next item of a list, of which *at is what remains: null when none does. An item that is empty or too
// long for a number is cut to what the complaint about it shows.
static const char *next_item(const char **at, char item[48]) {
    if (!*at) return NULL;
    size_t length = strcspn(*at, ",");
    snprintf(item, 48, "%.*s", (int)(length < 47 ? length : 47), *at);
    *at = (*at)[length] == ',' ? *at + length + 1 : NULL;
    return item;
}

int parse_window(struct options *o, struct message *why) {
    const char *value = o->window_text;
    int side[2] = {0, 0}, n = 0;
    char item[48];
    for (const char *at = value; next_item(&at, item); ++n) {
        if (n == 2) return fail(why, "--window takes one number or two, L,R, not \"%.60s\".", value);
        if (strcmp(item, "-1") == 0)
            side[n] = NO_LIMIT;
        else if (*item == '-')
            return fail(why, "--window is %.60s; a side is at least 0, or -1 for no limit.", value);
        else if (parse_int("window", item, 0, &side[n], why) != 0)
            return -1;
    }
    o->window = 1, o->window_left = side[0], o->window_right = n == 2 ? side[1] : o->causal ? 0 : side[0];
    return 0;
}

int parse_seqlens(const char *option, const char *value, int *cu_seqlens, int *sequences,
                  struct message *why) {
    int n = 0, length = 0;
    char item[48];
    cu_seqlens[0] = 0;
    for (const char *at = value; next_item(&at, item); ++n) {
        if (n == MAX_SEQUENCES)
            return fail(why, "--%s has more than %d sequences; give fewer.", option, MAX_SEQUENCES);
        if (*item == '\0')
            return fail(why, "--%s has no number %s; it takes lengths with commas between, as in 17,0,300.",
                        option, *value ? "between two commas or at an end" : "at all");
        if (parse_int(option, item, 0, &length, why) != 0) return -1;
        if (length > INT32_MAX - cu_seqlens[n])
            return fail(why, "--%s adds up to more than %d tokens; give fewer or shorter sequences.", option,
                        INT32_MAX);
        cu_seqlens[n + 1] = cu_seqlens[n] + length;
    }
    *sequences = n;
    return 0;
}

int parse_inputs(const char *value, enum input_kind *to, struct message *why) {
    *to = inputs_from_name(value);
    if (*to != INPUTS_COUNT) return 0;
    struct words words = {.count = 0};
    for (int i = 0; i < INPUTS_COUNT; ++i) add_word(&words, inputs_name((enum input_kind)i));
    return unknown_value("inputs", value, &words, why);
}

int parse_kernel(const char *value, const struct lab *lab, struct options *o, struct message *why) {
    struct words words = {.count = 0};
    int known = 0;
    for (int i = 0; i < lab->kernel_count; ++i) {
        add_word(&words, lab->kernels[i].name);
        known |= strcmp(value, lab->kernels[i].name) == 0;
    }
    if (!known) return unknown_value("kernel", value, &words, why);
    for (int i = 0; i < o->kernel_count; ++i)
        if (strcmp(o->kernel[i], value) == 0) return 0;  // asked for twice, run once
    if (o->kernel_count == MAX_CHOSEN_KERNELS)
        return fail(why, "--kernel is given more than %d times.", MAX_CHOSEN_KERNELS);
    o->kernel[o->kernel_count++] = value;
    return 0;
}

int parse_path(const char *option, const char *value, const char **to, struct message *why) {
    if (*value == '\0') return fail(why, "--%s needs a path, not an empty word.", option);
    *to = value;
    return 0;
}
