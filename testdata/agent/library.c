#include "library.h"

#include "events.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

static void *load_apart(const char *path) {
#ifdef LM_ID_NEWLM
    return dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
#else
    (void)path;
    return NULL;
#endif
}

const char *library_load(const char *path, bool apart, struct library *out) {
    *out = (struct library){.mapped_ns = now_ns()};
    out->handle = apart ? load_apart(path) : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!out->handle) {
        return dlerror();
    }
    struct link_map *map;
    if (!dlinfo(out->handle, RTLD_DI_LINKMAP, &map)) {
        out->base = map->l_addr;
    }
    out->storage = dlsym(out->handle, "elastic_apm_profiling_correlation_process_storage_v1");
    /* POSIX lets dlsym return functions; ISO C does not let them be assigned. */
    void *set = dlsym(out->handle, "agentlib_set_thread_slot");
    void *variable = dlsym(out->handle, "agentlib_thread_variable");
    if (set && variable) {
        memcpy(&out->set_thread_slot, &set, sizeof(set));
        memcpy(&out->thread_variable, &variable, sizeof(variable));
    }
    return NULL;
}

bool library_unload(struct library *library, const char *path) {
    dlclose(library->handle);
    void *again = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *library = (struct library){0};
    return again != NULL;
}
