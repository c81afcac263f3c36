// source.h - a lab's source, as far as ./lab diff must understand it: tokens, the definitions that they make
// up, and which of these one kernel is made of.
//
// The labs' kernels share functions whose template parameters say which step of the ladder they are: `if
// (STEP >= SKIPPED)`. For one kernel the parameters are known, and so is which branch it takes; the other is
// left out, and what remains is the kernel as if it stood alone.
#ifndef SOURCE_H
#define SOURCE_H

#include <stddef.h>

enum kind { IDENTIFIER, NUMBER, PUNCTUATION, TEXT, DIRECTIVE };

struct token {
    const char *text;
    int length;
    enum kind kind;
    int line;   // of the file, from 0
    int match;  // of a bracket: the number of its partner
};

// A template parameter of a definition, or a name with a value.
struct name {
    char text[64];
    int known;  // 1: `value` is what it stands for
    long value;
    char of[64];  // of an enumerator: the enumeration's name
};

enum { MAX_PARAMETERS = 12 };

// A function, type, constant or macro at the top level of the file.
struct definition {
    char name[64];
    int first, end;  // tokens first ... end - 1
    int body;        // the token "{" of a function; 0 for all else
    int on_device;   // __global__ or __device__
    struct name parameter[MAX_PARAMETERS];
    int parameters;
};

struct source {
    char *text;   // the file
    char **line;  // its lines, without their ends
    char *lines_text;
    int lines;
    struct token *token;
    int tokens;
    struct definition *definition;
    int definitions;
    struct name *constant;  // enumerators and whole constants
    int constants;
};

// Reads the file. Returns 0, or -1 with a sentence in `why`.
int source_read(struct source *s, const char *path, char *why, size_t bytes);
void source_free(struct source *s);

// 1 if the token is this word or sign.
int token_is(const struct token *t, const char *text);

// The definition of that name; -1: there is none.
int source_find(const struct source *s, const char *name, int length);

#endif
