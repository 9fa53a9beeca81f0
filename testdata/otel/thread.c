#include "thread.h"

#include "self.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct thread {
    unsigned index;
    uint64_t tid;
    uintptr_t thread_pointer;
    pthread_t handle;
    struct record_writer writer;
    bool busy;
    const struct order *order; /* by the lock; null: none, or done */
    const char *error;         /* of the last order */
    atomic_bool ordered;       /* the same as order != NULL, for a busy one */
};

static struct thread threads[THREADS_MAX];
static unsigned n_threads;
static void **(*thread_variable)(void); /* null: no library is loaded */
static bool write_in_place;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

__attribute__((noinline)) void otel_burn(void) {
    static atomic_ullong sink;
    __asm__ volatile("" ::"r"(__builtin_frame_address(0))); /* a frame of its own */
    uint64_t x = atomic_load_explicit(&sink, memory_order_relaxed);
    for (uint64_t i = 0; i < 10000; i++) {
        x = (x ^ i) * UINT64_C(0x100000001b3);
    }
    atomic_store_explicit(&sink, x, memory_order_relaxed);
}

static const char *obey(struct thread *t, const struct order *order) {
    if (order->action == THREAD_BUSY) {
        t->busy = order->number;
        return NULL;
    }
    if (order->action == THREAD_END) {
        return NULL;
    }
    if (!thread_variable) {
        return "no library with the variable is loaded";
    }
    t->writer.variable = (struct record **)thread_variable();
    t->writer.in_place = write_in_place;
    switch (order->action) {
    case THREAD_RECORD:
        record_set(&t->writer, order->bytes, order->size);
        break;
    case THREAD_RESIZE:
        if (!t->writer.current) {
            return "the thread has no record yet";
        }
        record_resize(&t->writer, order->bytes, order->size, (uint16_t)order->number);
        break;
    case THREAD_CLEAR:
        record_clear(&t->writer);
        break;
    default: /* THREAD_POINTER */
        *(volatile uintptr_t *)t->writer.variable = (uintptr_t)order->number;
    }
    return NULL;
}

static void introduce(struct thread *t) {
    t->tid = self_tid();
    t->thread_pointer = self_thread_pointer();
}

static void *run(void *argument) {
    struct thread *t = argument;
    pthread_mutex_lock(&lock);
    introduce(t);
    pthread_cond_broadcast(&changed);
    for (enum action done = THREAD_CLEAR; done != THREAD_END;) {
        while (!t->order && !t->busy) {
            pthread_cond_wait(&changed, &lock);
        }
        pthread_mutex_unlock(&lock);
        while (t->busy && !atomic_load(&t->ordered)) {
            otel_burn();
        }
        pthread_mutex_lock(&lock);
        if (t->order) {
            done = t->order->action;
            t->error = obey(t, t->order);
            t->order = NULL;
            atomic_store(&t->ordered, false);
            pthread_cond_broadcast(&changed);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void threads_init(void **(*variable)(void), bool in_place) {
    thread_variable = variable;
    write_in_place = in_place;
    introduce(&threads[0]);
    n_threads = 1;
}

void threads_use(void **(*variable)(void)) {
    pthread_mutex_lock(&lock);
    thread_variable = variable;
    pthread_mutex_unlock(&lock);
}

const char *threads_start(unsigned n) {
    for (; n; n--) {
        if (n_threads == THREADS_MAX) {
            return "too many threads";
        }
        struct thread *t = &threads[n_threads];
        *t = (struct thread){.index = n_threads};
        pthread_mutex_lock(&lock);
        int error = pthread_create(&t->handle, NULL, run, t);
        while (!error && !t->tid) {
            pthread_cond_wait(&changed, &lock);
        }
        pthread_mutex_unlock(&lock);
        if (error) {
            return strerror(error);
        }
        n_threads++;
    }
    return NULL;
}

const char *thread_do(unsigned index, const struct order *order) {
    if (index >= n_threads) {
        return "no such thread";
    }
    struct thread *t = &threads[index];
    if (index == 0) {
        return order->action == THREAD_BUSY ? "thread 0 cannot be busy" : obey(t, order);
    }
    pthread_mutex_lock(&lock);
    t->order = order;
    atomic_store(&t->ordered, true);
    pthread_cond_broadcast(&changed);
    while (t->order) {
        pthread_cond_wait(&changed, &lock);
    }
    const char *error = t->error;
    pthread_mutex_unlock(&lock);
    return error;
}

void threads_stop(void) {
    for (; n_threads > 1; n_threads--) {
        thread_do(n_threads - 1, &(struct order){.action = THREAD_END});
        pthread_join(threads[n_threads - 1].handle, NULL);
    }
}

void threads_forget(void) {
    n_threads = 1;
    introduce(&threads[0]);
}

void threads_list(struct event *event) {
    fputs(",\"threads\":[", event->out);
    for (unsigned i = 0; i < n_threads; i++) {
        struct thread *t = &threads[i];
        struct record **variable = t->writer.variable;
        fprintf(event->out, "%s{\"index\":%u", i ? "," : "", i);
        event_number(event, "tid", t->tid);
        event_number(event, "thread_pointer", t->thread_pointer);
        event_number(event, "variable", (uintptr_t)variable);
        event_number(event, "record", variable ? (uintptr_t)*variable : 0);
        fputc('}', event->out);
    }
    fputc(']', event->out);
}
