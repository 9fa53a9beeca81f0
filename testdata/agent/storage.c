#include "storage.h"

#include <string.h>

struct storage_text storage_text(const char *text) {
    size_t length = strlen(text);
    return (struct storage_text){.bytes = text, .length = length, .told_length = (uint32_t)length};
}

size_t storage_size(const struct storage *storage) {
    return sizeof(storage->minor_version) + 3 * sizeof(uint32_t) + storage->service_name.length +
           storage->service_environment.length + storage->socket_path.length +
           storage->trailer.length;
}

static char *append(char *out, const void *bytes, size_t n) {
    memcpy(out, bytes, n);
    return out + n;
}

static char *append_text(char *out, const struct storage_text *text) {
    out = append(out, &text->told_length, sizeof(text->told_length));
    return append(out, text->bytes, text->length);
}

void storage_write(const struct storage *storage, char *out) {
    out = append(out, &storage->minor_version, sizeof(storage->minor_version));
    out = append_text(out, &storage->service_name);
    out = append_text(out, &storage->service_environment);
    out = append_text(out, &storage->socket_path);
    if (storage->trailer.length) {
        append(out, storage->trailer.bytes, storage->trailer.length);
    }
}
