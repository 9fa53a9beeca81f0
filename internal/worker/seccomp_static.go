//go:build !cgo

package worker

// usesLibc is whether the program may be linked with libc. Released ones are not.
const usesLibc = false
