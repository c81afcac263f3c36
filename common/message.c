#include "message.h"

#include <stdarg.h>
#include <stdio.h>

int fail(struct message *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return -1;
}
