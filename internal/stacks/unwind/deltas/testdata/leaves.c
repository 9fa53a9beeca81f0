/* Calls functions of many forms, of its own and of the C library, once each, in work. */
#define _GNU_SOURCE
#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

volatile long sink;

NOINLINE static long leaf(long n) {
    return n * 31 + 7;
}

NOINLINE static long loop(long n) {
    long x = n;
    for (int i = 0; i < 5; i++)
        x = x * 31 + i;
    return x;
}

NOINLINE static long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    return loop(a + b) * leaf(c + d) + loop(e + f) * leaf(g + h);
}

NOINLINE static long tail(long n) {
    return loop(n + 1);
}

NOINLINE static long early(long n) {
    if (n < 3)
        return n;
    if (n < 10)
        return leaf(n);
    return tail(n) + early(n - 7);
}

NOINLINE static long dynamic(long n) {
    char *room = __builtin_alloca(n);
    memset(room, 3, n);
    return room[n / 2] + loop(n);
}

struct aligned {
    _Alignas(64) long words[16];
};

NOINLINE static long aligned(long n) {
    struct aligned a = {{n}};
    volatile struct aligned *p = &a;
    return p->words[0] + loop(p->words[3]);
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void handler(int number) {
    sink += loop(number);
}

NOINLINE static long strings(void) {
    static char from[700], to[700];
    long n = 0;
    memset(from, 'x', sizeof(from) - 1);
    for (size_t size = 1; size < sizeof(from); size = size * 6 + 1) {
        memcpy(to, from, size);
        memmove(to + 1, to, size - 1);
        n += memcmp(from, to, size) + (memchr(from, 'y', size) != NULL);
        to[size] = 0;
        n += strlen(to) + strcmp(from, to) + (strchr(to, 'z') != NULL) + (strrchr(to, 'z') != NULL);
        n += strncmp(from, to, size) + (strstr(to, "xy") != NULL);
    }
    strcpy(to, "some words, and 42");
    strcat(to, " more");
    n += atoi(to + 16) + strtol(to + 16, NULL, 10) + strspn(to, "some") + toupper(to[0]);
    return n + (strtok(to, " ") != NULL) + strcasecmp(to, "SOME");
}

NOINLINE static long library(void) {
    int numbers[16];
    char text[200];
    struct timespec now;
    struct timeval tv;
    struct tm tm;
    long n = 0;
    for (int i = 0; i < 16; i++)
        numbers[i] = rand() % 1000;
    qsort(numbers, 16, sizeof(*numbers), compare);
    n += bsearch(&numbers[5], numbers, 16, sizeof(*numbers), compare) != NULL;
    n += snprintf(text, sizeof(text), "%d %s %5.2f %lx", numbers[3], "text", 3.14, n);
    n += sscanf("12 words", "%d %s", numbers, text);
    void *blocks[20];
    for (int i = 0; i < 20; i++)
        blocks[i] = malloc(10 << i % 15);
    blocks[3] = realloc(blocks[3], 30000);
    for (int i = 0; i < 20; i++)
        free(blocks[i]);
    clock_gettime(CLOCK_MONOTONIC, &now);
    gettimeofday(&tv, NULL);
    time_t when = time(NULL);
    gmtime_r(&when, &tm);
    n += strftime(text, sizeof(text), "%Y", &tm);
    n += getpid() + getenv("PATH")[0];
    double x = 0.1 * n;
    n += (long)(sin(x) + exp(0.3) + pow(1.1, 2.5) + log(x) + fmod(x, 3));
    FILE *f = fopen("/proc/self/stat", "r");
    if (f) {
        n += fgets(text, sizeof(text), f) != NULL;
        fclose(f);
    }
    return n;
}

NOINLINE long work(void) {
    long n = early(40) + dynamic(100) + aligned(5) + many(1, 2, 3, 4, 5, 6, 7, 8);
    n += strings() + library();
    raise(SIGUSR1);
    return n + early(3);
}

int main(void) {
    signal(SIGUSR1, handler);
    sink = work();
    return 0;
}
