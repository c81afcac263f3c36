// suggest.h - what someone may have meant by a word that nobody knows.
#ifndef SUGGEST_H
#define SUGGEST_H

#include <stddef.h>

struct words {
    const char *word[64];
    int count;
};

void add_word(struct words *words, const char *word);

// " Did you mean X?" if some word is near, else " Choose from X, Y, Z." (or what `otherwise` says, if not
// null), each word behind `prefix`.
void suggest(char *text, size_t bytes, const struct words *words, const char *prefix, const char *wrong,
             const char *otherwise);

#endif
