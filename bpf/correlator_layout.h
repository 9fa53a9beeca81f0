/* What correlator.h reads: an entry of the correlator's table, and what a thread publishes in the
 * memory of its process. Included by correlator.h, after the integer types. */
#ifndef CORRELATOR_LAYOUT_H
#define CORRELATOR_LAYOUT_H

/* How a variable, the thread's pointer to its slot or record, is found. */
enum correlator_kind {
    CORRELATOR_STATIC = 1, /* thread pointer + offset */
    CORRELATOR_DTV,        /* through the dynamic thread vector, see correlator_variable */
};

/* The way from a thread pointer to a variable.
 *
 *   offset size field
 *        0    8 offset               from the thread pointer, or in the module's block; signed
 *        8    8 module               module id: index into the DTV
 *       16    8 generation           what the DTV's must have reached, 0: any
 *       24    8 dtv_offset           of the pointer to the DTV, from the thread pointer; signed
 *       32    8 dtv_stride           size of an entry of the DTV
 *       40    8 dtv_capacity_offset  of the highest module id with room, from the DTV; signed
 *       48    4 kind                 enum correlator_kind, 0: the process has no such variable
 *       52    4 reserved             0
 */
struct correlator_rule {
    __s64 offset;
    __u64 module;
    __u64 generation;
    __s64 dtv_offset;
    __u64 dtv_stride;
    __s64 dtv_capacity_offset;
    __u32 kind;
    __u32 reserved;
};

_Static_assert(__builtin_offsetof(struct correlator_rule, offset) == 0, "offset");
_Static_assert(__builtin_offsetof(struct correlator_rule, module) == 8, "module");
_Static_assert(__builtin_offsetof(struct correlator_rule, generation) == 16, "generation");
_Static_assert(__builtin_offsetof(struct correlator_rule, dtv_offset) == 24, "dtv_offset");
_Static_assert(__builtin_offsetof(struct correlator_rule, dtv_stride) == 32, "dtv_stride");
_Static_assert(__builtin_offsetof(struct correlator_rule, dtv_capacity_offset) == 40,
               "dtv_capacity_offset");
_Static_assert(__builtin_offsetof(struct correlator_rule, kind) == 48, "kind");
_Static_assert(sizeof(struct correlator_rule) == 56, "rule");

/* Of how many keys a target can have attributes read. */
#define CORRELATOR_ATTRIBUTES 8

/* An entry of the table. The key is the number of the process in the initial pid namespace, what
 * bpf_get_current_pid_tgid() has in its upper half, whatever namespace anyone lives in.
 *
 *   offset size field
 *        0    8 start_time           of the thread group leader, ns since boot
 *        8    8 exec_id              task_struct.self_exec_id of its threads
 *       16    8 memory               task_struct.mm of its threads, an address in the kernel
 *       24   56 elastic              where the pointer to the slot is
 *       80   56 otel                 where the pointer to the record is
 *      136    4 id                   of the target, never given twice by one correlator
 *      140    4 pid                  as the correlator's pid namespace calls the process
 *      144    4 level                of that namespace
 *      148    2 known_keys           how many keys of attributes the process has named, at most 256
 *      150    1 attribute_count      of attributes that are wanted, at most 8
 *      151    1 labels               of goroutines, which only the correlator's own programs read
 *      152    8 attribute_keys       their numbers among the named ones, 1 byte each; the rest 0
 *      160    8 check                correlator_check of all that comes before
 *
 * The first three say which process and which program the rest holds for, so that an entry that
 * was left behind does no harm: a later owner of the number has another start_time. An exec
 * changes the memory at the instant at which the old one is gone from under the thread, and adds
 * one to exec_id a little later. Neither alone would do: in between, exec_id is still the old one,
 * and after a second exec the address of the first memory may have been given out again.
 *
 * check, because the kernel recycles the memory of an entry while a program on another CPU may be
 * reading it.
 */
struct correlator_target {
    __u64 start_time;
    __u64 exec_id;
    __u64 memory;
    struct correlator_rule elastic;
    struct correlator_rule otel;
    __u32 id;
    __u32 pid;
    __u32 level;
    __u16 known_keys;
    __u8 attribute_count;
    __u8 labels;
    __u8 attribute_keys[CORRELATOR_ATTRIBUTES];
    __u64 check;
};

_Static_assert(__builtin_offsetof(struct correlator_target, start_time) == 0, "start_time");
_Static_assert(__builtin_offsetof(struct correlator_target, exec_id) == 8, "exec_id");
_Static_assert(__builtin_offsetof(struct correlator_target, memory) == 16, "memory");
_Static_assert(__builtin_offsetof(struct correlator_target, elastic) == 24, "elastic");
_Static_assert(__builtin_offsetof(struct correlator_target, otel) == 80, "otel");
_Static_assert(__builtin_offsetof(struct correlator_target, id) == 136, "id");
_Static_assert(__builtin_offsetof(struct correlator_target, pid) == 140, "pid");
_Static_assert(__builtin_offsetof(struct correlator_target, level) == 144, "level");
_Static_assert(__builtin_offsetof(struct correlator_target, known_keys) == 148, "known_keys");
_Static_assert(__builtin_offsetof(struct correlator_target, attribute_count) == 150, "count");
_Static_assert(__builtin_offsetof(struct correlator_target, labels) == 151, "labels");
_Static_assert(__builtin_offsetof(struct correlator_target, attribute_keys) == 152, "keys");
_Static_assert(__builtin_offsetof(struct correlator_target, check) == 160, "check");
_Static_assert(sizeof(struct correlator_target) == 168, "target");

/* A thread's slot, 37 bytes in the process (correlation protocol, part 2). Here it begins at
 * offset 3, so that the ids are aligned. They are bytes in the order of the wire.
 *
 *   offset size field           of the slot
 *        0    3 reserved        -
 *        3    2 minor_version   0, host byte order
 *        5    1 valid           2
 *        6    1 trace_present   3
 *        7    1 trace_flags     4, W3C
 *        8   16 trace_id        5
 *       24    8 span_id         21
 *       32    8 transaction_id  29
 */
struct correlator_slot {
    __u8 reserved[3];
    __u8 minor_version[2];
    __u8 valid;
    __u8 trace_present;
    __u8 trace_flags;
    __u64 trace_id[2];
    __u64 span_id;
    __u64 transaction_id;
};

#define CORRELATOR_SLOT_BYTES 37

_Static_assert(__builtin_offsetof(struct correlator_slot, minor_version) == 3, "minor_version");
_Static_assert(__builtin_offsetof(struct correlator_slot, valid) == 3 + 2, "valid");
_Static_assert(__builtin_offsetof(struct correlator_slot, trace_present) == 3 + 3, "present");
_Static_assert(__builtin_offsetof(struct correlator_slot, trace_flags) == 3 + 4, "flags");
_Static_assert(__builtin_offsetof(struct correlator_slot, trace_id) == 3 + 5, "trace_id");
_Static_assert(__builtin_offsetof(struct correlator_slot, span_id) == 3 + 21, "span_id");
_Static_assert(__builtin_offsetof(struct correlator_slot, transaction_id) == 3 + 29, "transaction");
_Static_assert(sizeof(struct correlator_slot) == 3 + CORRELATOR_SLOT_BYTES, "slot");

/* A thread's record: the first 28 bytes of it, all of fixed size (OTEP 4947). Ids are bytes in the
 * order of the wire, the rest is in host byte order.
 *
 *   offset size field
 *        0   16 trace_id
 *       16    8 span_id
 *       24    1 valid           1, else there is nothing to be read
 *       25    1 trace_flags     W3C; some writers leave them 0 in sampled traces, too
 *       26    2 attributes_size bytes of attributes, which follow in the process
 *       28    4 reserved        -
 */
struct correlator_record {
    __u64 trace_id[2];
    __u64 span_id;
    __u8 valid;
    __u8 trace_flags;
    __u16 attributes_size;
    __u32 reserved;
};

#define CORRELATOR_RECORD_BYTES 28

_Static_assert(__builtin_offsetof(struct correlator_record, trace_id) == 0, "trace_id");
_Static_assert(__builtin_offsetof(struct correlator_record, span_id) == 16, "span_id");
_Static_assert(__builtin_offsetof(struct correlator_record, valid) == 24, "valid");
_Static_assert(__builtin_offsetof(struct correlator_record, trace_flags) == 25, "trace_flags");
_Static_assert(__builtin_offsetof(struct correlator_record, attributes_size) == 26, "size");
_Static_assert(sizeof(struct correlator_record) == CORRELATOR_RECORD_BYTES + 4, "record");

#endif
