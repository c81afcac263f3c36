#define _DEFAULT_SOURCE
#include "scan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- the words

struct group {
    const char *what;
    const char *words[40];
};

// A word that ends with * stands for all that begin so.
static const struct group groups[] = {
    {"starts or ends processes",
     {"system",       "popen", "fork",   "vfork",  "clone",   "execl",   "execlp",
      "execle",       "execv", "execvp", "execve", "execvpe", "fexecve", "posix_spawn",
      "posix_spawnp", "kill",  "raise",  "wait",   "waitpid", "ptrace"}},
    {"ends the program before its results are written",
     {"exit", "_exit", "_Exit", "quick_exit", "abort", "atexit", "at_quick_exit", "signal", "sigaction",
      "longjmp", "setjmp", "terminate"}},
    {"reads or writes files",
     {"fopen",   "freopen", "fdopen", "fwrite",   "fread",    "open",     "openat", "creat",     "read",
      "write",   "pread",   "pwrite", "ifstream", "ofstream", "fstream",  "unlink", "remove",    "rename",
      "opendir", "readdir", "dup",    "dup2",     "mmap",     "mprotect", "stat",   "link",      "symlink",
      "mkdir",   "chdir",   "chmod",  "tmpfile",  "mkstemp",  "ioctl",    "fcntl",  "filesystem"}},
    {"uses the network", {"socket", "connect", "bind", "listen", "accept", "getaddrinfo", "sendto", "recv"}},
    {"looks at the environment or the command line",
     {"getenv", "secure_getenv", "setenv", "putenv", "environ", "argv", "argc", "program_invocation_name"}},
    {"gets round the compiler or the linker",
     {"asm", "__asm", "__asm__", "dlopen", "dlsym", "dl_iterate_phdr", "syscall", "constructor", "destructor",
      "init_priority", "ifunc", "alias", "section", "_Pragma", "incbin", "builtin_return_address"}},
    {"uses what the check is made of",
     {"reference_*", "gradients_*", "problem_*", "compare", "outputs_run", "case_*", "npy_*", "rows_*",
      "inputs_fill*", "result_*"}},
    {"moves numbers to or from the device past the kernels",
     {"cudaMemcpy*", "cudaMallocManaged", "cudaMallocHost", "cudaHostAlloc", "cudaHostRegister",
      "cudaLaunchHostFunc", "cudaHostGetDevicePointer"}},
    {"speaks to the simulated device", {"simt_*", "simt", "__tsan_*", "__sanitizer_*"}},
    {"defines what the grader brings", {"lab_main", "lab_cuda_check"}},
    {"starts threads of the host", {"pthread_create", "jthread", "async", "thrd_create"}},
};
enum { GROUPS = sizeof groups / sizeof *groups };

static const char *const allowed_headers[] = {"cuda.h",
                                              "cuda_runtime.h",
                                              "cuda_fp16.h",
                                              "cuda_bf16.h",
                                              "cuda_fp8.h",
                                              "cublas_v2.h",
                                              "mma.h",
                                              "math.h",
                                              "float.h",
                                              "limits.h",
                                              "stdint.h",
                                              "stddef.h",
                                              "stdbool.h",
                                              "stdio.h",
                                              "stdlib.h",
                                              "string.h",
                                              "assert.h",
                                              "common/lab.h",
                                              "common/attention.h",
                                              "common/numbers.h",
                                              "common/growth.h",
                                              "common/lab16.h",
                                              "common/ptx.h",
                                              "common/trace.h",
                                              "common/tensor_map.h",
                                              "common/quantise.h",
                                              "common/lab16_gradients.h"};

// ---------------------------------------------------------------- what is left of a source

// The source as the compiler sees it after its first steps: trigraphs and digraphs replaced, lines that a
// backslash continues joined (and the line ends kept behind them), and blanks in place of comments, strings
// and characters, but for what #include names.
struct plain {
    char *text;
    int trigraphs;
};

static char trigraph(const char *at) {
    static const char from[] = "=/'()!<>-", to[] = "#\\^[]|{}~";
    const char *found = at[0] == '?' && at[1] == '?' && at[2] ? strchr(from, at[2]) : NULL;
    if (!found) return '\0';
    return to[found - from];
}

// Joins lines and replaces trigraphs and "%:". Returns how many trigraphs there were.
static int join(const char *from, char *to) {
    int trigraphs = 0, ends = 0;
    while (*from) {
        char c = trigraph(from);
        size_t length = c ? 3 : 1;
        trigraphs += c != '\0';
        if (!c) c = *from;
        if (c == '%' && from[1] == ':') c = '#', length = 2;
        const char *behind = from + length;
        if (c == '\\' && (*behind == '\n' || (*behind == '\r' && behind[1] == '\n'))) {
            from = behind + (*behind == '\r') + 1, ++ends;
            continue;
        }
        from = behind;
        *to++ = c;
        for (; c == '\n' && ends > 0; --ends) *to++ = '\n';
    }
    *to = '\0';
    return trigraphs;
}

// The end of the string or character that begins at `at`, raw strings included.
static char *end_of_literal(char *at, int raw) {
    char quote = *at;
    if (raw) {
        char close[24];
        size_t length = strcspn(at + 1, "(\n");
        if (length > 16 || at[1 + length] != '(') return at + 1;
        snprintf(close, sizeof close, ")%.*s\"", (int)length, at + 1);
        char *end = strstr(at, close);
        return end ? end + strlen(close) : at + strlen(at);
    }
    for (++at; *at && *at != quote && *at != '\n'; ++at)
        if (*at == '\\' && at[1]) ++at;
    return *at == quote ? at + 1 : at;
}

static void blank(char *from, const char *to) {
    for (; from < to; ++from)
        if (*from != '\n') *from = ' ';
}

static int in_include(const char *text, const char *at) {
    while (at > text && at[-1] != '\n') --at;
    at += strspn(at, " \t");
    if (*at++ != '#') return 0;
    at += strspn(at, " \t");
    return strncmp(at, "include", 7) == 0;
}

static int is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static void strip(char *text) {
    for (char *at = text; *at;) {
        char *end = at + 1;
        if (at[0] == '/' && at[1] == '/') {
            end = at + strcspn(at, "\n");
            blank(at, end);
        } else if (at[0] == '/' && at[1] == '*') {
            end = strstr(at + 2, "*/");
            end = end ? end + 2 : at + strlen(at);
            blank(at, end);
        } else if ((*at == '"' && !in_include(text, at)) ||
                   (*at == '\'' && (at == text || !isalnum((unsigned char)at[-1])))) {
            int raw = *at == '"' && at > text && at[-1] == 'R' && (at - 1 == text || !is_word(at[-2]));
            end = end_of_literal(at, raw);
            blank(at, end);
        }
        at = end;
    }
}

static struct plain make_plain(const char *source) {
    struct plain p = {calloc(strlen(source) + 1, 1), 0};
    if (!p.text) return p;
    p.trigraphs = join(source, p.text);
    strip(p.text);
    return p;
}

// ---------------------------------------------------------------- includes

// The name in the #include that begins at `at`; empty if it is none, or a macro.
static void included(const char *at, char *name, size_t bytes) {
    at += strspn(at, " \t");
    char close = *at;
    if (close == '<') close = '>';
    if (close != '>' && close != '"') close = '\0';
    size_t length = close ? strcspn(at + 1, close == '>' ? ">\n" : "\"\n") : 0;
    name[0] = '\0';
    if (close && length < bytes && at[1 + length] == close)
        snprintf(name, bytes, "%.*s", (int)length, at + 1);
}

static void look_at_includes(const char *text, struct scan *scan) {
    int number = 1;
    for (const char *line = text; line; number += line != NULL) {
        const char *at = line + strspn(line, " \t");
        int is_directive = *at == '#';
        at += is_directive;
        at += strspn(at, " \t");
        line = strchr(line, '\n');
        line += line != NULL;
        if (!is_directive ||
            (strncmp(at, "include", 7) != 0 && strncmp(at, "embed", 5) != 0 && strncmp(at, "import", 6) != 0))
            continue;
        char name[100];
        included(at + 7, name, sizeof name);
        int allowed = 0;
        for (size_t i = 0; i < sizeof allowed_headers / sizeof *allowed_headers; ++i)
            allowed |= strcmp(name, allowed_headers[i]) == 0;
        if (allowed && !is_word(at[7])) continue;
        fail(&scan->refused,
             "line %d includes %s, and a lab includes headers of CUDA, of the C library's numbers and "
             "strings, "
             "and from common/ those for labs only: take it out.",
             number, name[0] ? name : "what is no plain name of a file");
        return;
    }
}

// ---------------------------------------------------------------- words

static int matches(const char *pattern, const char *word, size_t length) {
    size_t pattern_length = strlen(pattern);
    if (pattern[pattern_length - 1] == '*')
        return length >= pattern_length - 1 && strncmp(pattern, word, pattern_length - 1) == 0;
    return length == pattern_length && strncmp(pattern, word, length) == 0;
}

// How often the pattern is a word of the text; *line gets the line of the place number `last` of these.
static int count_words(const char *text, const char *pattern, int last, int *line) {
    int count = 0, number = 1;
    for (const char *at = text; *at;) {
        if (*at == '\n') ++number;
        size_t length = 0;
        while (is_word(at[length])) ++length;
        if (length > 0 && matches(pattern, at, length) && count++ == last && line) *line = number;
        at += length ? length : 1;
    }
    return count;
}

static int count_pastings(const char *text) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, "##")) != NULL; at += 2) ++count;
    return count;
}

static void remark(struct scan *scan, const char *what, const char *word, int line, int count, int original) {
    if (scan->count == SCAN_REMARKS) return;
    char *text = scan->remark[scan->count++];
    int length = snprintf(text, sizeof *scan->remark, "\"%s\", which %s: %d time%s", word, what, count,
                          count == 1 ? "" : "s");
    if (line > 0)
        length += snprintf(text + length, sizeof *scan->remark - (size_t)length, ", as in line %d", line);
    if (original > 0)
        snprintf(text + length, sizeof *scan->remark - (size_t)length, " (the lab itself has it %d time%s)",
                 original, original == 1 ? "" : "s");
}

void scan_source(const char *source, const char *original, struct scan *scan) {
    memset(scan, 0, sizeof *scan);
    struct plain of = make_plain(source), from = make_plain(original);
    if (of.text && from.text) {
        look_at_includes(of.text, scan);
        for (int g = 0; g < GROUPS; ++g)
            for (int w = 0; w < 40 && groups[g].words[w]; ++w) {
                const char *word = groups[g].words[w];
                int line = 0, had = count_words(from.text, word, 0, NULL);
                int count = count_words(of.text, word, had, &line);
                if (count > had) remark(scan, groups[g].what, word, line, count, had);
            }
        int pastings = count_pastings(of.text), had = count_pastings(from.text);
        if (pastings > had) remark(scan, "makes words that a scan does not see", "##", 0, pastings, had);
        if (of.trigraphs > from.trigraphs)
            remark(scan, "hides a character", "?? (a trigraph)", 0, of.trigraphs, from.trigraphs);
    } else {
        fail(&scan->refused, "there is no memory left to look at it.");
    }
    free(of.text);
    free(from.text);
}
