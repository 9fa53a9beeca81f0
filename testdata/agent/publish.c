#include "publish.h"

#include "edge.h"
#include "events.h"
#include "receiver.h"
#include "storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void *published; /* what to free */

static void set_pointer(struct publication *p, void *storage) {
    p->storage = storage;
    p->time_ns = now_ns();
    __atomic_store_n(p->exported, storage, __ATOMIC_RELEASE);
}

static void publish_layout(struct publication *p, const struct storage *storage) {
    char *memory = malloc(storage_size(storage));
    if (!memory) {
        perror("malloc");
        exit(1);
    }
    storage_write(storage, memory);
    set_pointer(p, memory);
    free(published);
    published = memory;
}

static struct storage usual(const struct publication *p) {
    return (struct storage){.minor_version = 1,
                            .service_name = storage_text(p->service),
                            .service_environment = storage_text(p->environment),
                            .socket_path = storage_text(receiver_path())};
}

void publish(struct publication *p) {
    struct storage storage = usual(p);
    publish_layout(p, &storage);
}

void publish_withdraw(struct publication *p) {
    set_pointer(p, NULL);
    free(published);
    published = NULL;
}

/* A storage whose second half cannot be read. */
static void publish_at_edge(struct publication *p, const struct storage *storage) {
    size_t size = storage_size(storage);
    char *edge = edge_of_memory(size), *all = malloc(size);
    if (!all) {
        perror("malloc");
        exit(1);
    }
    storage_write(storage, all);
    memcpy(edge - size / 2, all, size / 2);
    free(all);
    set_pointer(p, edge - size / 2);
}

/* What lies at the path instead of a socket of ours: 0, or -1 and errno. */
static int make_no_socket(const char *kind, const char *path, const char *target) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unlink(path);
    if (!strcmp(kind, "socket-missing")) {
        return 0;
    }
    if (!strcmp(kind, "socket-fifo")) {
        return mkfifo(path, 0600);
    }
    if (!strcmp(kind, "socket-directory")) {
        return mkdir(path, 0700);
    }
    if (!strcmp(kind, "socket-symlink")) {
        return symlink(target, path);
    }
    if (!strcmp(kind, "socket-file")) {
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        return fd < 0 ? fd : close(fd);
    }
    bool stream = !strcmp(kind, "socket-stream");
    if (stream || !strcmp(kind, "socket-forbidden")) { /* a live one, of another type or mode 0 */
        int fd = socket(AF_UNIX, (stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
        strcpy(address.sun_path, path);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address))) {
            return -1;
        }
        return stream ? listen(fd, 1) : chmod(path, 0);
    }
    errno = EINVAL;
    return -1;
}

static const char *hostile_socket(struct publication *p, struct storage *storage, const char *kind,
                                  const char *argument) {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    if (snprintf(path, sizeof(path), "%s.%s", receiver_path(), kind) >= (int)sizeof(path)) {
        return "the path does not fit sun_path";
    }
    storage->socket_path = storage_text(path);
    if (!strcmp(kind, "socket-empty")) {
        storage->socket_path = storage_text("");
    } else if (!strcmp(kind, "socket-relative")) {
        storage->socket_path = storage_text("relative.socket");
    } else if (!strcmp(kind, "socket-nul")) {
        path[strlen(path) / 2] = 0;
    } else if (!strcmp(kind, "socket-path")) {
        storage->socket_path = storage_text(argument);
    } else if (make_no_socket(kind, path, argument)) {
        return strerror(errno);
    }
    publish_layout(p, storage);
    return NULL;
}

static const char *publish_page(struct publication *p, void *page) {
    if (!page) {
        return strerror(errno);
    }
    set_pointer(p, page);
    return NULL;
}

const char *publish_hostile(struct publication *p, const char *kind, const char *argument) {
    struct storage storage = usual(p);
    if (!strncmp(kind, "socket-", 7)) {
        return hostile_socket(p, &storage, kind, argument);
    }
    if (!strcmp(kind, "storage-unmapped")) {
        set_pointer(p, edge_of_memory(1));
        return NULL;
    }
    if (!strcmp(kind, "storage-wild")) {
        set_pointer(p, WILD_ADDRESS);
        return NULL;
    }
    if (!strcmp(kind, "storage-edge")) {
        publish_at_edge(p, &storage);
        return NULL;
    }
    if (!strcmp(kind, "storage-hangs")) {
        return publish_page(p, hanging_page());
    }
    if (!strcmp(kind, "storage-file")) {
        return publish_page(p, file_page(argument));
    }
    if (!strcmp(kind, "storage-version")) {
        storage.minor_version = 0;
    } else if (!strcmp(kind, "storage-newer")) { /* not hostile: fields added at the end */
        storage.minor_version = 7;
        storage.trailer = storage_text("fields of a later version");
    } else if (!strcmp(kind, "storage-length")) {
        storage.service_name.told_length = UINT32_MAX;
    } else if (!strcmp(kind, "storage-utf8")) {
        storage.service_name = storage_text("not \xff\xfe text");
    } else {
        return "no such kind";
    }
    publish_layout(p, &storage);
    return NULL;
}
