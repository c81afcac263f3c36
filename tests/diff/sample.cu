// A lab in form alone, for the tests of ./lab diff: two kernels that share functions.
#include "nothing.h"

enum step { PLAIN, FAST = 3, FASTER };
constexpr int WIDTH = 4;
constexpr float UNUSED = 1.0f;  // by both
template <int D> constexpr int KEYS = 64;
template <> constexpr int KEYS<128> = 32;

#define TWICE(x) (2 * (x))

struct pair {
    int first, second;
};

// Only the plain kernel adds like this.
static __device__ int slow_sum(struct pair p) { return p.first + p.second; }

// Only the fast kernel has it. The comment says "quoted { brace" and is no code.
static __device__ int fast_sum(struct pair p) {
    const char *text = "{ ( [ // no comment";  // nor are these brackets
    return TWICE(p.first) + (text != nullptr);
}

template <int STEP, bool TRACE> static __device__ int sum(struct pair p, int n) {
    bool is_fast = STEP >= FAST && TRACE == false;
    if (TRACE) n = 0;
    if (STEP == PLAIN && n > 1) n = 1;
    if (STEP == FASTER || n == 7) n = 8;
    // BEGIN SOLUTION choice: a mark, which is no comment for readers.
    // A choice in a choice, and one that stays.
    int more = STEP == PLAIN ? (n > 0 ? 1 : 2) : STEP == FAST ? 3 : 4, some = n > 2 ? 5 : 6;
    if constexpr (STEP < FAST) {
        more += slow_sum(p);
    } else if (n == 3) {
        more += fast_sum(p);
    } else {
        for (int i = 0; i < n; i++)
            if (!is_fast) more++;
    }
    if (n == 4)
        more = 9;
    else if (STEP == FAST)
        more = 10;
    if (n == 5) {
        more = 11;
    } else if (STEP >= FAST) {
        more = 12;
        n = 13;
    }
    return is_fast ? more + some : more;
}

// Both have this one; it stands elsewhere in neither.
template <int STEP> __global__ void __launch_bounds__(32, 2) attend(struct pair p, int *out) {
    if (STEP == FAST)
        // takes two
        out[0] = sum<STEP, false>(p, 2) + KEYS<128>;
    else
        out[0] = sum<STEP, false>(p, WIDTH);
}

template <int STEP> static void attend_of(struct pair p) { attend<STEP><<<1, 32>>>(p, nullptr); }
static void launch_plain(struct pair p) { attend_of<PLAIN>(p); }
static void launch_fast(struct pair p) { attend_of<FAST>(p); }

#ifdef __CUDACC__
static void launch_other(struct pair p) { attend_of<FASTER>(p); }
#else
static void (*const launch_other)(struct pair) = nullptr;
#endif

static const struct kernel kernels[] = {
    {"plain", "nothing {", launch_plain},
    {"fast", "speed", launch_fast},
    {"other", "more of it", launch_other},
};
