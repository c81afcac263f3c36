// rewrite.c - simt-rewrite IN.cu OUT.cpp: the three things in CUDA C that a C++ compiler cannot read,
// rewritten in place.
//
//   1. launches:  kernel<<<cfg>>>(args)       ->  kernel<<simt::Config(cfg)(args)
//   2. kernel heads: the `{` after a __global__ function's parameters gets  SIMT_KERNEL("name", launch
//   bounds);
//      and the `{` of a __device__ function (not __host__, not constexpr)   SIMT_BUILTINS;
//   3. shared memory:  __shared__ T a[2], b;    ->  references to the block's shared memory (see
//   rewrite_shared)
//                      extern __shared__ T a[]; ->  a pointer to the block's dynamic shared memory
//
// Comments, strings and character literals are left alone. No line is added or removed, so one #line
// directive at the top keeps compiler messages, debuggers and addr2line on the .cu file. What it cannot read
// is an error with the line.
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *in_path;
static char *source;  // the .cu, then NUL
static char *code;    // the same, with comments and literals blanked: safe to search
static size_t length;
static FILE *out;
static int shared_count;  // numbers the structs made for __shared__ declarations

static void fail(size_t at, const char *format, ...) {
    int line = 1;
    for (size_t i = 0; i < at && i < length; i++) line += source[i] == '\n';
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: error: ", in_path, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) {
        fprintf(stderr, "simt-rewrite: out of memory\n");
        exit(2);
    }
    return memory;
}

static void read_source(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "simt-rewrite: cannot read %s\n", path);
        exit(2);
    }
    size_t capacity = 1 << 16;
    source = allocate(capacity + 1);
    for (size_t got; (got = fread(source + length, 1, capacity - length, file)) > 0;) {
        length += got;
        if (length == capacity) {
            capacity *= 2;
            source = realloc(source, capacity + 1);
            if (!source) fail(0, "out of memory");
        }
    }
    fclose(file);
    source[length] = 0;
}

static int is_word(int c) { return isalnum(c) || c == '_'; }

// Copies source to code with everything inside comments and literals replaced by spaces (newlines stay).
static void blank_comments_and_literals(void) {
    code = allocate(length + 1);
    memcpy(code, source, length + 1);
    for (size_t i = 0; i < length;) {
        size_t end = i;
        if (!strncmp(source + i, "//", 2)) {
            while (end < length && !(source[end] == '\n' && source[end - 1] != '\\')) end++;
        } else if (!strncmp(source + i, "/*", 2)) {
            char *close = strstr(source + i + 2, "*/");
            if (!close) fail(i, "this comment never ends");
            end = (size_t)(close - source) + 2;
        } else if (!strncmp(source + i, "R\"", 2) && (i == 0 || !is_word(source[i - 1]))) {
            char close[24] = ")";
            size_t n = 1, k = i + 2;
            while (k < length && source[k] != '(' && n < 20) close[n++] = source[k++];
            close[n++] = '"';
            close[n] = 0;
            char *found = strstr(source + k, close);
            if (!found) fail(i, "this raw string never ends");
            end = (size_t)(found - source) + n;
        } else if (source[i] == '"' || (source[i] == '\'' && (i == 0 || !is_word(source[i - 1])))) {
            char quote = source[i];
            end = i + 1;
            while (end < length && source[end] != quote && source[end] != '\n')
                end += source[end] == '\\' ? 2 : 1;
            if (end >= length || source[end] == '\n') fail(i, "this literal never ends");
            end++;
        }
        if (end == i) {
            i++;
            continue;
        }
        for (; i < end && i < length; i++)
            if (source[i] != '\n') code[i] = ' ';
    }
}

static size_t skip_space(size_t i) {
    while (i < length && isspace((unsigned char)code[i])) i++;
    return i;
}

// Index just past the bracket that closes the one at `open`.
static size_t match(size_t open) {
    int depth = 0;
    for (size_t i = open; i < length; i++) {
        if (strchr("([{", code[i])) depth++;
        if (strchr(")]}", code[i]) && --depth == 0) return i + 1;
    }
    fail(open, "the bracket '%c' is never closed", code[open]);
    return length;
}

static int word_at(size_t i, const char *word) {
    size_t n = strlen(word);
    return !strncmp(code + i, word, n) && !is_word(code[i + n]) && (i == 0 || !is_word(code[i - 1]));
}

static int contains_word(size_t from, size_t to, const char *word) {
    for (size_t i = from; i < to; i++)
        if (word_at(i, word)) return 1;
    return 0;
}

// Copies [from, to), with __noinline__ spelled as g++ knows it. A macro for it would break the standard
// library's headers, which use that word themselves.
static void copy(size_t from, size_t to) {
    for (size_t i = from; i < to;) {
        if (word_at(i, "__noinline__") && (i == 0 || code[i - 1] != '(')) {
            fputs("__attribute__((noinline))", out);
            i += strlen("__noinline__");
        } else {
            fputc(source[i++], out);
        }
    }
}

// Newlines of [from, to), so that what was replaced keeps its line count.
static void copy_newlines(size_t from, size_t to) {
    for (; from < to; from++)
        if (source[from] == '\n') fputc('\n', out);
}

// Whether a place is inside the braces of a function: of any braces but a namespace's or extern "C"'s.
static int inside_function(size_t at) {
    int depth = 0, open[64], opened = 0;  // for each open brace, whether it counts
    for (size_t i = 0; i < at; i++) {
        if (code[i] == '{' && opened < 64) {
            size_t head = i;
            while (head > 0 && !strchr(";{}", code[head - 1])) head--;
            open[opened] = !contains_word(head, i, "namespace") && !contains_word(head, i, "extern");
            depth += open[opened++];
        } else if (code[i] == '}' && opened > 0) {
            depth -= open[--opened];
        }
    }
    return depth > 0;
}

// At `__global__` or `__device__`: copies the function's head up to and including its `{` and adds the entry
// code. Returns where to go on. Declarations and variables are copied as they are.
static size_t rewrite_function_head(size_t start) {
    int is_kernel = word_at(start, "__global__");
    size_t head = start;  // words before this one belong to the declaration too: static, __host__, constexpr
    while (head > 0 && !strchr(";{}", code[head - 1])) head--;
    size_t bounds_from = 0, bounds_to = 0, name_from = 0, name_to = 0, i = start;
    for (size_t k = head; k < start; k++)  // __launch_bounds__(128) __global__ void ...
        if (word_at(k, "__launch_bounds__")) {
            size_t open = skip_space(k + strlen("__launch_bounds__"));
            bounds_from = open + 1, bounds_to = match(open) - 1;
        }
    for (;;) {
        i = skip_space(i);
        if (i >= length || strchr(";={", code[i])) {  // a variable, or something else without parameters
            copy(start, i);
            return i;
        }
        if (word_at(i, "__launch_bounds__") || word_at(i, "__attribute__") || word_at(i, "__align__") ||
            word_at(i, "alignas") || word_at(i, "__cluster_dims__")) {
            int is_bounds = word_at(i, "__launch_bounds__");
            while (is_word(code[i])) i++;
            i = skip_space(i);
            size_t end = match(i);
            if (is_bounds) bounds_from = i + 1, bounds_to = end - 1;
            i = end;
        } else if (is_word(code[i])) {
            name_from = i;
            while (is_word(code[i])) i++;
            name_to = i;
        } else if (code[i] == '(') {
            break;
        } else {
            i++;
        }
    }
    size_t after = skip_space(match(i));
    while (after < length && is_word(code[after])) {  // const, noexcept
        while (is_word(code[after])) after++;
        after = skip_space(after);
    }
    if (code[after] != '{') {
        copy(start, after);
        return after;
    }
    copy(start, after + 1);
    if (is_kernel) {
        fprintf(out, " SIMT_KERNEL(\"%.*s\"", (int)(name_to - name_from), source + name_from);
        if (bounds_to) {
            fputs(", ", out);
            for (size_t k = bounds_from; k < bounds_to; k++) fputc(source[k] == '\n' ? ' ' : source[k], out);
        }
        fputs(");", out);
    } else if (!contains_word(head, after, "__host__") && !contains_word(head, after, "constexpr")) {
        fputs(" SIMT_BUILTINS;", out);
    }
    return after + 1;
}

// __shared__ T a[2][3], b;  becomes, for each declarator, a struct that holds it and a reference to the
// block's copy:
//     struct simt_shared_0 { T a[2][3]; }; auto &a = simt::shared<simt_shared_0>("a").a; ...
// A struct member takes any declarator C++ has, and the struct's type tells the variable apart from all
// others.
static size_t rewrite_shared(size_t start) {
    size_t i = start + strlen("__shared__"), end = i;
    while (end < length && code[end] != ';') end = strchr("([{", code[end]) ? match(end) : end + 1;
    if (end >= length) fail(start, "this __shared__ declaration has no ';'");
    size_t type_from = i, type_to = 0;
    for (size_t from = i; from < end;) {
        size_t to = from;
        for (int angle = 0; to < end && !(code[to] == ',' && angle == 0);) {
            if (code[to] == '<') angle++;
            if (code[to] == '>' && angle > 0) angle--;
            if (code[to] == '=')
                fail(to, "a __shared__ variable cannot have an initial value: every thread would write it");
            if (code[to] == '[') {
                to = match(to);
                angle = 0;
            } else {
                to = strchr("([{", code[to]) ? match(to) : to + 1;
            }
        }
        size_t name_to = from;  // the name ends at the first '[' or at the end of the declarator
        for (int angle = 0; name_to < to && !(code[name_to] == '[' && angle == 0);) {
            if (code[name_to] == '<') angle++;
            if (code[name_to] == '>' && angle > 0) angle--;
            name_to = strchr("({", code[name_to]) ? match(name_to) : name_to + 1;
        }
        while (name_to > from && isspace((unsigned char)code[name_to - 1])) name_to--;
        size_t name_from = name_to;
        while (name_from > from && is_word(code[name_from - 1])) name_from--;
        if (name_from == name_to)
            fail(start, "cannot read this __shared__ declaration; write it as: __shared__ type name[size];");
        size_t declarator = from;  // with the stars before the name; the type stands before the first one
        if (!type_to) {
            declarator = name_from;
            while (declarator > from &&
                   (isspace((unsigned char)code[declarator - 1]) || code[declarator - 1] == '*'))
                declarator--;
            type_to = declarator;
        }
        int id = shared_count++;
        int n = (int)(name_to - name_from);
        fprintf(out, "struct simt_shared_%d { ", id);
        copy(type_from, type_to);
        fputc(' ', out);
        copy(declarator, to);
        fprintf(out, "; }; auto &%.*s = simt::shared<simt_shared_%d>(\"%.*s\").%.*s;", n, source + name_from,
                id, n, source + name_from, n, source + name_from);
        from = to + 1;
    }
    return end + 1;
}

// extern __shared__ T name[];  becomes  T *const name = (T *)simt::dynamic_shared("name", ...);
static size_t rewrite_dynamic_shared(size_t start, size_t shared) {
    size_t i = skip_space(shared + strlen("__shared__"));
    if (!inside_function(start))
        fail(start, "move this declaration of dynamic shared memory into the kernel: each block has its own");
    while (word_at(i, "__align__") || word_at(i, "alignas")) {
        while (is_word(code[i])) i++;
        i = skip_space(match(skip_space(i)));
    }
    size_t bracket = i;
    while (bracket < length && code[bracket] != '[' && code[bracket] != ';') bracket++;
    size_t close = code[bracket] == '[' ? skip_space(bracket + 1) : bracket, end = skip_space(close + 1);
    if (code[bracket] != '[' || code[close] != ']' || code[end] != ';')
        fail(start, "cannot read this declaration of dynamic shared memory; write it as: extern __shared__ "
                    "type name[];");
    size_t name_to = bracket;
    while (name_to > i && isspace((unsigned char)code[name_to - 1])) name_to--;
    size_t name_from = name_to;
    while (name_from > i && is_word(code[name_from - 1])) name_from--;
    int type = (int)(name_from - i), name = (int)(name_to - name_from);
    fprintf(
        out,
        "%.*s *const %.*s = reinterpret_cast<%.*s *>(simt::dynamic_shared(\"%.*s\", __FILE__, __LINE__));",
        type, source + i, name, source + name_from, type, source + i, name, source + name_from);
    copy_newlines(start, end);
    return end + 1;
}

static size_t rewrite_launch(size_t start) {
    size_t i = start + 3;
    while (i < length && strncmp(code + i, ">>>", 3)) i = strchr("([{", code[i]) ? match(i) : i + 1;
    if (i >= length) fail(start, "<<< without >>>");
    size_t arguments = skip_space(i + 3);
    if (code[arguments] != '(') fail(i, "a launch needs its arguments in parentheses after >>>");
    fputs("<<simt::Config(", out);
    copy(start + 3, i);
    fputc(')', out);
    return i + 3;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: simt-rewrite IN.cu OUT.cpp\n");
        return 2;
    }
    in_path = argv[1];
    read_source(argv[1]);
    blank_comments_and_literals();
    out = fopen(argv[2], "wb");
    if (!out) {
        fprintf(stderr, "simt-rewrite: cannot write %s\n", argv[2]);
        return 2;
    }
    fputs("#line 1 \"", out);
    for (const char *c = in_path; *c; c++) {
        if (*c == '"' || *c == '\\') fputc('\\', out);
        fputc(*c, out);
    }
    fputs("\"\n", out);
    for (size_t i = 0; i < length;) {
        if (code[i] == '<' && !strncmp(code + i, "<<<", 3)) {
            i = rewrite_launch(i);
        } else if (word_at(i, "__global__") || word_at(i, "__device__")) {
            i = rewrite_function_head(i);
        } else if (word_at(i, "extern") && word_at(skip_space(i + 6), "__shared__")) {
            i = rewrite_dynamic_shared(i, skip_space(i + 6));
        } else if (word_at(i, "static") && word_at(skip_space(i + 6), "__shared__")) {
            copy_newlines(i, skip_space(i + 6));
            i = skip_space(i + 6);
        } else if (word_at(i, "__shared__")) {
            i = rewrite_shared(i);
        } else {
            size_t end = i + 1;
            if (is_word(code[i]))
                while (is_word(code[end])) end++;  // a whole word, so that copy sees it
            copy(i, end);
            i = end;
        }
    }
    if (fclose(out)) {
        fprintf(stderr, "simt-rewrite: cannot write %s\n", argv[2]);
        return 2;
    }
    return 0;
}
