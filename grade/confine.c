#define _GNU_SOURCE  // NOLINT: for unshare
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "namespaces.h"

enum { FIRST_USER = 60100, DRAIN_BYTES = 4096 };

unsigned confine_user(int slot) { return FIRST_USER + (unsigned)slot % CONFINE_SLOTS; }

int confine_reserve(void) {
    for (int slot = 0; slot < CONFINE_SLOTS; ++slot) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/lab_grade_%d_%d.lock", (int)geteuid(), slot);
        int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return slot;
        if (fd >= 0) close(fd);
    }
    return -1;
}

// What the child at the end of the chain tells: how the program ended.
struct report {
    int status;  // as of waitpid
    unsigned apart;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---------------------------------------------------------------- in the child

static void limit(int which, long long value) {
    struct rlimit r = {(rlim_t)value, (rlim_t)value};
    setrlimit(which, &r);
}

static void set_limits(const struct limits *l, unsigned apart) {
    struct rlimit cpu = {(rlim_t)l->cpu_seconds, (rlim_t)l->cpu_seconds + 2};
    limit(RLIMIT_CORE, 0);
    if (l->cpu_seconds) setrlimit(RLIMIT_CPU, &cpu);
    if (l->memory_mb) limit(RLIMIT_AS, (long long)l->memory_mb << 20);
    if (l->file_mb) limit(RLIMIT_FSIZE, (long long)l->file_mb << 20);
    if (l->processes && apart & (APART_USER | APART_PROCESSES)) limit(RLIMIT_NPROC, l->processes);
}

static void close_from(int first) {
    for (int fd = first; fd < 1024; ++fd) close(fd);
}

// Only root can become another user, and then it must.
static int become(const struct limits *l) {
    unsigned user = confine_user(l->slot);
    return setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0 ? 0 : -1;
}

__attribute__((noreturn)) static void start(const char *const *argv, const char *folder,
                                            const struct limits *l, unsigned apart) {
    static const char *const kept[] = {"PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME"};
    char values[8][4096];
    char *environment[9] = {values[0]};
    int count = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; ++i) {
        const char *value = getenv(kept[i]);
        if (!value || snprintf(values[count], sizeof *values, "%s=%s", kept[i], value) >= (int)sizeof *values)
            continue;
        environment[count] = values[count], ++count;
    }
    snprintf(values[count], sizeof *values, "HOME=%.1000s", folder);
    environment[count] = values[count], ++count;
    snprintf(values[count], sizeof *values, "TMPDIR=%.1000s", folder);
    environment[count] = values[count], ++count;
    snprintf(values[count], sizeof *values, "LC_ALL=C");
    environment[count] = values[count], ++count;
    // Each worker of the cpu backend takes addresses, of which a run has so many; and runs are side by side.
    snprintf(values[count], sizeof *values, "SIMT_WORKERS=2");
    environment[count] = values[count], ++count;
    environment[count] = NULL;
    int failed = chdir(folder) != 0;
    set_limits(l, apart);
    failed = failed || (apart & APART_USER && become(l) != 0);
    if (!failed) execve(argv[0], (char *const *)argv, environment);
    fprintf(stderr, "%s cannot be started: %s\n", argv[0], strerror(errno));
    _exit(127);
}

// Starts the program and waits for it, and for whatever it left behind that is ours to wait for.
static int start_and_wait(const char *const *argv, const char *folder, const struct limits *l, unsigned apart,
                          int status_to) {
    pid_t program = fork();
    if (program == 0) {
        close_from(3);
        start(argv, folder, l, apart);
    }
    struct report report = {.status = 127 << 8, .apart = apart};
    int status = 0;
    while (program > 0 && waitpid(program, &status, 0) < 0 && errno == EINTR) continue;
    if (program > 0) report.status = status;
    return write(status_to, &report, sizeof report) == (ssize_t)sizeof report ? 0 : -1;
}

// The first child: goes apart, and from there starts the program. In a new space of processes a child is the
// first, and when it ends all others end with it.
__attribute__((noreturn)) static void run_child(const char *const *argv, const char *folder,
                                                const struct limits *l, int status_to) {
    setpgid(0, 0);
    namespaces_end_with_parent();
    unsigned apart = l->confined ? namespaces_enter(l) : 0;
    if (l->confined && geteuid() == 0 && getuid() == 0 && !namespaces_of_user()) apart |= APART_USER;
    if (!(apart & APART_PROCESSES)) _exit(start_and_wait(argv, folder, l, apart, status_to) != 0);
    pid_t first = fork();
    if (first == 0) {
        namespaces_end_with_parent();
        if (apart & APART_FILES) namespaces_own_processes();
        _exit(start_and_wait(argv, folder, l, apart, status_to) != 0);
    }
    int status = 0;
    while (first > 0 && waitpid(first, &status, 0) < 0 && errno == EINTR) continue;
    _exit(0);
}

// Ends every process of the slot's user, for runs that share the space of processes with the rest.
static void end_user(const struct limits *l) {
    pid_t child = fork();
    if (child == 0) {
        if (become(l) == 0) kill(-1, SIGKILL);
        _exit(0);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
}

// ---------------------------------------------------------------- in the grader

// Reads what the program says, and drops what there is no room for. Returns 0 at the end of it.
static int read_output(int from, struct outcome *o, size_t *length) {
    char dropped[DRAIN_BYTES];
    size_t room = sizeof o->output - 1 - *length;
    ssize_t got = read(from, room ? o->output + *length : dropped, room ? room : sizeof dropped);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    if (room) *length += (size_t)got;
    return got > 0;
}

// Until the program has ended or its time is over. Returns 1 if it told how it ended.
static int watch(int output_from, int status_from, const struct limits *l, struct outcome *o,
                 struct report *report) {
    double end = now() + l->wall_seconds;
    size_t length = 0;
    int told = 0, open = 1;
    while (!told) {
        struct pollfd fds[2] = {{.fd = status_from, .events = POLLIN},
                                {.fd = open ? output_from : -1, .events = POLLIN}};
        double left = end - now();
        if (left <= 0) break;
        if (poll(fds, 2, (int)(left * 1000) + 1) < 0 && errno != EINTR) break;
        if (fds[1].revents) open = read_output(output_from, o, &length);
        if (fds[0].revents) {
            told = read(status_from, report, sizeof *report) == (ssize_t)sizeof *report;
            break;
        }
    }
    // What it wrote last may still be in the pipe.
    fcntl(output_from, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 1000 && open; ++i) {
        size_t before = length;
        open = read_output(output_from, o, &length) && length > before;
    }
    for (size_t i = 0; i < length; ++i)
        if (o->output[i] == '\0') o->output[i] = ' ';
    o->output[length] = '\0';
    return told;
}

int confine_run(const char *const *argv, const char *folder, const struct limits *l, struct outcome *o,
                struct message *why) {
    int output[2], status[2];
    memset(o, 0, sizeof *o);
    o->exit_code = -1;
    fflush(NULL);
    if (pipe(output) != 0) return fail(why, "There is no pipe left: %s.", strerror(errno));
    if (pipe(status) != 0) {
        close(output[0]), close(output[1]);
        return fail(why, "There is no pipe left: %s.", strerror(errno));
    }
    double begin = now();
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDONLY);
        if (dup2(null, 0) < 0 || dup2(output[1], 1) < 0 || dup2(output[1], 2) < 0) _exit(126);
        int status_to = dup2(status[1], 3);
        close_from(4);
        run_child(argv, folder, l, status_to);
    }
    close(output[1]), close(status[1]);
    struct report report = {.status = 0};
    int told = child > 0 && watch(output[0], status[0], l, o, &report);
    close(output[0]), close(status[0]);
    if (child < 0) return fail(why, "There is no process left: %s.", strerror(errno));
    setpgid(child, child);
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    int ignored = 0;
    while (waitpid(child, &ignored, 0) < 0 && errno == EINTR) continue;
    if (l->confined && geteuid() == 0 && !(report.apart & APART_PROCESSES)) end_user(l);
    o->seconds = now() - begin;
    o->apart = report.apart;
    o->timed_out = !told && o->seconds >= l->wall_seconds;
    if (told && WIFEXITED(report.status)) o->exit_code = WEXITSTATUS(report.status);
    if (told && WIFSIGNALED(report.status)) o->signal = WTERMSIG(report.status);
    if (!told && !o->timed_out) o->signal = SIGKILL;
    return 0;
}

int confine_out_of_time(const struct outcome *o, const struct limits *l) {
    return o->timed_out || o->signal == SIGXCPU ||
           (o->signal == SIGKILL && l->cpu_seconds && o->seconds >= l->cpu_seconds);
}

void confine_describe(const struct outcome *o, const struct limits *l, char *text, size_t bytes) {
    text[0] = '\0';
    if (o->timed_out)
        snprintf(text, bytes, "it was still running after %d s", l->wall_seconds);
    else if (confine_out_of_time(o, l))
        snprintf(text, bytes, "it took more than %d s of CPU time", l->cpu_seconds);
    else if (o->signal == SIGXFSZ)
        snprintf(text, bytes, "it wrote more than %d MB to a file", l->file_mb);
    else if (o->signal == SIGSEGV || o->signal == SIGBUS)
        snprintf(text, bytes, "it crashed (%s: it used an address that is not its own)",
                 o->signal == SIGBUS ? "bus error" : "segmentation fault");
    else if (o->signal == SIGABRT && l->memory_mb == 0)
        snprintf(text, bytes, "it ended itself (abort)");
    else if (o->signal == SIGABRT)
        snprintf(text, bytes, "it ended itself (abort; perhaps there was no memory left within %d MB)",
                 l->memory_mb);
    else if (o->signal)
        snprintf(text, bytes, "signal %d ended it", o->signal);
}
