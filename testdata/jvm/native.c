/*
 * The agent library as a JVM loads it: the exported variables and functions of
 * lib/agentlib.c, the socket and the truth of agent/, and the JNI functions of Demo.java.
 */
#include "../agent/events.h"
#include "../agent/ids.h"
#include "../agent/receiver.h"
#include "../agent/self.h"
#include "../agent/truth.h"
#include "../lib/agentlib.h"

#include <jni.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *address_of(JNIEnv *env, jobject buffer) {
    return buffer ? (*env)->GetDirectBufferAddress(env, buffer) : NULL;
}

/* Binds the socket and starts to read it, unless NEVER_READ is set. Null, or why it did not work.
 */
JNIEXPORT jstring JNICALL Java_Demo_bind(JNIEnv *env, jclass class, jstring path) {
    const char *text = (*env)->GetStringUTFChars(env, path, NULL);
    (void)class;
    ids_init();
    const char *error = receiver_bind(text);
    receiver_start(getenv("NEVER_READ") != NULL);
    (*env)->ReleaseStringUTFChars(env, path, text);
    return error ? (*env)->NewStringUTF(env, error) : NULL;
}

JNIEXPORT void JNICALL Java_Demo_unlinkSocket(JNIEnv *env, jclass class) {
    (void)env;
    (void)class;
    receiver_unlink();
}

/* Address of the exported process-storage pointer. */
JNIEXPORT jlong JNICALL Java_Demo_storagePointer(JNIEnv *env, jclass class) {
    (void)env;
    (void)class;
    return (jlong)(uintptr_t)&elastic_apm_profiling_correlation_process_storage_v1;
}

/* Publishes the direct buffer, or null; returns its address. */
JNIEXPORT jlong JNICALL Java_Demo_setStorage(JNIEnv *env, jclass class, jobject buffer) {
    void *storage = address_of(env, buffer);
    (void)class;
    agentlib_set_process_storage(storage);
    return (jlong)(uintptr_t)storage;
}

/* Makes the direct buffer, or null, this thread's slot: addresses of variable and slot. */
JNIEXPORT void JNICALL Java_Demo_setSlot(JNIEnv *env, jclass class, jobject buffer,
                                         jlongArray addresses) {
    void *slot = address_of(env, buffer);
    (void)class;
    agentlib_set_thread_slot(slot);
    jlong both[] = {(jlong)(uintptr_t)agentlib_thread_variable(), (jlong)(uintptr_t)slot};
    (*env)->SetLongArrayRegion(env, addresses, 0, 2, both);
}

/* This thread's tid and thread pointer. */
JNIEXPORT void JNICALL Java_Demo_self(JNIEnv *env, jclass class, jlongArray out) {
    jlong both[] = {(jlong)self_tid(), (jlong)self_thread_pointer()};
    (void)class;
    (*env)->SetLongArrayRegion(env, out, 0, 2, both);
}

JNIEXPORT jlong JNICALL Java_Demo_cpu(JNIEnv *env, jclass class) {
    (void)env;
    (void)class;
    return (jlong)self_cpu_ns();
}

/* A new transaction of this thread: its ids in the order of the slot, 32 bytes. */
JNIEXPORT void JNICALL Java_Demo_beginTruth(JNIEnv *env, jclass class, jint index, jbyteArray ids) {
    struct context context;
    _Static_assert(sizeof(context) == 32, "trace id, span id, transaction id");
    (void)class;
    truth_begin((unsigned)index, "java", self_cpu_ns(), &context);
    (*env)->SetByteArrayRegion(env, ids, 0, sizeof(context), (const jbyte *)&context);
}

JNIEXPORT void JNICALL Java_Demo_endTruth(JNIEnv *env, jclass class, jint index) {
    (void)env;
    (void)class;
    truth_end((unsigned)index, self_cpu_ns());
}

JNIEXPORT void JNICALL Java_Demo_report(JNIEnv *env, jclass class, jboolean reply) {
    struct event event;
    (void)env;
    (void)class;
    receiver_drain();
    event_open(&event, "report", reply);
    receiver_report(&event);
    truth_report(&event);
    event_close(&event);
}

/* Executes this program again. */
JNIEXPORT void JNICALL Java_Demo_restart(JNIEnv *env, jclass class) {
    static char text[1 << 16];
    char *arguments[256] = {0};
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    unsigned n = 0;
    (void)env;
    (void)class;
    for (size_t at = 0; at < size && n < 255; at += strlen(text + at) + 1) {
        arguments[n++] = text + at;
    }
    execv("/proc/self/exe", arguments);
    perror("execv");
    exit(1);
}

/* Calls a Runnable. */
JNIEXPORT void JNICALL Java_Work_viaNative(JNIEnv *env, jclass class, jobject task) {
    jmethodID run = (*env)->GetMethodID(env, (*env)->GetObjectClass(env, task), "run", "()V");
    (void)class;
    (*env)->CallVoidMethod(env, task, run);
}
