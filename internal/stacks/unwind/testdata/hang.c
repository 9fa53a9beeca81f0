/* A process with a JVM's library, whose variables are on a page of a file that is read when
 * somebody else accesses it: the arguments are the paths of both. It ends with its standard input.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **arguments) {
    void *library, *variable, *page;
    char byte;
    int file;

    if (count != 3 || !(library = dlopen(arguments[1], RTLD_NOW)) ||
        !(variable = dlsym(library, "gHotSpotVMStructs")) ||
        (file = open(arguments[2], O_RDONLY)) < 0) {
        perror(dlerror());
        return 1;
    }
    page = (void *)((uintptr_t)variable & ~(uintptr_t)4095);
    if (mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) != page) {
        perror("mmap");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    return read(0, &byte, 1) < 0;
}
