/*
 * threads LIBRARY... [-- LIBRARY...]
 *
 * Loads the first libraries, the last of which is an agent library, and prints what a test
 * must find of that one, one line per thread:
 *
 *   thread NAME, thread pointer, address of its variable (0: never touched), contents
 *
 * and then "loaded BASE". Numbers are hexadecimal. At the first line of its standard input
 * it loads the other agent libraries, one after the other, and a thread touches the variable
 * of each; then it prints "more loaded". It lives until the end of its standard input.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void **variable_function(void);

static variable_function *thread_variable; /* of the library loaded last */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int introduced; /* threads that have printed their line */
static int touches;    /* how often the thread that touches is to touch, and how often it has */
static int touched;

static uintptr_t thread_pointer(void) {
    uintptr_t pointer;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

static void introduce(const char *name, int touch) {
    void **variable = touch ? thread_variable() : NULL;
    if (touch) {
        *variable = &variable; /* another value in each thread */
    }
    printf("thread %s %lx %lx %lx\n", name, (long)thread_pointer(), (long)variable,
           touch ? (long)*variable : 0);
}

struct thread {
    const char *name;
    int touch;
};

static void *run(void *argument) {
    struct thread *thread = argument;
    pthread_mutex_lock(&lock);
    introduce(thread->name, thread->touch);
    introduced++;
    pthread_cond_broadcast(&changed);
    for (;;) {
        pthread_cond_wait(&changed, &lock);
        if (thread->touch && touched < touches) {
            thread_variable();
            touched++;
            pthread_cond_broadcast(&changed);
        }
    }
    return NULL;
}

/* Returns when the thread has introduced itself. */
static void start(struct thread *thread) {
    pthread_t handle;
    pthread_mutex_lock(&lock);
    int before = introduced;
    if (pthread_create(&handle, NULL, run, thread)) {
        perror("pthread_create");
        exit(1);
    }
    while (introduced == before) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static uintptr_t load(const char *path) {
    struct link_map *map;
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map)) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    thread_variable = (variable_function *)dlsym(handle, "agentlib_thread_variable");
    return map->l_addr;
}

/* Loads another library and has its variable touched. */
static void load_and_touch(const char *path) {
    pthread_mutex_lock(&lock);
    load(path);
    touches++;
    pthread_cond_broadcast(&changed);
    while (touched < touches) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv) {
    struct thread old = {"older-than-library", 0}, touching = {"touched", 1},
                  untouched = {"untouched", 0};
    uintptr_t base = 0;
    int i = 1;
    start(&old);
    for (; i < argc && strcmp(argv[i], "--"); i++) {
        base = load(argv[i]);
    }
    if (!base) {
        return 2;
    }
    introduce("main", 1);
    start(&touching);
    start(&untouched);
    printf("loaded %lx\n", (long)base);
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        for (i++; i < argc; i++) {
            load_and_touch(argv[i]);
        }
        puts("more loaded");
        fflush(stdout);
    }
    return 0;
}
