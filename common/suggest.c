#include "suggest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_WORD = 31 };  // that a suggestion is sought for

// Letters to insert, delete or replace to turn one word into the other (Levenshtein 1966).
static int edit_distance(const char *from, const char *to) {
    size_t m = strlen(from), n = strlen(to);
    if (m > LONGEST_WORD || n > LONGEST_WORD) return LONGEST_WORD;
    int row[LONGEST_WORD + 1];
    for (size_t j = 0; j <= n; ++j) row[j] = (int)j;
    for (size_t i = 1; i <= m; ++i) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; ++j) {
            int replace = diagonal + (from[i - 1] != to[j - 1]);
            diagonal = row[j];
            int shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replace < shift ? replace : shift;
        }
    }
    return row[n];
}

void add_word(struct words *words, const char *word) {
    if (words->count < (int)(sizeof words->word / sizeof *words->word)) words->word[words->count++] = word;
}

void suggest(char *text, size_t bytes, const struct words *words, const char *prefix, const char *wrong,
             const char *otherwise) {
    const char *nearest = NULL;
    int least = (int)strlen(wrong) / 3 + 2;
    if (least > LONGEST_WORD) least = LONGEST_WORD;
    for (int i = 0; i < words->count; ++i) {
        int distance = edit_distance(wrong, words->word[i]);
        // A word cut short ("--kern") is near whatever the distance.
        if (strlen(wrong) >= 3 && strncmp(wrong, words->word[i], strlen(wrong)) == 0) distance = 1;
        if (distance < least) least = distance, nearest = words->word[i];
    }
    if (nearest) {
        snprintf(text, bytes, " Did you mean %s%s?", prefix, nearest);
    } else if (otherwise) {
        snprintf(text, bytes, " %s", otherwise);
    } else {
        size_t used = (size_t)snprintf(text, bytes, " Choose from");
        for (int i = 0; i < words->count && used < bytes; ++i)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s %s%s", i ? "," : "", prefix, words->word[i]);
        if (used < bytes) snprintf(text + used, bytes - used, ".");
    }
}
