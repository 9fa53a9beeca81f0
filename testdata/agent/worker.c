#include "worker.h"

#include "otelctx.h"
#include "self.h"
#include "truth.h"
#include "waiting.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

static const char *const kind_names[] = {"main", "busy", "idle", "untouched"};

struct worker {
    struct tracer tracer;
    enum worker_kind kind;
    pthread_t thread;
    bool running;
    bool stop, manual; /* of the thread itself */
    uint64_t tid;
    uintptr_t thread_pointer;
    char name[16];     /* the kernel's limit */
    uint64_t until_ns; /* of the present transaction or gap */
    uint64_t stays_ns; /* in memory: its slots, until then at least */
    uint64_t rests_ns; /* from then on */

    pthread_mutex_t lock;                  /* task */
    pthread_cond_t changed;                /* task was set, or was done */
    void (*task)(struct worker *, void *); /* to run in the thread; null: nothing */
    void *argument;
    atomic_bool pending; /* task is set: to be seen without the lock */
};

static const struct worker_options *options;
static struct worker *workers[TRUTH_THREADS];
static unsigned n_workers;

/* Runs the task that waits, if any. */
static void serve(struct worker *w) {
    if (!atomic_load_explicit(&w->pending, memory_order_relaxed)) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->task(w, w->argument);
    w->task = NULL;
    atomic_store(&w->pending, false);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* Sleeps until a task waits or the clock says until_ns; UINT64_MAX: for ever. */
static void rest(struct worker *w, uint64_t until_ns) {
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    int timeout = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->task && !timeout) {
        timeout = until_ns == UINT64_MAX ? pthread_cond_wait(&w->changed, &w->lock)
                                         : pthread_cond_timedwait(&w->changed, &w->lock, &until);
    }
    pthread_mutex_unlock(&w->lock);
}

/* What was written is paged out some time later, as a kernel short of memory would do it. */
#define STAYS_NS 20000000

/* How long a busy thread that rests works before it sleeps, and how much longer it sleeps. */
#define SPELL_NS 2000000
#define REST_SPELLS 3

/* How often a thread works between two readings of the clock. Samples are to be of the work, and
 * where a C library does not find the kernel's vDSO, a reading is a system call, which on emulated
 * CPUs takes as long as the work. */
static unsigned runs;

/* Has readings take a 32nd of the time at most. What either takes is the least of some, since a
 * thread can lose its CPU in the middle of one. */
static void measure_runs(void) {
    uint64_t work_ns = UINT64_MAX, readings_ns = UINT64_MAX;
    for (int round = 0; round < 8; round++) {
        uint64_t start = now_ns();
        work_gap.run();
        uint64_t worked = now_ns(), read = worked;
        for (int i = 0; i < 32; i++) {
            read = now_ns();
        }
        work_ns = worked - start < work_ns ? worked - start : work_ns;
        readings_ns = read - worked < readings_ns ? read - worked : readings_ns;
    }
    runs = 1 + (unsigned)(readings_ns / (work_ns + 1));
}

/* One step of a thread that switches by itself. */
static void switch_and_work(struct worker *w) {
    uint64_t now = now_ns();
    if (now >= w->stays_ns) {
        tracer_page_out(&w->tracer);
        w->stays_ns = now + STAYS_NS;
    }
    if (now >= w->until_ns) {
        w->stays_ns = now + STAYS_NS;
        if (w->tracer.begun && options->gap_ns) {
            tracer_end(&w->tracer);
            w->until_ns = now + options->gap_ns;
        } else {
            tracer_begin(&w->tracer);
            w->until_ns = now + options->transaction_ns;
        }
    }
    if (w->kind != WORKER_BUSY) {
        rest(w, w->until_ns);
        return;
    }
    for (unsigned i = 0; i < runs && !atomic_load_explicit(&w->pending, memory_order_relaxed);
         i++) {
        w->tracer.work->run();
    }
}

/* Has a busy thread sleep when it has worked, if it is to. */
static void rest_from_work(struct worker *w) {
    uint64_t now = options->rests ? now_ns() : 0;
    if (now > w->rests_ns) {
        rest(w, now + REST_SPELLS * SPELL_NS);
        w->rests_ns = now_ns() + SPELL_NS;
    }
}

static void step(struct worker *w) {
    if (w->kind == WORKER_BUSY && !options->tracer.rewrite) {
        rest_from_work(w);
    }
    if (w->kind == WORKER_UNTOUCHED) {
        rest(w, UINT64_MAX);
    } else if (w->manual) {
        if (w->kind == WORKER_BUSY && w->tracer.begun) {
            w->tracer.work->run();
        } else {
            rest(w, UINT64_MAX);
        }
    } else if (options->tracer.rewrite) {
        if (!tracer_rewrite(&w->tracer)) {
            rest(w, now_ns() + 1000000);
        }
    } else {
        switch_and_work(w);
    }
}

static void introduce(struct worker *w) {
    w->tid = self_tid();
    w->thread_pointer = self_thread_pointer();
    prctl(w->kind == WORKER_MAIN ? PR_GET_NAME : PR_SET_NAME, w->name);
    tracer_init(&w->tracer, w->tracer.index, &options->tracer);
}

static void *worker_main(void *argument) {
    struct worker *w = argument;
    introduce(w);
    if (w->kind != WORKER_UNTOUCHED) {
        tracer_touch(&w->tracer);
    }
    while (!w->stop) {
        serve(w);
        if (!w->stop) {
            step(w);
        }
    }
    return NULL;
}

/* Runs the task in the thread, and waits for its end. */
static void run(struct worker *w, void (*task)(struct worker *, void *), void *argument) {
    if (w->kind == WORKER_MAIN) {
        task(w, argument);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->task = task;
    w->argument = argument;
    atomic_store(&w->pending, true);
    pthread_cond_broadcast(&w->changed);
    while (w->task) {
        pthread_cond_wait(&w->changed, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

static struct worker *add_worker(enum worker_kind kind) {
    struct worker *w = calloc(1, sizeof(*w));
    pthread_condattr_t attributes;
    if (!w) {
        perror("calloc");
        exit(1);
    }
    w->kind = kind;
    w->manual = options->manual;
    w->tracer.index = n_workers;
    snprintf(w->name, sizeof(w->name), "%s-%u", kind_names[kind], n_workers % TRUTH_THREADS);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attributes);
    return w;
}

void workers_init(const struct worker_options *chosen) {
    options = chosen;
    measure_runs();
    struct worker *w = add_worker(WORKER_MAIN);
    introduce(w);
    w->running = true;
    workers[n_workers++] = w;
}

static void nothing(struct worker *w, void *unused) {
    (void)w;
    (void)unused;
}

const char *workers_start(unsigned n, enum worker_kind kind) {
    for (; n > 0; n--) {
        if (n_workers == TRUTH_THREADS) {
            return "too many threads";
        }
        struct worker *w = add_worker(kind);
        if (pthread_create(&w->thread, NULL, worker_main, w)) {
            free(w);
            return "pthread_create says no";
        }
        w->running = true;
        workers[n_workers++] = w;
        run(w, nothing, NULL);
    }
    return NULL;
}

static void stop(struct worker *w, void *unused) {
    (void)unused;
    tracer_end(&w->tracer);
    w->stop = true;
}

void workers_stop(void) {
    for (unsigned i = 1; i < n_workers; i++) {
        if (workers[i]->running) {
            run(workers[i], stop, NULL);
            pthread_join(workers[i]->thread, NULL);
            workers[i]->running = false;
        }
    }
}

static void touch(struct worker *w, void *unused) {
    (void)unused;
    if (w->kind != WORKER_MAIN && w->kind != WORKER_UNTOUCHED) {
        tracer_touch(&w->tracer);
    }
}

static void leave(struct worker *w, void *unused) {
    (void)unused;
    tracer_leave(&w->tracer);
}

void workers_use(const struct library *library) {
    tracers_use(library);
    for (unsigned i = 0; i < n_workers; i++) {
        if (workers[i]->running) {
            run(workers[i], library ? touch : leave, NULL);
        }
    }
}

/* Null when there is such a thread and it runs. */
static const char *find(unsigned index, struct worker **out) {
    if (index >= n_workers || !workers[index]->running) {
        return "no such thread";
    }
    *out = workers[index];
    return (*out)->kind == WORKER_UNTOUCHED ? "an untouched thread stays so" : NULL;
}

static void add_thread(struct event *event, const struct worker *w) {
    fprintf(event->out, "\"index\":%u", w->tracer.index);
    event_text(event, "kind", kind_names[w->kind]);
    event_text(event, "name", w->name);
    event_number(event, "tid", w->tid);
    event_number(event, "thread_pointer", w->thread_pointer);
    event_number(event, "variable", (uintptr_t)atomic_load(&w->tracer.variable));
    event_number(event, "slot", (uintptr_t)atomic_load(&w->tracer.slot));
}

static void begin(struct worker *w, void *error) {
    w->manual = true;
    tracer_begin(&w->tracer);
    if (!w->tracer.traced) {
        *(const char **)error = "no library, or not registered yet";
        return;
    }
    tracer_page_out(&w->tracer);
    struct event event;
    event_open(&event, "begun", true);
    event_text(&event, "kind", w->tracer.work->kind);
    event_hex(&event, "trace_id", w->tracer.context.trace_id, 16);
    event_hex(&event, "span_id", w->tracer.context.span_id, 8);
    event_hex(&event, "transaction_id", w->tracer.context.transaction_id, 8);
    fputs(",\"thread\":{", event.out);
    add_thread(&event, w);
    fputc('}', event.out);
    event_close(&event);
}

const char *worker_begin(unsigned index) {
    struct worker *w;
    const char *error = find(index, &w);
    if (!error) {
        run(w, begin, &error);
    }
    return error;
}

static void end(struct worker *w, void *unused) {
    (void)unused;
    w->manual = true;
    tracer_end(&w->tracer);
}

const char *worker_end(unsigned index) {
    struct worker *w;
    const char *error = find(index, &w);
    if (!error) {
        run(w, end, NULL);
        struct event event;
        event_open(&event, "ended", true);
        event_close(&event);
    }
    return error;
}

struct switching {
    unsigned number;
    const char *error;
};

static void switch_span(struct worker *w, void *argument) {
    struct switching *switching = argument;
    w->manual = true;
    if (!tracer_span(&w->tracer, switching->number)) {
        switching->error = "the thread is in no transaction";
        return;
    }
    tracer_page_out(&w->tracer);
    struct event event;
    event_open(&event, "switched", true);
    event_hex(&event, "span_id", w->tracer.context.span_id, 8);
    event_close(&event);
}

const char *worker_span(unsigned index, unsigned number) {
    struct worker *w;
    struct switching switching = {.number = number};
    switching.error = find(index, &w);
    if (!switching.error) {
        run(w, switch_span, &switching);
    }
    return switching.error;
}

struct spoiling {
    const char *kind, *error;
};

static void spoil(struct worker *w, void *argument) {
    struct spoiling *spoiling = argument;
    w->manual = true;
    spoiling->error = tracer_spoil(&w->tracer, spoiling->kind);
}

const char *worker_spoil(unsigned index, const char *kind) {
    struct worker *w;
    struct spoiling spoiling = {.kind = kind};
    spoiling.error = find(index, &w);
    if (!spoiling.error) {
        run(w, spoil, &spoiling);
    }
    return spoiling.error;
}

struct recording {
    const void *bytes;
    size_t size;
    const char *error;
};

static void set_record(struct worker *w, void *argument) {
    struct recording *recording = argument;
    (void)w;
    recording->error = otelctx_record(recording->bytes, recording->size);
}

const char *worker_record(unsigned index, const void *bytes, size_t size) {
    struct worker *w;
    struct recording recording = {.bytes = bytes, .size = size};
    recording.error = find(index, &w);
    if (!recording.error) {
        run(w, set_record, &recording);
    }
    return recording.error;
}

struct wait {
    const char *kind, *error;
    uint64_t least_ns;
};

static void wait_once(struct worker *w, void *argument) {
    struct wait *wait = argument;
    uint64_t waited_ns = 0;
    w->manual = true;
    tracer_begin(&w->tracer);
    if (!w->tracer.traced) {
        wait->error = "no library, or not registered yet";
        return;
    }
    struct context context = w->tracer.context;
    wait->error = waiting_once(wait->kind, wait->least_ns, &waited_ns, NULL);
    tracer_end(&w->tracer);
    if (wait->error) {
        return;
    }
    struct event event;
    event_open(&event, "waited", true);
    event_hex(&event, "trace_id", context.trace_id, 16);
    event_hex(&event, "span_id", context.span_id, 8);
    event_hex(&event, "transaction_id", context.transaction_id, 8);
    event_number(&event, "waited_ns", waited_ns);
    event_number(&event, "tid", w->tid);
    event_close(&event);
}

const char *worker_wait(unsigned index, const char *kind, uint64_t least_ns) {
    struct worker *w;
    struct wait wait = {.kind = kind, .least_ns = least_ns};
    wait.error = find(index, &w);
    if (!wait.error) {
        run(w, wait_once, &wait);
    }
    return wait.error;
}

/* What a transaction with an account is made of, in this order. */
static const struct {
    const char *kind, *name;
    uint64_t ns;
} account_parts[] = {{"cpu", "cpu_ns", 60000000},
                     {"futex", "lock_ns", 80000000},
                     {"net", "net_ns", 50000000},
                     {"sleep", "sleep_ns", 30000000}};
enum { ACCOUNT_PARTS = sizeof(account_parts) / sizeof(account_parts[0]) };

static void account(struct worker *w, void *argument) {
    const char **error = argument;
    uint64_t took[ACCOUNT_PARTS] = {0};
    w->manual = true;
    uint64_t began = now_ns();
    tracer_begin(&w->tracer);
    if (!w->tracer.traced) {
        *error = "no library, or not registered yet";
        return;
    }
    struct context context = w->tracer.context;
    for (unsigned i = 0; i < ACCOUNT_PARTS && !*error; i++) {
        if (i == 0) {
            uint64_t cpu = self_cpu_ns();
            while (took[i] < account_parts[i].ns) {
                w->tracer.work->run();
                took[i] = self_cpu_ns() - cpu;
            }
        } else { /* a lock is held by another transaction */
            *error = waiting_once(account_parts[i].kind, account_parts[i].ns, &took[i],
                                  i == 1 ? w->tracer.options : NULL);
        }
    }
    tracer_end(&w->tracer);
    uint64_t ended = now_ns();
    if (*error) {
        return;
    }
    struct event event;
    event_open(&event, "accounted", true);
    event_hex(&event, "trace_id", context.trace_id, 16);
    event_hex(&event, "transaction_id", context.transaction_id, 8);
    for (unsigned i = 0; i < ACCOUNT_PARTS; i++) {
        event_number(&event, account_parts[i].name, took[i]);
    }
    event_number(&event, "wall_ns", ended - began);
    event_close(&event);
}

const char *worker_account(unsigned index) {
    struct worker *w;
    const char *error = find(index, &w);
    if (!error) {
        run(w, account, &error);
    }
    return error;
}

void workers_list(struct event *event) {
    const char *separator = "";
    fputs(",\"threads\":[", event->out);
    for (unsigned i = 0; i < n_workers; i++) {
        if (workers[i]->running) {
            fprintf(event->out, "%s{", separator);
            add_thread(event, workers[i]);
            fputc('}', event->out);
            separator = ",";
        }
    }
    fputc(']', event->out);
}

uint64_t workers_rewrites(void) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < n_workers; i++) {
        sum += atomic_load_explicit(&workers[i]->tracer.rewrites, memory_order_relaxed);
    }
    return sum;
}
