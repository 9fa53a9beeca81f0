/* What the calling thread knows about itself. */
#ifndef SELF_H
#define SELF_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t self_tid(void) {
    return (uint64_t)syscall(SYS_gettid);
}

/* The fs base, or tpidr_el0. */
static inline uintptr_t self_thread_pointer(void) {
    uintptr_t pointer;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(pointer)); /* both C libraries keep the base itself there */
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

/* CPU time of the thread, in nanoseconds. */
static inline uint64_t self_cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
