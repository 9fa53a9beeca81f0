#include "work.h"

#include <stdatomic.h>
#include <stdint.h>

#define NOINLINE __attribute__((noinline))

/*
 * Keeps a call from becoming a jump, so that its caller stays on the stack, and two
 * functions of the same text from becoming one.
 */
#define AFTER_CALL() __asm__ volatile("" ::"i"(__LINE__))

/* Gives a function that calls none a frame of its own, which compilers otherwise leave out whatever
 * they are told: without one, its caller is not on the stack for who follows frame pointers. */
#define OWN_FRAME() __asm__ volatile("" ::"r"(__builtin_frame_address(0)))

/* Once through a leaf takes some ten microseconds. */
enum { ROUNDS = 10000 };

/* Where results go, so that the compiler keeps the work. */
static atomic_ullong sink;

static _Atomic(double (*)(double)) borrowed;

void work_borrow(double (*function)(double)) {
    atomic_store(&borrowed, function);
}

NOINLINE static void hash_basket(void) {
    OWN_FRAME();
    double (*function)(double) = atomic_load_explicit(&borrowed, memory_order_relaxed);
    for (int i = 0; function && i < ROUNDS / 10; i++) {
        function(i);
    }
    uint64_t x = atomic_load_explicit(&sink, memory_order_relaxed);
    for (int i = 0; i < ROUNDS; i++) {
        x = (x ^ (uint64_t)i) * UINT64_C(0x100000001b3);
    }
    atomic_store_explicit(&sink, x, memory_order_relaxed);
}

NOINLINE static void score_results(void) {
    OWN_FRAME();
    uint64_t x = atomic_load_explicit(&sink, memory_order_relaxed) | 1;
    for (int i = 0; i < ROUNDS; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    atomic_store_explicit(&sink, x, memory_order_relaxed);
}

NOINLINE static void price_basket(void) {
    hash_basket();
    AFTER_CALL();
}

NOINLINE static void add_tax(void) {
    score_results();
    AFTER_CALL();
}

NOINLINE static void checkout(void) {
    price_basket();
    add_tax();
    AFTER_CALL();
}

NOINLINE static void search(void) {
    score_results();
    AFTER_CALL();
}

/* The same function at different depths: stacks that share their leaf and their root. */
NOINLINE static void list_folder(int depth) {
    if (depth > 0) {
        list_folder(depth - 1);
    } else {
        hash_basket();
    }
    AFTER_CALL();
}

NOINLINE static void browse(void) {
    list_folder(2);
    list_folder(5);
    AFTER_CALL();
}

NOINLINE static void housekeeping(void) {
    hash_basket();
    AFTER_CALL();
}

const struct work work_kinds[WORK_KINDS] = {
    {"checkout", checkout},
    {"search", search},
    {"browse", browse},
};

const struct work work_gap = {"housekeeping", housekeeping};
