// message.h - one sentence for the user, handed up from where the fault was found to where it is printed.
#ifndef MESSAGE_H
#define MESSAGE_H

struct message {
    char text[1200];
};

// Writes the sentence (printf format) and returns -1, so that a function ends with `return fail(why, "...")`.
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
int fail(struct message *why, const char *format, ...);

#endif
