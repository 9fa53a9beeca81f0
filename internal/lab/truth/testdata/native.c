/* A program of known truth in C: see doc.go. */
#include "publish.c"
#include <signal.h>
#include <stdio.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone)) /* a clone has another name */
#endif

/* --- what burns the CPU ------------------------------------------------------------------------
 */

volatile long sink;

NOINLINE static long hash(long n) {
    long x = n;
    for (long i = 0; i < n; i++)
        x = x * 31 + i;
    return x;
}

NOINLINE static void price(void) {
    sink += hash(2000000);
}

NOINLINE static void reserve(void) {
    sink += hash(1000000) + 1;
}

NOINLINE static long tiny(long n) {
    return n * 31 + 7;
}

NOINLINE static void count(void) {
    long x = 0;
    for (int i = 0; i < 1500000; i++)
        x = tiny(x + i);
    sink += x;
}

NOINLINE static long fib(long n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

NOINLINE static void recurse(void) {
    sink += fib(25);
}

static char from[1 << 16], to[1 << 16];

NOINLINE static void copy(void) {
    for (int i = 0; i < 500; i++) {
        memcpy(to, from, sizeof(from) - i);
        sink += to[i];
    }
}

NOINLINE static void measure(void) {
    for (int i = 0; i < 300; i++) {
        from[i] = 'y';
        sink += strlen(from + i);
    }
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

NOINLINE static void sorting(void) {
    static int numbers[20000];
    for (int i = 0; i < 20000; i++)
        numbers[i] = (int)((unsigned)i * 2654435761u >> 8);
    qsort(numbers, 20000, sizeof(*numbers), compare);
    sink += numbers[7];
}

NOINLINE static void clocks(void) {
    struct timespec now;
    for (int i = 0; i < 50000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        sink += now.tv_nsec;
    }
}

NOINLINE static void formats(void) {
    char text[200];
    for (int i = 0; i < 8000; i++)
        sink += snprintf(text, sizeof(text), "%d %s %5.2f %lx", i, "text", 3.14 * i, sink);
}

NOINLINE static long spin(long n) {
    long x = n;
    for (long i = 0; i < n; i++)
        x = x * 33 + i;
    return x;
}

static void handler(int number) {
    sink += spin(900000 + number);
}

NOINLINE static void signals(void) {
    raise(SIGUSR1);
    sink++;
}

/* --- the truth ---------------------------------------------------------------------------------
 */

static struct phase {
    const char *name;
    void (*run)(void);
    uint64_t took; /* ns */
} phases[] = {
    {"price", price, 0},     {"reserve", reserve, 0}, {"count", count, 0},
    {"recurse", recurse, 0}, {"copy", copy, 0},       {"measure", measure, 0},
    {"sorting", sorting, 0}, {"clocks", clocks, 0},   {"formats", formats, 0},
    {"signals", signals, 0},
};
#define PHASES (sizeof(phases) / sizeof(*phases))

NOINLINE static uint64_t cpu_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static volatile sig_atomic_t ends;

static void end(int number) {
    ends = number;
}

NOINLINE static void work(void) {
    while (!ends)
        for (unsigned i = 0; i < PHASES; i++) {
            uint64_t before = cpu_time();
            phases[i].run();
            phases[i].took += cpu_time() - before;
        }
}

int main(void) {
    double all = 0;
    memset(from, 'x', sizeof(from) - 1);
    signal(SIGUSR1, handler);
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    work();
    for (unsigned i = 0; i < PHASES; i++)
        all += phases[i].took;
    printf("{\"inclusive\": {");
    for (unsigned i = 0; i < PHASES; i++)
        printf("%s\"%s\": %.4f", i ? ", " : "", phases[i].name, phases[i].took / all);
    printf("}, \"self\": {\"hash\": %.4f, \"spin\": %.4f},\n",
           (phases[0].took + phases[1].took) / all, phases[9].took / all);
    printf("\"work\": \"work\", \"clock\": \"cpu_time\",\n\"above\": {\"hash\": [\"price\", "
           "\"reserve\"], \"tiny\": [\"count\"], \"fib\": "
           "[\"recurse\"], "
           "\"compare\": [\"sorting\"], \"handler\": [\"signals\"], \"spin\": [\"signals\"]}}");
    return 0;
}
