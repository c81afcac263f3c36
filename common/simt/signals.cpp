// signals.cpp - what would kill the program while a kernel runs is reported as a fault of that kernel: a
// stack that overflows (recursion, a large local array), an integer division by zero, a failed assert.
#include <signal.h>
#include <unistd.h>

#include <memory>

#include "internal.h"

#if defined(__linux__)
#include <ucontext.h>
#endif

namespace simt {

std::string stack_overflow_text() {
    return format(
        "local memory overflow: a thread used more than %zu KB of stack (deep recursion, or a large local "
        "array)",
        stack_bytes / 1024);
}

// How far below its stack a large local array may begin.
constexpr ptrdiff_t far_below = ptrdiff_t(64) << 20;

// Where the thread was, as a return address.
static uintptr_t code_address(void *context) {
#if defined(__linux__) && defined(__x86_64__)
    return uintptr_t(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP]) + 1;
#elif defined(__linux__) && defined(__aarch64__)
    return uintptr_t(static_cast<ucontext_t *>(context)->uc_mcontext.pc) + 1;
#else
    (void)context;
    return 0;
#endif
}

// The program ends here in any case, so that functions which a handler should not call may at worst end it
// otherwise.
static void report_signal(int number, siginfo_t *info, void *context) {
    static std::atomic<bool> reported{false};
    Worker *worker = current_worker;
    signal(number, SIG_DFL);
    if (!worker || !worker->current || reported.exchange(true)) {
        raise(number);
        return;
    }
    Fault &fault = worker->fault;
    fault.error = cudaErrorLaunchFailure;
    fault.pc = code_address(context);
    const char *address = static_cast<const char *>(info->si_addr), *stack = worker->current->stack;
    if (number == SIGFPE)
        fault.text = "integer division by zero";
    else if (number == SIGABRT)
        fault.text = "aborted (a failed assert?)", fault.pc = 0;
    else if (address < stack + stack_bytes && stack - address < far_below)
        fault.text = stack_overflow_text();
    else
        fault.text = format("invalid address %p", static_cast<const void *>(address));
    report_fault(*worker);
    _exit(1);
}

void catch_signals() {
    static thread_local std::unique_ptr<char[]>
        stack;  // the handler cannot run on a stack that has overflowed
    if (stack) return;
    constexpr size_t bytes = 256 * 1024;
    stack.reset(new char[bytes]);
    stack_t other = {};
    other.ss_sp = stack.get();
    other.ss_size = bytes;
    sigaltstack(&other, nullptr);
    static const bool once = [] {
        struct sigaction action = {};
        action.sa_sigaction = report_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) sigaction(number, &action, nullptr);
        return true;
    }();
    (void)once;
}

}  // namespace simt
