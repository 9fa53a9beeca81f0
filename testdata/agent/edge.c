#include "edge.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

char *edge_of_memory(size_t before) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    before = (before + page - 1) / page * page;
    char *start =
        mmap(NULL, before + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + before, page, PROT_NONE)) {
        perror("mmap");
        exit(1);
    }
    return start + before;
}
