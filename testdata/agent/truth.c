#include "truth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct stack {
    uint8_t id[16];
    uint64_t count;
};

struct transaction {
    uint64_t number; /* 0: never used */
    const char *kind;
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC; end 0 while it runs */
    uint64_t cpu_ns;           /* the clock at begin while it runs */
    uint64_t samples, late_samples;
    struct stack *stacks;
    unsigned n_stacks;
};

struct thread {
    pthread_mutex_t lock;  /* all but issued */
    atomic_ullong issued;  /* highest number given out; written by the thread only */
    uint64_t transactions; /* begun */
    uint64_t in_transactions_ns, in_gaps_ns;
    struct transaction *kept; /* TRUTH_KEPT, by number */
};

static struct thread threads[TRUTH_THREADS] = {
    [0 ... TRUTH_THREADS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

static struct transaction *kept(struct thread *thread, uint64_t number) {
    return &thread->kept[number % TRUTH_KEPT];
}

void truth_issue(unsigned index, struct context *out) {
    struct thread *thread = &threads[index];
    uint64_t number = atomic_load_explicit(&thread->issued, memory_order_relaxed) + 1;
    ids_make(index, number, out);
    atomic_store_explicit(&thread->issued, number, memory_order_release);
}

void truth_begin(unsigned index, const char *kind, uint64_t cpu_ns, struct context *out) {
    struct thread *thread = &threads[index];
    pthread_mutex_lock(&thread->lock);
    truth_issue(index, out);
    if (!thread->kept) {
        thread->kept = calloc(TRUTH_KEPT, sizeof(*thread->kept));
        if (!thread->kept) {
            perror("calloc");
            exit(1);
        }
    }
    uint64_t number = atomic_load(&thread->issued);
    struct transaction *transaction = kept(thread, number);
    free(transaction->stacks);
    *transaction = (struct transaction){
        .number = number, .kind = kind, .begin_ns = now_ns(), .cpu_ns = cpu_ns};
    thread->transactions++;
    pthread_mutex_unlock(&thread->lock);
}

void truth_end(unsigned index, uint64_t cpu_ns) {
    struct thread *thread = &threads[index];
    pthread_mutex_lock(&thread->lock);
    struct transaction *transaction = kept(thread, atomic_load(&thread->issued));
    transaction->end_ns = now_ns();
    transaction->cpu_ns = cpu_ns - transaction->cpu_ns;
    thread->in_transactions_ns += transaction->cpu_ns;
    pthread_mutex_unlock(&thread->lock);
}

void truth_gap(unsigned index, uint64_t cpu_ns) {
    struct thread *thread = &threads[index];
    pthread_mutex_lock(&thread->lock);
    thread->in_gaps_ns += cpu_ns;
    pthread_mutex_unlock(&thread->lock);
}

static void count_stack(struct transaction *transaction, const uint8_t id[16], unsigned count) {
    for (unsigned i = 0; i < transaction->n_stacks; i++) {
        if (!memcmp(transaction->stacks[i].id, id, 16)) {
            transaction->stacks[i].count += count;
            return;
        }
    }
    unsigned n = transaction->n_stacks;
    if (n == TRUTH_STACKS) {
        return;
    }
    if ((n & (n - 1)) == 0) { /* full at every power of two */
        struct stack *more = realloc(transaction->stacks, (n ? 2 * n : 1) * sizeof(*more));
        if (!more) {
            return;
        }
        transaction->stacks = more;
    }
    memcpy(transaction->stacks[n].id, id, 16);
    transaction->stacks[n].count = count;
    transaction->n_stacks++;
}

enum verdict truth_correlation(const uint8_t trace_id[16], const uint8_t transaction_id[8],
                               const uint8_t stack_trace_id[16], unsigned count, uint64_t read_ns,
                               uint64_t hold_ns) {
    uint64_t index, number;
    ids_origin(trace_id, &index, &number);
    if (index >= TRUTH_THREADS || number == 0 ||
        number > atomic_load_explicit(&threads[index].issued, memory_order_acquire)) {
        return VERDICT_FOREIGN;
    }
    if (!ids_fit(trace_id, transaction_id)) {
        return VERDICT_TORN;
    }
    struct thread *thread = &threads[index];
    enum verdict verdict = VERDICT_IN_TIME;
    pthread_mutex_lock(&thread->lock);
    struct transaction *transaction = thread->kept ? kept(thread, number) : NULL;
    if (transaction && transaction->number == number) {
        if (transaction->end_ns && read_ns > transaction->end_ns + hold_ns) {
            verdict = VERDICT_LATE;
            transaction->late_samples += count;
        } else {
            transaction->samples += count;
            count_stack(transaction, stack_trace_id, count);
        }
    }
    pthread_mutex_unlock(&thread->lock);
    return verdict;
}

/* base64-url without padding, as APM shows a stack-trace-id; 22 characters of 16 bytes. */
static void base64_url(const uint8_t id[16], char out[23]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (unsigned i = 0; i < 22; i++) {
        unsigned bit = 6 * i;
        unsigned pair = id[bit / 8] << 8 | (bit / 8 < 15 ? id[bit / 8 + 1] : 0);
        out[i] = digits[pair >> (10 - bit % 8) & 63];
    }
    out[22] = 0;
}

static void report_transaction(struct event *event, unsigned index,
                               const struct transaction *transaction) {
    struct context context;
    ids_make(index, transaction->number, &context);
    fprintf(event->out, "{\"thread\":%u", index);
    event_text(event, "kind", transaction->kind);
    event_hex(event, "trace_id", context.trace_id, 16);
    event_hex(event, "transaction_id", context.transaction_id, 8);
    event_number(event, "begin_ns", transaction->begin_ns);
    event_number(event, "end_ns", transaction->end_ns);
    event_number(event, "cpu_ns", transaction->end_ns ? transaction->cpu_ns : 0);
    event_number(event, "samples", transaction->samples);
    event_number(event, "late_samples", transaction->late_samples);
    fputs(",\"stacks\":{", event->out);
    for (unsigned i = 0; i < transaction->n_stacks; i++) {
        char id[23];
        base64_url(transaction->stacks[i].id, id);
        fprintf(event->out, "%s\"%s\":%llu", i ? "," : "", id,
                (unsigned long long)transaction->stacks[i].count);
    }
    fputs("}}", event->out);
}

void truth_report(struct event *event) {
    uint64_t begun = 0, in_transactions_ns = 0, in_gaps_ns = 0;
    for (unsigned index = 0; index < TRUTH_THREADS; index++) {
        struct thread *thread = &threads[index];
        pthread_mutex_lock(&thread->lock);
        begun += thread->transactions;
        in_transactions_ns += thread->in_transactions_ns;
        in_gaps_ns += thread->in_gaps_ns;
        pthread_mutex_unlock(&thread->lock);
    }
    event_number(event, "transactions_begun", begun);
    event_number(event, "cpu_in_transactions_ns", in_transactions_ns);
    event_number(event, "cpu_in_gaps_ns", in_gaps_ns);
    fputs(",\"transactions\":[", event->out);
    bool first = true;
    for (unsigned index = 0; index < TRUTH_THREADS; index++) {
        struct thread *thread = &threads[index];
        pthread_mutex_lock(&thread->lock);
        for (unsigned i = 0; thread->kept && i < TRUTH_KEPT; i++) {
            if (thread->kept[i].number) {
                fputs(first ? "" : ",", event->out);
                first = false;
                report_transaction(event, index, &thread->kept[i]);
            }
        }
        pthread_mutex_unlock(&thread->lock);
    }
    fputc(']', event->out);
}
