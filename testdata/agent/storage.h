/*
 * Process storage as the protocol lays it out, section 2: minor version uint16, then
 * service name, service environment and socket path, each a length uint32 and bytes.
 */
#ifndef STORAGE_H
#define STORAGE_H

#include <stddef.h>
#include <stdint.h>

struct storage_text {
    const char *bytes;
    size_t length;
    uint32_t told_length; /* what is written as its length; differs only to do harm */
};

struct storage {
    uint16_t minor_version;
    struct storage_text service_name, service_environment, socket_path;
    struct storage_text
        trailer; /* bytes of a later version, after the rest; no length is written */
};

struct storage_text storage_text(const char *text);

/* Size in bytes, and the bytes themselves. */
size_t storage_size(const struct storage *storage);
void storage_write(const struct storage *storage, char *out);

#endif
