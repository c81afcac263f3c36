#include "fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- values

// The next token `sign` from `at` on that stands in no bracket; `end` if there is none.
static int find_outside(const struct source *s, int at, int end, const char *sign) {
    for (; at < end; ++at) {
        const struct token *t = &s->token[at];
        if (token_is(t, sign)) return at;
        if (t->match > at) at = t->match;
    }
    return end;
}

static int value_of_token(const struct source *s, const struct piece *p, const struct token *t, long *value) {
    const struct definition *d = &s->definition[p->definition];
    if (t->kind == NUMBER) return *value = strtol(t->text, NULL, 0), 1;
    if (token_is(t, "true") || token_is(t, "false")) return *value = token_is(t, "true"), 1;
    for (int i = 0; i < d->parameters; ++i)
        if (token_is(t, d->parameter[i].text)) return *value = p->parameter[i].value, p->parameter[i].known;
    for (int i = 0; i < p->locals; ++i)
        if (token_is(t, p->local[i].text)) return *value = p->local[i].value, 1;
    for (int i = 0; i < s->constants; ++i)
        if (token_is(t, s->constant[i].text)) return *value = s->constant[i].value, 1;
    return 0;
}

static int compare(const char *sign, long a, long b) {
    return !strcmp(sign, "==")   ? a == b
           : !strcmp(sign, "!=") ? a != b
           : !strcmp(sign, "<=") ? a <= b
           : !strcmp(sign, ">=") ? a >= b
           : !strcmp(sign, "<")  ? a < b
                                 : a > b;
}

// Operands between `sign`, || or &&: one that is `decides` decides alone; if all are known and none does, it
// is the other. Returns -1 if there is no such sign.
static int junction(const struct source *s, const struct piece *p, int first, int end, const char *sign,
                    long decides, long *value) {
    int at = find_outside(s, first, end, sign), all_known = 1;
    if (at == end) return -1;
    for (;; first = at + 1, at = find_outside(s, first, end, sign)) {
        long operand = 0;
        int known = fold_value(s, p, first, at, &operand);
        if (known && !!operand == decides) return *value = decides, 1;
        all_known &= known;
        if (at == end) break;
    }
    *value = !decides;
    return all_known;
}

int fold_value(const struct source *s, const struct piece *p, int first, int end, long *value) {
    static const char *const comparisons[] = {"==", "!=", "<=", ">=", "<", ">"};
    if (first >= end) return 0;
    int known = junction(s, p, first, end, "||", 1, value);
    if (known < 0) known = junction(s, p, first, end, "&&", 0, value);
    if (known >= 0) return known;
    if (token_is(&s->token[first], "!")) {
        known = fold_value(s, p, first + 1, end, value);
        *value = !*value;
        return known;
    }
    if (token_is(&s->token[first], "(") && s->token[first].match == end - 1)
        return fold_value(s, p, first + 1, end - 1, value);
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; ++i) {
        int at = find_outside(s, first, end, comparisons[i]);
        long a = 0, b = 0;
        if (at == end || at == first || at + 1 == end) continue;
        if (!fold_value(s, p, first, at, &a) || !fold_value(s, p, at + 1, end, &b)) return 0;
        *value = compare(comparisons[i], a, b);
        return 1;
    }
    return end - first == 1 && value_of_token(s, p, &s->token[first], value);
}

// ---------------------------------------------------------------- branches

static void kill(const struct source *s, struct piece *p, int first, int end) {
    int begin = s->definition[p->definition].first;
    for (int i = first; i < end; ++i) p->dead[i - begin] = 1;
}

// Where the statement that begins at `at` ends.
static int end_of_statement(const struct source *s, int at, int end) {
    const struct token *t = &s->token[at];
    if (at >= end) return end;
    if (t->kind == DIRECTIVE) return end_of_statement(s, at + 1, end);  // #pragma unroll
    if (token_is(t, "{")) return t->match + 1;
    if (token_is(t, "if") || token_is(t, "for") || token_is(t, "while")) {
        int open = find_outside(s, at, end, "(");
        if (open == end) return end;
        int next = end_of_statement(s, s->token[open].match + 1, end);
        if (token_is(t, "if") && next < end && token_is(&s->token[next], "else"))
            next = end_of_statement(s, next + 1, end);
        return next;
    }
    int semicolon = find_outside(s, at, end, ";");
    return semicolon < end ? semicolon + 1 : end;
}

// A branch that is taken: its braces go.
static void open_up(const struct source *s, struct piece *p, int first, int end) {
    if (!token_is(&s->token[first], "{")) return;
    kill(s, p, first, first + 1);
    kill(s, p, end - 1, end);
}

// Of `a && b && c` those that are known to be true need not be asked, and after one that is known to be false
// no other; likewise of ||.
static void shorten(const struct source *s, struct piece *p, int first, int end) {
    int is_or = find_outside(s, first, end, "||") < end;
    const char *sign = is_or ? "||" : "&&";
    if (find_outside(s, first, end, sign) == end) return;
    int kept = first, any = 0;  // the first token behind what was kept last
    for (int at = first, next; at < end; at = next + 1) {
        next = find_outside(s, at, end, sign);
        long value = 0;
        int known = fold_value(s, p, at, next, &value);
        if (known && !!value == is_or) {  // it decides alone
            kill(s, p, first, at);
            kill(s, p, next, end);
            return;
        }
        if (!known) {
            if (any) kill(s, p, kept, at - 1);  // all but one sign before it
            if (!any) kill(s, p, first, at);
            any = 1, kept = next;
        }
    }
    if (any) kill(s, p, kept, end);
}

static void fold_if(const struct source *s, struct piece *p, int at, int end) {
    int open = find_outside(s, at, end, "(");
    if (open == end) return;
    int close = s->token[open].match, then = close + 1, then_end = end_of_statement(s, then, end);
    int has_else = then_end < end && token_is(&s->token[then_end], "else");
    int other = then_end + 1, other_end = has_else ? end_of_statement(s, other, end) : then_end;
    long value = 0;
    if (!fold_value(s, p, open + 1, close, &value)) {
        shorten(s, p, open + 1, close);
        return;
    }
    kill(s, p, at, then);
    int after_else = token_is(&s->token[at - 1], "else"),
        is_body = after_else || token_is(&s->token[at - 1], ")");
    if (value) {
        if (!is_body) open_up(s, p, then, then_end);
        kill(s, p, then_end, other_end);
    } else if (has_else) {
        kill(s, p, then, other);
        if (!is_body) open_up(s, p, other, other_end);
    } else if (after_else) {
        kill(s, p, at - 1, then_end);
    } else {  // of `for (...) if (...)` a semicolon stays
        kill(s, p, then, is_body && token_is(&s->token[then_end - 1], ";") ? then_end - 1 : then_end);
    }
}

static int ends_operand(const struct token *t) {
    static const char *const ends[] = {"(",      "[",  "{",  ",",  ";",  "=",  "?",   ":",
                                       "return", "+=", "-=", "*=", "|=", "&=", "<<<", ">>>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; ++i)
        if (token_is(t, ends[i])) return 1;
    return 0;
}

// condition ? a : b, with the question mark at `at`.
static void fold_choice(const struct source *s, struct piece *p, int at, int begin, int end) {
    int first = at, colon = at + 1, nested = 0;
    while (first > begin && !ends_operand(&s->token[first - 1])) {
        int match = s->token[first - 1].match;
        first = match >= 0 && match < first - 1 ? match : first - 1;
    }
    long value = 0;
    if (!fold_value(s, p, first, at, &value)) return;
    for (; colon < end; ++colon) {
        const struct token *t = &s->token[colon];
        if (token_is(t, "?")) ++nested;
        if (token_is(t, ":") && nested-- == 0) break;
        if (t->match > colon) colon = t->match;
    }
    int last = colon + 1;
    for (nested = 0; last < end; ++last) {
        const struct token *t = &s->token[last];
        if (token_is(t, "?")) ++nested;
        if (token_is(t, ":") && nested-- == 0) break;
        if (token_is(t, ",") || token_is(t, ";") || token_is(t, ")") || token_is(t, "]") ||
            token_is(t, "}") || token_is(t, ">>>"))
            break;
        if (t->match > last) last = t->match;
    }
    if (value) {
        kill(s, p, first, at + 1);
        kill(s, p, colon, last);
    } else {
        kill(s, p, first, colon + 1);
    }
}

// bool x = ...; of which the value is known, and which is not assigned again: then no one has to ask for it
// either.
static void fold_local(const struct source *s, struct piece *p, int at, int end) {
    const struct token *name = &s->token[at - 1];
    int semicolon = find_outside(s, at, end, ";");
    long value = 0;
    if (!token_is(&s->token[at - 2], "bool") || semicolon == end ||
        !fold_value(s, p, at + 1, semicolon, &value))
        return;
    for (int i = semicolon; i + 1 < end; ++i)
        if (s->token[i].length == name->length &&
            !memcmp(s->token[i].text, name->text, (size_t)name->length) &&
            (s->token[i + 1].text[0] == '=' || s->token[i - 1].text[0] == '&'))
            return;
    if (p->locals == (int)(sizeof p->local / sizeof *p->local)) return;
    struct name *local = &p->local[p->locals++];
    local->known = 1, local->value = value;
    snprintf(local->text, sizeof local->text, "%.*s", name->length < 63 ? name->length : 63, name->text);
}

// What stands behind = or return. (A condition before a question mark is for fold_choice, if its value is
// known.)
static void fold_expression(const struct source *s, struct piece *p, int first, int end) {
    long value = 0;
    end = find_outside(s, first, end, ";");
    end = find_outside(s, first, end, ",");
    int choice = find_outside(s, first, end, "?");
    if (choice == end || !fold_value(s, p, first, choice, &value)) shorten(s, p, first, choice);
}

void fold_piece(const struct source *s, struct piece *p) {
    const struct definition *d = &s->definition[p->definition];
    for (int at = d->first; at < d->end; ++at) {
        if (p->dead[at - d->first]) continue;
        if (token_is(&s->token[at], "if")) fold_if(s, p, at, d->end);
        if (token_is(&s->token[at], "=") && at - 2 >= d->body && d->body > 0) fold_local(s, p, at, d->end);
        if (token_is(&s->token[at], "=") || token_is(&s->token[at], "return"))
            fold_expression(s, p, at + 1, d->end);
        if (token_is(&s->token[at], "?")) fold_choice(s, p, at, d->first, d->end);
    }
}
