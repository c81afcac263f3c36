#include "kernel.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fold.h"

// ---------------------------------------------------------------- the table

// The "{" of kernel number n in `static const struct kernel kernels[] = {`; -1 behind the last.
static int row_of(const struct source *s, int n) {
    int table = source_find(s, "kernels", 7);
    if (table < 0) return -1;
    int open = s->definition[table].first;
    while (open < s->definition[table].end && !token_is(&s->token[open], "{")) ++open;
    for (int at = open + 1; open < s->definition[table].end && at < s->token[open].match; ++at) {
        if (!token_is(&s->token[at], "{")) continue;
        if (n-- == 0) return at;
        at = s->token[at].match;
    }
    return -1;
}

int kernel_name(const struct source *s, int n, char name[64]) {
    int row = row_of(s, n);
    if (row < 0) return 0;
    const struct token *t = &s->token[row + 1];
    if (t->kind != TEXT || t->length < 3) return 0;
    snprintf(name, 64, "%.*s", t->length - 2 < 63 ? t->length - 2 : 63, t->text + 1);
    return 1;
}

// ---------------------------------------------------------------- what it uses

static int same_parameters(const struct piece *a, const struct piece *b, int count) {
    for (int i = 0; i < count; ++i)
        if (a->parameter[i].known != b->parameter[i].known ||
            (a->parameter[i].known && a->parameter[i].value != b->parameter[i].value))
            return 0;
    return 1;
}

// Adds a piece unless it is there. Returns 0, or -1 without memory.
static int add_piece(struct kernel_text *k, struct piece *p) {
    const struct definition *d = &k->source->definition[p->definition];
    for (int i = 0; i < k->pieces; ++i)
        if (k->piece[i].definition == p->definition && same_parameters(&k->piece[i], p, d->parameters))
            return 0;
    struct piece *more = realloc(k->piece, ((size_t)k->pieces + 1) * sizeof *more);
    if (!more) return -1;
    k->piece = more;
    p->dead = calloc((size_t)(d->end - d->first) + 1, 1);
    if (!p->dead) return -1;
    k->piece[k->pieces++] = *p;
    return 0;
}

// What template arguments between < and > at tokens at ... say, in the terms of the piece that they stand in.
static void take_arguments(const struct source *s, const struct piece *in, int at, struct piece *p) {
    const struct definition *d = &s->definition[p->definition];
    int depth = 0, first = at + 1, n = 0, end = s->definition[in->definition].end;
    for (; at < end && n < d->parameters; ++at) {
        const struct token *t = &s->token[at];
        if (token_is(t, "(")) at = t->match;
        if (token_is(t, "<")) ++depth;
        int over = token_is(t, ">") && --depth == 0;
        if (!over && !(token_is(t, ",") && depth == 1)) continue;
        p->parameter[n].known = fold_value(s, in, first, at, &p->parameter[n].value);
        ++n, first = at + 1;
        if (over) return;
    }
}

// Adds the definitions that tokens first ... end - 1 name, as far as they are not dead.
static int add_used(struct kernel_text *k, int from, int first, int end) {
    const struct source *s = k->source;
    for (int at = first; at < end; ++at) {
        const struct piece in = k->piece[from];
        const struct token *t = &s->token[at];
        if (t->kind != IDENTIFIER || in.dead[at - s->definition[in.definition].first]) continue;
        for (int d = source_find(s, t->text, t->length); d >= 0 && d < s->definitions; ++d) {
            if (!token_is(t, s->definition[d].name) || d == in.definition) continue;
            // Of the table the functions alone: what is said of support is no part of a kernel.
            if (from == 0 && !s->definition[d].body && !s->definition[d].parameters) continue;
            struct piece p = {.definition = d};
            if (s->definition[d].parameters > 0 && at + 1 < end && token_is(&s->token[at + 1], "<"))
                take_arguments(s, &in, at + 1, &p);
            if (add_piece(k, &p) != 0) return -1;
        }
    }
    return 0;
}

// ---------------------------------------------------------------- lines

static int is_comment(const char *line) {
    line += strspn(line, " \t");
    return line[0] == '/' && line[1] == '/';
}

// Appends text to *to, which has *used bytes in *room. Returns 0, or -1 without memory.
static int append(char **to, size_t *used, size_t *room, const char *text, size_t length) {
    if (*used + length + 1 > *room) {
        *room = 2 * (*used + length + 64);
        char *more = realloc(*to, *room);
        if (!more) return -1;
        *to = more;
    }
    if (!*to) return -1;
    memcpy(*to + *used, text, length);
    *used += length;
    (*to)[*used] = '\0';
    return 0;
}

// Between two tokens that stood apart: no space inside of brackets, nor before a comma or semicolon.
static int takes_space(const struct token *before, const struct token *after) {
    return !strchr("([!", before->text[0]) && !strchr(")];,", after->text[0]);
}

// The line of the source that tokens first ... end - 1 stand in.
static int add_line(struct piece *p, const struct source *s, int first, int end) {
    const struct definition *d = &s->definition[p->definition];
    struct left_line l = {NULL, NULL, 0, 0};
    const char *source_line = s->line[s->token[first].line];
    size_t key_used = 0, key_room = 0, shown_used = 0, shown_room = 0;
    int alive = 0, before = first, status = append(&l.key, &key_used, &key_room, "", 0);
    if (status == 0)
        status = append(&l.shown, &shown_used, &shown_room, source_line, strspn(source_line, " \t"));
    for (int i = first; i < end && status == 0; ++i) {
        const struct token *t = &s->token[i];
        if (p->dead[i - d->first]) continue;
        int beside = i > first && t[-1].text + t[-1].length == t->text;
        int spaced = alive && (p->dead[i > first ? i - 1 - d->first : 0] ? takes_space(&s->token[before], t)
                                                                         : !beside);
        before = i;
        if (alive++) status |= append(&l.key, &key_used, &key_room, " ", 1);
        if (spaced) status |= append(&l.shown, &shown_used, &shown_room, " ", 1);
        status |= append(&l.key, &key_used, &key_room, t->text, (size_t)t->length);
        status |= append(&l.shown, &shown_used, &shown_room, t->text, (size_t)t->length);
    }
    if (alive == end - first && status == 0)  // nothing is missing: with its comment
        shown_used = 0, status = append(&l.shown, &shown_used, &shown_room, source_line, strlen(source_line));
    struct left_line *more = NULL;
    if (status == 0 && alive > 0) more = realloc(p->line, ((size_t)p->lines + 1) * sizeof *more);
    if (!more) {
        free(l.key);
        free(l.shown);
        return status != 0 || alive > 0 ? -1 : 0;
    }
    l.first_comment = s->token[first].line;
    while (l.first_comment > 0 && is_comment(s->line[l.first_comment - 1])) --l.first_comment, ++l.comments;
    p->line = more;
    p->line[p->lines++] = l;
    return 0;
}

static int make_lines(struct piece *p, const struct source *s) {
    const struct definition *d = &s->definition[p->definition];
    for (int at = d->first, next; at < d->end; at = next) {
        for (next = at + 1; next < d->end && s->token[next].line == s->token[at].line; ++next) {
        }
        if (add_line(p, s, at, next) != 0) return -1;
    }
    return 0;
}

// ---------------------------------------------------------------- all of it

static int in_order(const void *left, const void *right) {
    const struct piece *a = left, *b = right;
    if (a->definition != b->definition) return a->definition < b->definition ? -1 : 1;
    for (int i = 0; i < MAX_PARAMETERS; ++i)
        if (a->parameter[i].value != b->parameter[i].value)
            return a->parameter[i].value < b->parameter[i].value ? -1 : 1;
    return 0;
}

static void free_piece(struct piece *p) {
    for (int l = 0; l < p->lines; ++l) {
        free(p->line[l].key);
        free(p->line[l].shown);
    }
    free(p->line);
    free(p->dead);
}

static int same_lines(const struct piece *a, const struct piece *b) {
    if (a->definition != b->definition || a->lines != b->lines) return 0;
    for (int l = 0; l < a->lines; ++l)
        if (strcmp(a->line[l].key, b->line[l].key) != 0) return 0;
    return 1;
}

// Pieces of one definition that came out the same are one, and the parameters in which they differed do not
// matter.
static void merge_same(struct kernel_text *k) {
    for (int i = 0; i < k->pieces; ++i)
        for (int j = i + 1; j < k->pieces; ++j) {
            struct piece *a = &k->piece[i], *b = &k->piece[j];
            if (!same_lines(a, b)) continue;
            for (int n = 0; n < MAX_PARAMETERS; ++n)
                if (!same_parameters(&(struct piece){.parameter = {a->parameter[n]}},
                                     &(struct piece){.parameter = {b->parameter[n]}}, 1))
                    a->parameter[n].known = 0, a->parameter[n].value = 0;
            free_piece(b);
            memmove(b, b + 1, (size_t)(--k->pieces - j) * sizeof *b);
            --j;
        }
}

int kernel_read(struct kernel_text *k, const struct source *s, const char *name, char *why, size_t bytes) {
    char found[64] = "";
    int n = 0, status = 0;
    *k = (struct kernel_text){.source = s};
    while (kernel_name(s, n, found) && strcmp(found, name) != 0) ++n;
    int row = row_of(s, n);
    if (row < 0) {
        snprintf(why, bytes, "There is no kernel %s in its table.", name);
        return -1;
    }
    struct piece table = {.definition = source_find(s, "kernels", 7)};
    if (add_piece(k, &table) != 0) status = -1;
    if (status == 0) status = add_used(k, 0, row + 2, s->token[row].match);
    for (int i = 1; i < k->pieces && status == 0; ++i) {
        const struct definition *d = &s->definition[k->piece[i].definition];
        fold_piece(s, &k->piece[i]);
        status = add_used(k, i, d->first, d->end);
        if (status == 0) status = make_lines(&k->piece[i], s);
    }
    if (status != 0) {
        snprintf(why, bytes, "There is no memory left.");
        return -1;
    }
    free(k->piece[0].dead);
    memmove(k->piece, k->piece + 1, (size_t)--k->pieces * sizeof *k->piece);
    qsort(k->piece, (size_t)k->pieces, sizeof *k->piece, in_order);
    merge_same(k);
    return 0;
}

void kernel_free(struct kernel_text *k) {
    for (int i = 0; i < k->pieces; ++i) free_piece(&k->piece[i]);
    free(k->piece);
    *k = (struct kernel_text){.pieces = 0};
}
