#include "edge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __has_include(<linux/userfaultfd.h>) /* not among the headers that musl-gcc uses */
#include <linux/userfaultfd.h>
#define HAS_USERFAULTFD
#endif

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

/* Nobody ever provides the page. */
void *hanging_page(void) {
#ifdef HAS_USERFAULTFD
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register registration = {.mode = UFFDIO_REGISTER_MODE_MISSING};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    registration.range.start = (uintptr_t)page;
    registration.range.len = size;
    if (fd < 0 || page == MAP_FAILED || ioctl(fd, UFFDIO_API, &api) ||
        ioctl(fd, UFFDIO_REGISTER, &registration)) {
        return NULL;
    }
    return page;
#else
    errno = ENOSYS;
    return NULL;
#endif
}

void *file_page(const char *path) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (page == MAP_FAILED || madvise(page, size, MADV_RANDOM)) { /* else it may be read ahead */
        return NULL;
    }
    close(fd);
    return page;
}
