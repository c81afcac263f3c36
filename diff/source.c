#include "source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int token_is(const struct token *t, const char *text) {
    return (size_t)t->length == strlen(text) && memcmp(t->text, text, (size_t)t->length) == 0;
}

int source_find(const struct source *s, const char *name, int length) {
    for (int i = 0; i < s->definitions; ++i)
        if ((size_t)length == strlen(s->definition[i].name) &&
            memcmp(name, s->definition[i].name, (size_t)length) == 0)
            return i;
    return -1;
}

// ---------------------------------------------------------------- tokens

static const char *const signs[] = {"<<<", ">>>", "<<=", ">>=", "...", "->", "++", "--",
                                    "<<",  "==",  "!=",  "<=",  ">=",  "&&", "||", "+=",
                                    "-=",  "*=",  "/=",  "%=",  "&=",  "|=", "^=", "::"};

// Where the literal that begins at `at` ends.
static const char *end_of_text(const char *at) {
    char quote = *at++;
    while (*at && *at != quote && *at != '\n') at += *at == '\\' && at[1] ? 2 : 1;
    return *at == quote ? at + 1 : at;
}

// A directive goes to the end of its line, and on to the next behind a backslash.
static const char *end_of_directive(const char *at) {
    while (*at && *at != '\n') at += *at == '\\' && at[1] ? 2 : 1;
    return at;
}

static const char *end_of_token(const char *at, enum kind *kind) {
    *kind = PUNCTUATION;
    if (*at == '"' || *at == '\'') return *kind = TEXT, end_of_text(at);
    if (isalpha((unsigned char)*at) || *at == '_') {
        *kind = IDENTIFIER;
        while (isalnum((unsigned char)*at) || *at == '_') ++at;
        return at;
    }
    if (isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1]))) {
        *kind = NUMBER;
        while (isalnum((unsigned char)*at) || *at == '.' ||
               ((*at == '+' || *at == '-') && strchr("eE", at[-1])))
            ++at;
        return at;
    }
    for (size_t i = 0; i < sizeof signs / sizeof *signs; ++i)
        if (strncmp(at, signs[i], strlen(signs[i])) == 0) return at + strlen(signs[i]);
    return at + 1;
}

static int count_lines(const char *from, const char *to) {
    int lines = 0;
    for (; from < to; ++from) lines += *from == '\n';
    return lines;
}

static int read_tokens(struct source *s) {
    int line = 0, room = 0, line_begins = 1;
    for (const char *at = s->text; *at;) {
        const char *end;
        enum kind kind = PUNCTUATION;
        if (isspace((unsigned char)*at)) {
            if (*at == '\n') ++line, line_begins = 1;
            ++at;
            continue;
        }
        if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
            continue;
        }
        if (at[0] == '/' && at[1] == '*') {
            end = strstr(at, "*/");
            end = end ? end + 2 : at + strlen(at);
            line += count_lines(at, end), at = end;
            continue;
        }
        if (*at == '#' && line_begins)
            kind = DIRECTIVE, end = end_of_directive(at);
        else
            end = end_of_token(at, &kind);
        if (s->tokens == room) {
            room = room ? 2 * room : 4096;
            struct token *more = realloc(s->token, (size_t)room * sizeof *more);
            if (!more) return -1;
            s->token = more;
        }
        s->token[s->tokens++] = (struct token){at, (int)(end - at), kind, line, -1};
        line += count_lines(at, end), at = end, line_begins = 0;
    }
    return 0;
}

// Partners of ( ) [ ] { }. Returns -1 if one has none.
static int match_brackets(struct source *s) {
    int *open = malloc(((size_t)s->tokens + 1) * sizeof *open), depth = 0, good = open != NULL;
    for (int i = 0; i < s->tokens && good; ++i) {
        const struct token *t = &s->token[i];
        if (t->kind != PUNCTUATION || t->length != 1) continue;
        if (strchr("([{", *t->text)) open[depth++] = i;
        if (!strchr(")]}", *t->text)) continue;
        if (depth == 0) {
            good = 0;
            break;
        }
        s->token[i].match = open[--depth], s->token[open[depth]].match = i;
    }
    free(open);
    return good && depth == 0 ? 0 : -1;
}

// ---------------------------------------------------------------- definitions

static void copy_name(char name[64], const struct token *t) {
    snprintf(name, 64, "%.*s", t->length < 63 ? t->length : 63, t->text);
}

// Behind the "<" at `at`: the ">" that closes it.
static int end_of_angle(const struct source *s, int at) {
    int depth = 0;
    for (; at < s->tokens; ++at) {
        const struct token *t = &s->token[at];
        if (token_is(t, "(")) at = t->match;
        if (token_is(t, "<")) ++depth;
        if (token_is(t, ">") && --depth == 0) return at;
    }
    return s->tokens - 1;
}

// template <class T, int D, enum step STEP = 1>: the last identifier of each, before its default.
static int read_parameters(const struct source *s, int at, struct definition *d) {
    int end = end_of_angle(s, at), last = -1, done = 0;
    for (int i = at + 1; i <= end; ++i) {
        const struct token *t = &s->token[i];
        if (token_is(t, "=")) done = 1;
        if (t->kind == IDENTIFIER && !done) last = i;
        if (!token_is(t, ",") && i != end) continue;
        if (last >= 0 && d->parameters < MAX_PARAMETERS)
            copy_name(d->parameter[d->parameters++].text, &s->token[last]);
        last = -1, done = 0;
    }
    return end + 1;
}

// What the definition at tokens first ... end - 1 is called, and whether it is a function.
static void name_definition(const struct source *s, struct definition *d) {
    int at = d->first;
    if (s->token[at].kind == DIRECTIVE) {  // #define NAME
        const char *text = s->token[at].text + 1;
        text += strspn(text, " ");
        if (strncmp(text, "define", 6) != 0) return;
        text += 6 + strspn(text + 6, " ");
        size_t length = 0;
        while (isalnum((unsigned char)text[length]) || text[length] == '_') ++length;
        snprintf(d->name, sizeof d->name, "%.*s", (int)(length < 63 ? length : 63), text);
        return;
    }
    if (token_is(&s->token[at], "template")) at = read_parameters(s, at + 1, d);
    int candidate = -1, type = token_is(&s->token[at], "struct") || token_is(&s->token[at], "enum");
    for (int i = at; i < d->end; ++i) {
        const struct token *t = &s->token[i];
        if (token_is(t, "__global__") || token_is(t, "__device__")) d->on_device = 1;
        if (token_is(t, "__launch_bounds__")) {
            i = s->token[i + 1].match;
            continue;
        }
        if (token_is(t, "(") && token_is(t + 1, "*")) {  // a pointer to a function
            candidate = t->match - 1;
            break;
        }
        if (token_is(t, "(")) {
            if (token_is(&s->token[t->match + 1 < d->end ? t->match + 1 : t->match], "{"))
                d->body = t->match + 1;
            break;
        }
        if (token_is(t, "=") || token_is(t, ";") || token_is(t, "[")) break;
        if (token_is(t, "{")) {
            if (!type) d->body = 0;
            break;
        }
        if (token_is(t, "<")) {  // a specialisation, or a type's arguments
            i = end_of_angle(s, i);
            continue;
        }
        if (t->kind == IDENTIFIER) candidate = i;
    }
    if (candidate >= 0) copy_name(d->name, &s->token[candidate]);
}

static int add_definition(struct source *s, int first, int end) {
    if (s->definitions % 64 == 0) {
        struct definition *more = realloc(s->definition, ((size_t)s->definitions + 64) * sizeof *more);
        if (!more) return -1;
        s->definition = more;
    }
    struct definition *d = &s->definition[s->definitions++];
    *d = (struct definition){.first = first, .end = end};
    name_definition(s, d);
    return 0;
}

// A function ends with its body, everything else with a semicolon, a directive with its line. Between #else
// and #endif stands what is defined a second time: it is left out.
static int read_definitions(struct source *s) {
    for (int at = 0, first = 0; at < s->tokens; first = at) {
        if (s->token[at].kind == DIRECTIVE) {
            if (strncmp(s->token[at].text, "#else", 5) == 0)
                while (at + 1 < s->tokens && strncmp(s->token[at].text, "#endif", 6) != 0) ++at;
            if (add_definition(s, at, at + 1) != 0) return -1;  // of no use but for #define
            ++at;
            continue;
        }
        int ends = 0;
        while (at < s->tokens && !ends) {
            const struct token *t = &s->token[at];
            int is_function = token_is(t, "{") && at > first && token_is(&s->token[at - 1], ")");
            ends = token_is(t, ";") || is_function;
            at = (t->match > at ? t->match : at) + 1;
        }
        if (add_definition(s, first, at) != 0) return -1;
    }
    return 0;
}

// ---------------------------------------------------------------- constants

static int add_constant(struct source *s, const struct token *name, long value, const char *of) {
    struct name *more = realloc(s->constant, ((size_t)s->constants + 1) * sizeof *more);
    if (!more) return -1;
    s->constant = more;
    s->constant[s->constants].known = 1, s->constant[s->constants].value = value;
    snprintf(s->constant[s->constants].of, sizeof s->constant->of, "%s", of);
    copy_name(s->constant[s->constants++].text, name);
    return 0;
}

// enum x { A, B = 3, C }; and constexpr int N = 7;
static int read_constants(struct source *s) {
    for (int i = 0; i < s->definitions; ++i) {
        int first = s->definition[i].first, end = s->definition[i].end, open = first;
        if (token_is(&s->token[first], "enum")) {
            long value = 0;
            while (open < end && !token_is(&s->token[open], "{")) ++open;
            for (int at = open + 1; at < end && s->token[open].match > at; ++at) {
                if (s->token[at].kind != IDENTIFIER) continue;
                if (token_is(&s->token[at + 1], "=")) value = strtol(s->token[at + 2].text, NULL, 0);
                if (add_constant(s, &s->token[at], value++, s->definition[i].name) != 0) return -1;
                while (at < s->token[open].match && !token_is(&s->token[at], ",")) ++at;
            }
        } else if (end - first == 6 && token_is(&s->token[first], "constexpr") &&
                   token_is(&s->token[first + 1], "int") && s->token[first + 4].kind == NUMBER) {
            if (add_constant(s, &s->token[first + 2], strtol(s->token[first + 4].text, NULL, 0), "") != 0)
                return -1;
        }
    }
    return 0;
}

// ---------------------------------------------------------------- the file

static char *read_file(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    char *text = NULL;
    size_t size = 0, room = 0;
    do {
        room += 1 << 16;
        char *more = realloc(text, room + 1);
        if (!more) break;
        text = more;
        size += fread(text + size, 1, room - size, file);
    } while (size == room);
    if (text) text[size] = '\0';
    int bad = ferror(file);
    fclose(file);
    if (!bad) return text;
    free(text);
    return NULL;
}

static int read_lines(struct source *s) {
    s->lines_text = malloc(strlen(s->text) + 1);
    s->lines = count_lines(s->text, s->text + strlen(s->text)) + 1;
    s->line = malloc((size_t)s->lines * sizeof *s->line);
    if (!s->lines_text || !s->line) return -1;
    char *at = strcpy(s->lines_text, s->text);
    for (int i = 0; i < s->lines; ++i) {
        s->line[i] = at;
        at += strcspn(at, "\n");
        if (*at) *at++ = '\0';
    }
    return 0;
}

int source_read(struct source *s, const char *path, char *why, size_t bytes) {
    memset(s, 0, sizeof *s);
    s->text = read_file(path);
    if (!s->text) {
        snprintf(why, bytes, "%s cannot be read.", path);
        return -1;
    }
    if (read_tokens(s) != 0 || read_lines(s) != 0) {
        snprintf(why, bytes, "There is no memory left for %s.", path);
        return -1;
    }
    if (match_brackets(s) != 0) {
        snprintf(why, bytes, "%s has a bracket without a partner: let the compiler say where.", path);
        return -1;
    }
    if (read_definitions(s) != 0 || read_constants(s) != 0) {
        snprintf(why, bytes, "There is no memory left for %s.", path);
        return -1;
    }
    return 0;
}

void source_free(struct source *s) {
    free(s->text);
    free(s->lines_text);
    free(s->line);
    free(s->token);
    free(s->definition);
    free(s->constant);
    memset(s, 0, sizeof *s);
}
