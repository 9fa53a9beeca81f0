package tlsdesc

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestLibcOf(t *testing.T) {
	for path, want := range map[string]Libc{
		"/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2":   Glibc, // Debian 12
		"/usr/lib/x86_64-linux-gnu/libc.so.6":              Glibc,
		"/usr/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1": Glibc,
		"/lib/x86_64-linux-gnu/ld-2.31.so":                 Glibc, // Debian 11
		"/lib/x86_64-linux-gnu/libc-2.31.so":               Glibc,
		"/usr/lib64/ld-2.17.so":                            Glibc, // CentOS 7
		"/usr/lib64/libc-2.33.9000.so":                     Glibc,
		"/usr/lib/x86_64-linux-musl/libc.so":               Musl, // Debian
		"/lib/ld-musl-x86_64.so.1":                         Musl, // Alpine
		"/lib/ld-musl-aarch64.so.1":                        Musl,
		"/lib/libc.musl-x86_64.so.1":                       Musl,

		"":                                   LibcUnknown,
		"/":                                  LibcUnknown,
		"/usr/lib/libc++.so.1":               LibcUnknown,
		"/usr/lib/libc-client.so":            LibcUnknown,
		"/usr/lib/libc-.so":                  LibcUnknown,
		"/usr/lib/libcap.so.2":               LibcUnknown,
		"/usr/lib/ld-.so":                    LibcUnknown,
		"/usr/lib/ld-2.31.so.old":            LibcUnknown,
		"/usr/lib/ld-linux-notes.txt":        LibcUnknown,
		"/opt/ld-linux-x86-64.so.2/other.so": LibcUnknown,
		"/opt/libc.so.6/other.so":            LibcUnknown,
		"/lib/libgcompat.so.0":               LibcUnknown,
		"/lib/ld-uClibc-1.0.40.so":           LibcUnknown,
		"/system/bin/linker64":               LibcUnknown,
	} {
		got := libcOf(path)
		assert.Check(t, got == want, "%q: %v, not %v", path, got, want)
	}
}

// The words are shown to users and are part of the JSON of the commands.
func TestNames(t *testing.T) {
	for value, name := range map[interface{ String() string }]string{
		Static: "static", Dynamic: "dynamic", DTPMod: "dtpmod", Kind(0): "unresolved", Kind(9): "unknown",
		Glibc: "glibc", Musl: "musl", LibcUnknown: "unknown", Libc(9): "unknown",
	} {
		assert.Check(t, value.String() == name, "%q instead of %q", value, name)
	}
}
