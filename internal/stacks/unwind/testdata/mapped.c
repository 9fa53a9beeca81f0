/* A program that works in a library of which there is no file, or not where it was: "deleted", in a
 * "memfd", on a file system that is "unmounted", or an "overlay" that is. With LIBRARY it is the
 * library. */
#define _GNU_SOURCE
#include <stdio.h>

#ifdef LIBRARY

static volatile double sink;

__attribute__((noinline)) void innermost(void) {
    for (int i = 0; i < 100000; i++)
        sink = sink * 1.0001 + i;
}

__attribute__((noinline)) void inner(int room) {
    volatile char frame[room];

    frame[0] = 1;
    innermost();
    sink += frame[0];
}

__attribute__((noinline)) void outer(void) {
    inner(64);
    sink += 1;
}

void work(void) {
    for (;;) {
        outer();
        sink += 1;
    }
}

#else

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

static void copy(const char *from, int to) {
    int in = open(from, O_RDONLY);

    must(in, "open");
    must(to, "create");
    must(sendfile(to, in, NULL, 1 << 20), "copy");
}

static void private_mounts(void) {
    must(unshare(CLONE_NEWNS), "unshare");
    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
    must(mount("tmpfs", ".", "tmpfs", 0, NULL), "tmpfs");
}

/* The working directory is an empty one. */
int main(int argc, char **argv) {
    const char *kind = argv[1], *library = argv[2];
    char dir[4096], path[4200] = "lib.so", options[16384];
    void (*work)(void);
    void *handle;

    (void)argc;

    must(getcwd(dir, sizeof(dir)) ? 0 : -1, "getcwd");
    if (!strcmp(kind, "memfd")) {
        int fd = memfd_create("code", 0);

        copy(library, fd);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    } else if (!strcmp(kind, "overlay")) {
        private_mounts();
        must(chdir(dir), "chdir");
        must(mkdir("l", 0755) | mkdir("u", 0755) | mkdir("w", 0755) | mkdir("m", 0755), "mkdir");
        copy(library, open("l/lib.so", O_CREAT | O_WRONLY, 0755));
        snprintf(options, sizeof(options), "lowerdir=%s/l,upperdir=%s/u,workdir=%s/w", dir, dir,
                 dir);
        must(mount("overlay", "m", "overlay", 0, options), "overlay");
        snprintf(path, sizeof(path), "%s/m/lib.so", dir);
    } else {
        if (!strcmp(kind, "unmounted")) {
            private_mounts();
            must(chdir(dir), "chdir");
        }
        snprintf(path, sizeof(path), "%s/lib.so", dir);
        copy(library, open(path, O_CREAT | O_WRONLY, 0755));
    }
    handle = dlopen(path, RTLD_NOW);
    if (!handle)
        return puts(dlerror());
    work = (void (*)(void))dlsym(handle, "work");
    must(chdir("/"), "chdir");
    if (!strcmp(kind, "deleted"))
        must(unlink(path), "unlink");
    if (!strcmp(kind, "overlay")) {
        snprintf(path, sizeof(path), "%s/m", dir);
        must(umount2(path, MNT_DETACH), "umount");
    }
    if (!strcmp(kind, "overlay") || !strcmp(kind, "unmounted"))
        must(umount2(dir, MNT_DETACH), "umount");
    puts("ready");
    fflush(stdout);
    work();
    return 0;
}

#endif
