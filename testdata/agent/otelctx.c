#include "otelctx.h"

#include "../otel/publisher.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library's functions; null: it is not loaded. */
static struct {
    __typeof__(otel_publish) *publish;
    __typeof__(otel_withdraw) *withdraw;
    __typeof__(otel_attach) *attach;
    __typeof__(otel_detach) *detach;
} publisher;

static const char not_loaded[] = "no --otel-library was given";

const char *otelctx_load(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        return dlerror();
    }
    static const char *const names[] = {"otel_publish", "otel_withdraw", "otel_attach",
                                        "otel_detach"};
    void *found[sizeof(names) / sizeof(*names)];
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        found[i] = dlsym(handle, names[i]);
        if (!found[i]) {
            return dlerror();
        }
    }
    _Static_assert(sizeof(found) == sizeof(publisher), "a name for each function");
    memcpy(&publisher, found, sizeof(publisher)); /* see library_load */
    return NULL;
}

const char *otelctx_publish(const char *service) {
    char *resource;
    if (!publisher.publish) {
        return not_loaded;
    }
    if (asprintf(&resource, "service.name=%s\ntelemetry.sdk.language=cpp", service) < 0) {
        return "no memory";
    }
    const char *error =
        publisher.publish(resource, "tlsdesc_v1_dev", "datadog.local_root_span_id,http.route");
    free(resource);
    return error;
}

const char *otelctx_withdraw(void) {
    if (!publisher.withdraw) {
        return not_loaded;
    }
    publisher.withdraw();
    return NULL;
}

const char *otelctx_record(const void *bytes, size_t size) {
    if (!publisher.attach) {
        return not_loaded;
    }
    if (size) {
        return publisher.attach(bytes, size);
    }
    publisher.detach();
    return NULL;
}
