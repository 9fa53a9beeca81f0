/* The labels of runtime/pprof of the goroutine that a thread of a Go program runs. Go's runtime has
 * no interface for that: each version of it has a layout of its own, of which user space knows
 * those that were released.
 *
 * The thread that is interrupted is the only one that changes what is read here: the goroutine that
 * it runs, and the pointer to that one's labels, one word. Labels themselves do not change once a
 * goroutine has them. What is read is checked all the same: that the thread is the one that the
 * runtime says it is, that the goroutine is the thread's, and that there are as many labels as the
 * runtime says. */
#ifndef CORRELATOR_GOLABELS_H
#define CORRELATOR_GOLABELS_H

#include "correlator_attributes.h"
#include "maps.h"
#include "stack.h"

/* The layout of a program, of package runtime.
 *
 *   offset size field
 *        0    8 g          the thread's pointer to a g, from the thread pointer; signed
 *        8    2 g_m        g.m: the thread, 8 bytes
 *       10    2 g_labels   g.labels, 8 bytes
 *       12    2 m_procid   m.procid: the thread's number in its own pid namespace, 8 bytes
 *       14    2 m_curg     m.curg: the goroutine that it runs, 8 bytes; 0: it runs none
 *       16    2 m_extra    m.isExtraInC: 1 byte, not 0 while code of C runs that calls no Go
 *       18    1 form       enum go_labels_form, 0: there is no such layout
 *       19    5 reserved   0
 *
 * On arm64, a g of 0 is a register: it is in one in all programs without C. */
struct go_layout {
    __s64 g;
    __u16 g_m;
    __u16 g_labels;
    __u16 m_procid;
    __u16 m_curg;
    __u16 m_extra;
    __u8 form;
    __u8 reserved[5];
};

/* What g.labels points to. */
enum go_labels_form {
    GO_LABELS_MAP = 1, /* up to Go 1.23: a pointer to an hmap */
    GO_LABELS_SLICE,   /* a slice of labels */
};

#define GO_LAYOUTS 256

/* What a label says. */
enum go_role {
    GO_NO_ROLE,
    GO_TRACE_ID,     /* 32 hexadecimal digits */
    GO_SPAN_ID,      /* 16 hexadecimal digits */
    GO_SPAN_DECIMAL, /* the same in decimal */
    GO_ROOT_ID,      /* of the first span of the trace in the process: 16 hexadecimal digits */
    GO_ROOT_DECIMAL, /* the same in decimal */
    GO_NAME,         /* of the span */
    GO_ROLES = 8,    /* a power of 2 */
};

#define GO_KEYS 8
#define GO_KEY_BYTES 31

/* A key of a label that is read.
 *
 *   offset size field
 *        0   32 text    with zeros at its end
 *       32    4 role    enum go_role
 *       36    4 length
 */
struct go_key {
    __u64 text[4];
    __u32 role;
    __u32 length;
};

/* Keys of attributes: bits of go_attributes, and their numbers among the attributes of a sample. */
enum go_attribute { GO_ROOT_ATTRIBUTE, GO_SPAN_ATTRIBUTE, GO_NAME_ATTRIBUTE };

/* More labels than anyone uses; of an hmap, those that it has without growing step by step. */
#define GO_LABELS 31
#define GO_MAP_LABELS 26
#define GO_BUCKET_ENTRIES 8
#define GO_BUCKETS 8 /* of 4 and those that overflow, which take 1 or 2 */

struct go_string {
    __u64 text;
    __u64 length;
};

/* runtime.slice */
struct go_slice {
    __u64 array;
    __u64 length;
    __u64 capacity;
};

/* runtime.hmap, the fields that are read. */
struct go_hmap {
    __u64 count;
    __u8 flags; /* 4: it is being written to */
    __u8 log2_buckets;
    __u16 overflow;
    __u32 hash0;
    __u64 buckets;
    __u64 old_buckets; /* not 0: it is growing */
};

#define GO_HASH_WRITING 4

/* runtime.bmap of a map of strings. An entry is empty where tophash is below 5. */
struct go_bucket {
    __u8 tophash[GO_BUCKET_ENTRIES];
    struct go_string keys[GO_BUCKET_ENTRIES];
    struct go_string values[GO_BUCKET_ENTRIES];
    __u64 overflow;
};

#define GO_MIN_TOPHASH 5

struct go_label {
    struct go_string key;
    struct go_string value;
};

_Static_assert(__builtin_offsetof(struct go_layout, form) == 18, "form");
_Static_assert(sizeof(struct go_layout) == 24, "layout");
_Static_assert(sizeof(struct go_key) == 40, "key");
_Static_assert(__builtin_offsetof(struct go_hmap, buckets) == 16, "buckets");
_Static_assert(sizeof(struct go_bucket) == 272, "bucket");
_Static_assert(sizeof(struct go_label) == 32, "label");

/* What is needed while reading.
 *
 *   offset size field
 *        0    4 layout   of the thread's program: index in go_layouts, 0: it has none
 *        4    4 count    of labels
 *        8 1024 labels   the last one has no room of its own
 *     1032  272 bucket
 *     1304  128 values   by enum go_role; length 0: there is none
 *     1432   32 text     that is being looked at, zeros behind it
 *     1464    8 root     id of the first span of the trace in the process, 0: there is none
 *     1472    4 unread   keys that could not be read
 *     1476    4 reserved 0
 */
struct go_scratch {
    __u32 layout;
    __u32 count;
    struct go_label labels[GO_LABELS + 1];
    struct go_bucket bucket;
    struct go_string values[GO_ROLES];
    __u64 text[4];
    __u64 root;
    __u32 unread;
    __u32 reserved;
};

_Static_assert(__builtin_offsetof(struct go_scratch, labels) == 8, "labels");
_Static_assert(__builtin_offsetof(struct go_scratch, bucket) == 1032, "bucket");
_Static_assert(__builtin_offsetof(struct go_scratch, values) == 1304, "values");
_Static_assert(__builtin_offsetof(struct go_scratch, text) == 1432, "text");
_Static_assert(__builtin_offsetof(struct go_scratch, unread) == 1472, "unread");
_Static_assert(sizeof(struct go_scratch) == 1480, "scratch");

/* By the byte labels of a target. User space sets one before a target has its index, and changes it
 * only when no target has, and no program runs that has seen one. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, GO_LAYOUTS);
    __type(key, __u32);
    __type(value, struct go_layout);
} go_layouts SEC(".maps");

const volatile struct go_key go_keys[GO_KEYS];
const volatile __u32 go_key_lengths; /* 1 << length of a key */
const volatile __u32 go_attributes;  /* 1 << enum go_attribute: of those that are wanted */

/* Whether the thread has no context, so far as is known without its labels. */
static __always_inline bool is_untraced(enum correlator_outcome outcome) {
    return outcome == CORRELATOR_NO_SLOT || outcome == CORRELATOR_NO_TRACE ||
           outcome == CORRELATOR_NOT_VALID || outcome == CORRELATOR_ZERO_IDS;
}

/* How a thread's labels were read. */
enum go_result {
    GO_FOUND,      /* there are some */
    GO_NONE,       /* the thread runs no goroutine, or one without labels */
    GO_UNREADABLE, /* memory that is not resident, or not mapped */
    GO_REFUSED,    /* the thread is not known to be the runtime's, there are too many labels, or an
                      id is malformed */
};

/* The current thread's number in its own pid namespace. */
static __always_inline __u64 go_thread_number(void) {
    struct pid *pid = correlator_field(correlator_task(), thread_pid);
    __u32 level = correlator_field(pid, level);
    int number = 0;

    bpf_core_read(&number, sizeof(number), &pid->numbers[level].nr);
    return number;
}

/* Reads the thread's pointer to a g: 0 if it has none. ctx is NULL where the thread was not
 * interrupted: it has entered the kernel by itself, or leaves its CPU there. */
static __always_inline int go_read_g(void *ctx, const struct go_layout *layout,
                                     __u64 thread_pointer, __u64 *g) {
    *g = 0;
    (void)ctx; /* where g is always in memory */
#if defined(__TARGET_ARCH_arm64)
    if (!layout->g) {
        const struct registers *regs = ctx;

        if (regs && in_user_code(regs)) {
            *g = regs->r[28];
            return 0;
        }
        regs = entered_registers();
        if (!regs)
            return -1;
        return bpf_probe_read_kernel(g, sizeof(*g), &regs->r[28]);
    }
#endif
    if (!thread_pointer)
        return 0;
    return correlator_read_word(thread_pointer + layout->g, g);
}

/* Finds what g.labels of the goroutine points to. */
static __always_inline enum go_result go_find(void *ctx, const struct go_layout *layout,
                                              __u64 thread_pointer, __u64 *labels) {
    __u64 g, m, number, goroutine, its_m;
    __u8 extra = 0;

    if (go_read_g(ctx, layout, thread_pointer, &g))
        return GO_REFUSED;
    if (!g)
        return GO_NONE;
    if (correlator_read_word(g + layout->g_m, &m) ||
        correlator_read_word(m + layout->m_procid, &number))
        return GO_REFUSED;
    if (number != go_thread_number())
        return number ? GO_REFUSED : GO_NONE; /* 0: the thread begins, and has run none yet */
    if (correlator_read_word(m + layout->m_curg, &goroutine) ||
        bpf_probe_read_user(&extra, sizeof(extra), (const void *)(m + layout->m_extra)))
        return GO_UNREADABLE;
    if (!goroutine || extra)
        return GO_NONE;
    its_m = m;
    if ((goroutine != g && correlator_read_word(goroutine + layout->g_m, &its_m)) ||
        correlator_read_word(goroutine + layout->g_labels, labels))
        return GO_UNREADABLE;
    /* The scheduler gives a goroutine its thread after it has given the thread its goroutine. */
    if (its_m && its_m != m)
        return GO_REFUSED;
    return *labels && its_m ? GO_FOUND : GO_NONE;
}

/* Copies the labels of a slice. */
static __always_inline enum go_result go_copy_slice(struct go_scratch *scratch, __u64 labels) {
    struct go_slice slice;

    if (bpf_probe_read_user(&slice, sizeof(slice), (const void *)labels))
        return GO_UNREADABLE;
    if (!slice.length)
        return GO_NONE;
    if (slice.length > GO_LABELS || slice.length > slice.capacity)
        return GO_REFUSED;
    scratch->count = slice.length;
    if (bpf_probe_read_user(scratch->labels,
                            correlator_bounded(slice.length * sizeof(struct go_label), 1024),
                            (const void *)slice.array))
        return GO_UNREADABLE;
    return GO_FOUND;
}

/* Appends what is in the bucket to the labels. */
static __always_inline void go_take_bucket(struct go_scratch *scratch) {
    struct go_bucket *bucket = &scratch->bucket;

    for (int i = 0; i < GO_BUCKET_ENTRIES; i++) {
        struct go_label *label =
            scratch->labels + correlator_bounded(scratch->count, GO_LABELS + 1);

        if (bucket->tophash[i] < GO_MIN_TOPHASH)
            continue;
        label->key = bucket->keys[i];
        label->value = bucket->values[i];
        scratch->count++;
        __asm__ __volatile__("" ::: "memory"); /* as in correlator_find_entry */
    }
}

/* Copies the labels of a map. */
static __always_inline enum go_result go_copy_map(struct go_scratch *scratch, __u64 labels) {
    struct go_hmap map;
    __u64 at, next;
    __u32 bucket = 0, buckets;

    if (correlator_read_word(labels, &at))
        return GO_UNREADABLE;
    if (!at)
        return GO_NONE;
    if (bpf_probe_read_user(&map, sizeof(map), (const void *)at))
        return GO_UNREADABLE;
    if (!map.count)
        return GO_NONE;
    if (map.count > GO_MAP_LABELS || map.log2_buckets > 2 || map.old_buckets ||
        map.flags & GO_HASH_WRITING)
        return GO_REFUSED;
    buckets = 1U << (map.log2_buckets & 3);
    next = map.buckets;
    for (int i = 0; i < GO_BUCKETS; i++) {
        if (bpf_probe_read_user(&scratch->bucket, sizeof(scratch->bucket), (const void *)next))
            return GO_UNREADABLE;
        go_take_bucket(scratch);
        next = scratch->bucket.overflow;
        if (!next && ++bucket < buckets)
            next = map.buckets + bucket * sizeof(struct go_bucket);
        if (!next)
            break;
    }
    return next || scratch->count != map.count ? GO_REFUSED : GO_FOUND;
}

/* Copies a text of up to 31 bytes, with zeros behind it. */
static __always_inline int go_copy_text(struct go_scratch *scratch, const struct go_string *text) {
    scratch->text[0] = scratch->text[1] = scratch->text[2] = scratch->text[3] = 0;
    return bpf_probe_read_user(scratch->text, correlator_bounded(text->length, GO_KEY_BYTES + 1),
                               (const void *)text->text);
}

/* How many keys may be such that they cannot be read: each takes as long as 10 others, which a
 * process is not to have others wait for at each of its switches. */
#define GO_UNREAD_KEYS 4

/* Notes the value of a label, if its key is one of those that are read. A key that cannot be read
 * is none of them: there are labels that nobody reads, whose keys may never have been resident. */
static __always_inline void go_take_label(struct go_scratch *scratch, __u64 number) {
    const struct go_label *label = scratch->labels + correlator_bounded(number, GO_LABELS + 1);
    __u64 length = label->key.length;

    if (!length || !(go_key_lengths & 1U << (length & 31)) || length > GO_KEY_BYTES)
        return;
    if (go_copy_text(scratch, &label->key)) {
        scratch->unread++;
        return;
    }
    for (__u32 i = 0; i < GO_KEYS; i++) {
        const volatile struct go_key *key = go_keys + i;
        const volatile __u64 *text = key->text;

        if (length != key->length) /* so are most */
            continue;
        if ((scratch->text[0] ^ text[0]) | (scratch->text[1] ^ text[1]) |
            (scratch->text[2] ^ text[2]) | (scratch->text[3] ^ text[3]))
            continue;
        scratch->values[correlator_bounded(key->role, GO_ROLES)] = label->value;
    }
}

/* Finds the values of the labels that are read. */
static __always_inline enum go_result go_read_labels(void *ctx, __u64 thread_pointer,
                                                     struct go_scratch *scratch) {
    const struct go_layout *layout = bpf_map_lookup_elem(&go_layouts, &scratch->layout);
    enum go_result result;
    __u64 labels;

    __builtin_memset(scratch->values, 0, sizeof(scratch->values));
    scratch->count = scratch->unread = 0;
    if (!layout) /* never */
        return GO_NONE;
    result = go_find(ctx, layout, thread_pointer, &labels);
    if (result != GO_FOUND)
        return result;
    result = layout->form == GO_LABELS_MAP ? go_copy_map(scratch, labels)
                                           : go_copy_slice(scratch, labels);
    if (result != GO_FOUND)
        return result;
    for (__u32 i = 0; i < GO_LABELS && i < scratch->count; i++) {
        go_take_label(scratch, i);
        __asm__ __volatile__("" ::: "memory"); /* as in correlator_find_entry */
        if (scratch->unread > GO_UNREAD_KEYS)
            return GO_UNREADABLE;
    }
    return GO_FOUND;
}

#define GO_BYTES(byte) ((byte)*0x0101010101010101ULL)

/* The values of 8 hexadecimal digits, in the order of the wire. Others set bits of bad. */
static __always_inline __u64 go_digits(__u64 text, __u64 *bad) {
    __u64 lower = text | GO_BYTES(0x20), letters = (lower >> 6) & GO_BYTES(1);
    __u64 values = (lower & GO_BYTES(15)) + letters * 9;

    *bad |= (lower ^ (GO_BYTES('0') + values + letters * ('a' - '0' - 10))) |
            (values & GO_BYTES(0xf0)) | (((values + GO_BYTES(6)) >> 4 & GO_BYTES(1)) ^ letters) |
            ((text ^ lower) >> 5 & ~letters & GO_BYTES(1));
    values = (values << 4 | values >> 8) & 0x00ff00ff00ff00ff;
    values = (values | values >> 8) & 0x0000ffff0000ffff;
    return (values | values >> 16) & 0xffffffff;
}

/* Reads ids of 16 hexadecimal digits each, in the order of the wire: one or two. */
static __always_inline enum go_result go_read_hex(struct go_scratch *scratch, __u64 addr,
                                                  __u64 *ids, int count) {
    const __u64 *text = scratch->text;
    __u64 bad = 0;

    if (bpf_probe_read_user(scratch->text, count * 16, (const void *)addr))
        return GO_UNREADABLE;
    for (int i = 0; i < count; i++)
        ids[i] = go_digits(text[2 * i], &bad) | go_digits(text[2 * i + 1], &bad) << 32;
    return bad ? GO_REFUSED : GO_FOUND;
}

#define GO_DECIMAL_DIGITS 20                        /* of 2^64 - 1 */
#define GO_LEAST_OF_20_DIGITS 10000000000000000000U /* with a 1 before them, as all have */

/* Reads an id in decimal. */
static __always_inline enum go_result go_read_decimal(struct go_scratch *scratch,
                                                      const struct go_string *value, __u64 *id) {
    const __u8 *text = (const __u8 *)scratch->text;
    __u64 number = 0, length = value->length, bad = 0;

    if (length > GO_DECIMAL_DIGITS)
        return GO_REFUSED;
    if (go_copy_text(scratch, value))
        return GO_UNREADABLE;
    for (__u32 i = 0; i < GO_DECIMAL_DIGITS && i < length; i++) {
        __u8 digit = text[i] - '0';

        bad |= digit + 0xf6; /* from 0x100 on if it is none */
        number = number * 10 + digit;
    }
    *id = __builtin_bswap64(number);
    if (bad > 0xff ||
        (length == GO_DECIMAL_DIGITS && (text[0] != '1' || number < GO_LEAST_OF_20_DIGITS)))
        return GO_REFUSED;
    return GO_FOUND;
}

/* Reads an id by two roles, of which the first has 16 digits: 0 if there is none. */
static __always_inline enum go_result go_read_id(struct go_scratch *scratch, enum go_role hex,
                                                 enum go_role decimal, __u64 *id) {
    const struct go_string *value = scratch->values + hex;

    *id = 0;
    if (value->length)
        return value->length == 16 ? go_read_hex(scratch, value->text, id, 1) : GO_REFUSED;
    value = scratch->values + decimal;
    return value->length ? go_read_decimal(scratch, value, id) : GO_FOUND;
}

/* Reads the ids. */
static __always_inline enum go_result go_read_ids(struct go_scratch *scratch,
                                                  struct correlator_record *record) {
    const struct go_string *trace = scratch->values + GO_TRACE_ID;
    enum go_result result;

    record->trace_id[0] = record->trace_id[1] = 0;
    if (trace->length) {
        if (trace->length != 32)
            return GO_REFUSED;
        result = go_read_hex(scratch, trace->text, record->trace_id, 2);
        if (result != GO_FOUND)
            return result;
    }
    result = go_read_id(scratch, GO_SPAN_ID, GO_SPAN_DECIMAL, &record->span_id);
    if (result != GO_FOUND)
        return result;
    __asm__ __volatile__("" ::: "memory"); /* as in correlator_find_entry */
    return go_read_id(scratch, GO_ROOT_ID, GO_ROOT_DECIMAL, &scratch->root);
}

/* Appends an id to the attributes, as 16 lower-case digits. */
static __always_inline void go_put_id(struct correlator_attributes *attributes,
                                      enum go_attribute key, __u64 id) {
    __u8 *entry = attributes->entries + correlator_bounded(attributes->size, 64);

    id = __builtin_bswap64(id);
    entry[0] = key;
    entry[1] = 16;
    for (int i = 0; i < 16; i++) {
        __u8 digit = id >> (60 - 4 * i) & 15;

        entry[2 + i] = '0' + digit + ((digit + 6) >> 4) * ('a' - '0' - 10);
    }
    attributes->size += 18;
}

#define GO_NAME_BYTES 127

/* Appends a text to the attributes, cut where it is long. */
static __always_inline void go_put_name(struct correlator_attributes *attributes,
                                        const struct go_string *name) {
    __u8 *entry = attributes->entries + correlator_bounded(attributes->size, 64);
    __u64 length = name->length;

    if (length > GO_NAME_BYTES) {
        length = GO_NAME_BYTES;
        attributes->cut = 1;
    }
    length = correlator_bounded(length, GO_NAME_BYTES + 1);
    if (bpf_probe_read_user(entry + 2, length, (const void *)name->text)) {
        attributes->cut = 1;
        return;
    }
    entry[0] = GO_NAME_ATTRIBUTE;
    entry[1] = length;
    attributes->size += 2 + length;
}

#define go_wants(attribute) (go_attributes & 1U << (attribute))

/* Reads the context of the current thread by its labels, and the attributes. Without a trace id or
 * a span id, or with labels that are refused or cannot be read, the outcome is CORRELATOR_ZERO_IDS;
 * the kind then says whether there are attributes. */
static __always_inline enum correlator_outcome go_read(void *ctx, struct go_scratch *scratch,
                                                       struct correlator_context *context,
                                                       struct correlator_attributes *attributes,
                                                       bool *refused) {
    struct correlator_record *record = &context->record;
    enum go_result result;
    bool traced;

    attributes->size = 0;
    attributes->cut = 0;
    attributes->unknown = 0;
    result = go_read_labels(ctx, context->thread_pointer, scratch);
    if (result == GO_FOUND)
        result = go_read_ids(scratch, record);
    *refused = result == GO_REFUSED || result == GO_UNREADABLE;
    if (result == GO_NONE)
        return CORRELATOR_NO_SLOT;
    if (*refused)
        return CORRELATOR_ZERO_IDS;
    __asm__ __volatile__("" ::: "memory"); /* as in correlator_find_entry */
    record->trace_flags = 0;
    traced = (record->trace_id[0] | record->trace_id[1]) && record->span_id;
    if (scratch->root && go_wants(GO_ROOT_ATTRIBUTE))
        go_put_id(attributes, GO_ROOT_ATTRIBUTE, scratch->root);
    if (!traced && record->span_id && go_wants(GO_SPAN_ATTRIBUTE))
        go_put_id(attributes, GO_SPAN_ATTRIBUTE, record->span_id);
    if (scratch->values[GO_NAME].length && go_wants(GO_NAME_ATTRIBUTE))
        go_put_name(attributes, scratch->values + GO_NAME);
    if (traced || attributes->size)
        context->kind = CORRELATOR_OTEL;
    return traced ? CORRELATOR_SAMPLED : CORRELATOR_ZERO_IDS;
}

#endif
