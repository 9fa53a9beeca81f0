/* The process context of OpenTelemetry, by which a process takes part: in a program, or in a
 * library that the dynamic linker preloads. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

__attribute__((constructor)) static void publish(void) {
    static const char payload[] = "\x0a\x19\x0a\x17\x0a\x0cservice.name\x12\x07\x0a\x05truth";
    struct {
        char signature[8];
        uint32_t version, size;
        uint64_t published, payload;
    } * header;
    struct timespec now;
    int memory = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (memory < 0 || ftruncate(memory, 4096))
        exit(1);
    header = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory, 0);
    if (header == MAP_FAILED)
        exit(1);
    memcpy(header->signature, "OTEL_CTX", 8);
    header->version = 2;
    header->size = sizeof(payload) - 1;
    header->payload = (uint64_t)payload;
    clock_gettime(CLOCK_BOOTTIME, &now);
    header->published = (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
