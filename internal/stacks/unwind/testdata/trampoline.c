// Calls a function that is busy through a trampoline as CPython makes them, in memory of no file.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static volatile unsigned long count;

static long busy(long a, long b, long c) {
    for (;;) {
        count += a + b + c;
    }
}

typedef long trampoline(long, long, long, long (*)(long, long, long));

int main(int arguments, char **argument) {
    static const unsigned char codes[][16] = {
        {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3},
        {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3},
    };
    const unsigned char *code = codes[arguments > 1 && argument[1][0] == '1'];
    const size_t size = 1 << 16;
    unsigned char *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return 1;
    }
    for (size_t at = 0; at + sizeof(codes[0]) <= size; at += sizeof(codes[0])) {
        memcpy(memory + at, code, sizeof(codes[0]));
    }
    if (mprotect(memory, size, PROT_READ | PROT_EXEC) != 0) {
        return 1;
    }
    puts("ready");
    fflush(stdout);
    trampoline *last = (trampoline *)(memory + 100 * sizeof(codes[0]));
    return (int)last(1, 2, 3, busy);
}
