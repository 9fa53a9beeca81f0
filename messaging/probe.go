package messaging

import "golang.org/x/sys/unix"

// MaxProcRootBytes is how long a procRoot may be for Dial: the name of a socket has 107 bytes
// (sun_path of unix(7), with its final NUL 108), of which "/self/fd/" and a descriptor's number take 19.
const MaxProcRootBytes = len(unix.RawSockaddrUnix{}.Path) - 1 - len("/self/fd/") - maxDescriptorDigits

// maxDescriptorDigits is what an int32 takes.
const maxDescriptorDigits = 10
