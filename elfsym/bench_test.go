package elfsym

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// A parse through the kernel, as the correlator does it.
func BenchmarkParse(b *testing.B) {
	f := open(b, filepath.Join(prebuilt, "x86_64-glibc-tlsdesc.so"))
	info, err := f.Stat()
	assert.NilError(b, err)
	b.Run("file", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseFile(f, info.Size()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseLibrary(f, info.Size()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("no thread context", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseThreadContext(f, info.Size()); !errors.Is(err, ErrNoSymbols) {
				b.Fatal(err)
			}
		}
	})
	b.Run("no thread context, cached", func(b *testing.B) {
		c := newCache(b, 1024)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.ThreadContext(f); !errors.Is(err, ErrNoSymbols) {
				b.Fatal(err)
			}
		}
	})
	b.Run("library, cached", func(b *testing.B) {
		c := newCache(b, 1024)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Library(f); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library, cached, parallel", func(b *testing.B) {
		c := newCache(b, 1024)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := c.Library(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// The largest file that processes of interest map.
func BenchmarkParseFileLarge(b *testing.B) {
	matches, err := filepath.Glob("/usr/lib/jvm/*/lib/server/libjvm.so")
	if err != nil || len(matches) == 0 {
		b.Skip("no libjvm.so on this machine")
	}
	f := open(b, matches[0])
	info, err := os.Stat(matches[0])
	assert.NilError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseFile(f, info.Size()); err != nil {
			b.Fatal(err)
		}
	}
}
