#define _GNU_SOURCE  // NOLINT: for unshare
#include "namespaces.h"

#include <unistd.h>

#ifdef __linux__
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static int of_user;

int namespaces_of_user(void) { return of_user; }

// What mount_setattr(2) takes; older C libraries do not declare it.
struct attributes {
    uint64_t set, clear, propagation, user;
};
enum { READ_ONLY = 1, RECURSIVE = 0x8000 };
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

static int set_attributes(const char *path, uint64_t set, uint64_t clear, unsigned flags) {
    struct attributes a = {set, clear, 0, 0};
    return (int)syscall(SYS_mount_setattr, AT_FDCWD, path, flags, &a, sizeof a);
}

// Everything is read-only but the run's folder, and the hidden folders are empty. Their order matters: the
// folder may lie below a hidden one.
static int own_files(const struct limits *l) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 0;
    int folder = open(l->writable, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return 0;
    close(folder);
    if (mount(l->writable, l->writable, NULL, MS_BIND, NULL) != 0) return 0;
    for (size_t i = 0; i < sizeof l->hide / sizeof *l->hide && l->hide[i]; ++i)
        if (mount("none", l->hide[i], "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=0755") != 0) return 0;
    if (set_attributes("/", READ_ONLY, 0, RECURSIVE) != 0) return 0;
    return set_attributes(l->writable, 0, READ_ONLY, 0) == 0;
}

unsigned namespaces_enter(const struct limits *l) {
    unsigned apart = 0;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    of_user = 0;
    if (geteuid() != 0) {
        if (unshare(CLONE_NEWUSER) != 0) return 0;
        of_user = 1;
    }
    if (!(l->shared & APART_NETWORK) && unshare(CLONE_NEWNET) == 0) apart |= APART_NETWORK;
    if (!(l->shared & APART_FILES) && unshare(CLONE_NEWNS) == 0 && own_files(l)) apart |= APART_FILES;
    if (!(l->shared & APART_PROCESSES) && unshare(CLONE_NEWIPC) == 0 && unshare(CLONE_NEWPID) == 0)
        apart |= APART_PROCESSES;
    return apart;
}

void namespaces_end_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); }

void namespaces_own_processes(void) {
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0) return;
}

#else
unsigned namespaces_enter(const struct limits *l) {
    (void)l;
    return 0;
}
int namespaces_of_user(void) { return 0; }
void namespaces_own_processes(void) {}
void namespaces_end_with_parent(void) {}
#endif
