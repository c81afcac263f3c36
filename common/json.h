// json.h - the few words of JSON that reports are written with. Each but json_string writes a member, with
// the comma before it: ", "key": value".
#ifndef JSON_H
#define JSON_H

#include <stdio.h>

void json_string(FILE *out, const char *text);  // quoted and escaped, nothing else
void json_text(FILE *out, const char *key, const char *text);
void json_number(FILE *out, const char *key, double value);  // nine digits; null for NaN and infinity
void json_count(FILE *out, const char *key, double value);   // a whole number, all its digits; null for NaN

#endif
