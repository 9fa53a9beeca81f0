/* What programs in other languages have of C. It is preloaded: a process with it takes part.
 * Node.js also has it as an addon, and Python by ctypes. */
#include "publish.c"

/* spin is native code that a program calls. */
long __attribute__((noinline)) spin(long n) {
    long x = n;
    for (long i = 0; i < n; i++)
        x = x * 33 + i;
    return x;
}

/* cpu_time returns the CPU time of the thread in nanoseconds. */
double cpu_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

/* --- the addon: what Node.js exports for it ----------------------------------------------------
 */

typedef void *value;
typedef value (*function)(void *, void *);

#define EXPORTED __attribute__((weak)) int
EXPORTED napi_create_double(void *, double, value *);
EXPORTED napi_create_function(void *, const char *, size_t, function, void *, value *);
EXPORTED napi_set_named_property(void *, value, const char *, value);

static value time_now(void *env, void *info) {
    value v = info;
    napi_create_double(env, cpu_time(), &v);
    return v;
}

static value spins(void *env, void *info) {
    value v = info;
    napi_create_double(env, (double)spin(2000000), &v);
    return v;
}

value napi_register_module_v1(void *env, value exports) {
    value v;
    napi_create_function(env, "cpuTime", SIZE_MAX, time_now, NULL, &v);
    napi_set_named_property(env, exports, "cpuTime", v);
    napi_create_function(env, "spin", SIZE_MAX, spins, NULL, &v);
    napi_set_named_property(env, exports, "spin", v);
    return exports;
}
