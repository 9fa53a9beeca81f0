package messaging

import "golang.org/x/sys/unix"

// MaxProcRootBytes is the maximal length of Dial's procRoot: the name of a socket has 107 bytes
// (sun_path of unix(7), 108 with its final NUL), of which "/self/fd/" and a descriptor's number
// take 19.
const MaxProcRootBytes = len(unix.RawSockaddrUnix{}.Path) - 1 - len("/self/fd/") - maxDescriptorDigits

// maxDescriptorDigits is enough for an int32.
const maxDescriptorDigits = 10
