package unwind

import (
	"fmt"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libc"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/process"
)

// fileCache is what was found in files, so that what many processes map is read once: by a worker that probes
// processes, which ends soon. nil: nothing is kept.
type fileCache struct {
	codes map[cachedCode]openedCode
	libcs map[mappedFile]libc.LibcInfo
	jvms  map[mappedFile]string // names of those that can be read
}

// cachedCode is a file that was tried as a kind of runtime.
type cachedCode struct {
	kind *runtimeKind
	file mappedFile
}

// openedCode is what a file has of a runtime: its code, or why it cannot be read, or only its name.
type openedCode struct {
	code           *runtimeCode
	failure, other error
}

// maxCachedFiles bounds what is kept. A host has tens.
const maxCachedFiles = 256

func newFileCache() *fileCache {
	return &fileCache{
		codes: make(map[cachedCode]openedCode), libcs: make(map[mappedFile]libc.LibcInfo),
		jvms: make(map[mappedFile]string),
	}
}

// bound forgets all when there is too much.
func (f *fileCache) bound() {
	if len(f.codes)+len(f.libcs)+len(f.jvms) > maxCachedFiles {
		clear(f.codes)
		clear(f.libcs)
		clear(f.jvms)
	}
}

// openCode returns what a file has of a runtime. What was kept of it can only be examined: it is of no process. It is
// not kept that a process's file cannot be opened.
func (t *target) openCode(kind *runtimeKind, m *process.RawMapping, pages *pages) (o openedCode) {
	key := cachedCode{kind, mappedFile{m.Device, m.Inode}}
	if t.cache != nil {
		if o, known := t.cache.codes[key]; known {
			return o
		}
	}
	file := t.reference(m)
	defer file.Close()
	o.code, o.failure = openCode(t, m, file, kind.loader, pages)
	if o.failure != nil && !kind.mayBe(file) {
		o.failure, o.other = nil, fmt.Errorf("%w: %w", errOther, o.failure)
	}
	if t.cache == nil || o == (openedCode{}) {
		return o
	}
	if _, err := file.GetELF(); err == nil {
		kept := o
		if o.code != nil {
			kept.code = &runtimeCode{data: o.code.data, wasTried: o.code.wasTried}
		}
		t.cache.codes[key] = kept
	}
	return o
}

// reference returns the file of a mapping, which is opened when it is needed.
func (t *target) reference(m *process.RawMapping) *pfelf.Reference {
	return pfelf.NewReferenceWithOpenFunc(m.Path, t, func() (*pfelf.File, error) {
		return process.OpenELFMapping(t, m)
	})
}

// libcInfo returns what the files of the C library that a process has mapped tell of it.
func (t *target) libcInfo() (all libc.LibcInfo) {
	for i := range t.mapped {
		m := &t.mapped[i]
		if !libc.IsPotentialLibcDSO(m.Path) {
			continue
		}
		key := mappedFile{m.Device, m.Inode}
		info, known := t.cache.libcs[key]
		if !known {
			file := t.reference(m)
			if elf, err := file.GetELF(); err == nil {
				if found, err := libc.ExtractLibcInfo(elf); err == nil && found != nil {
					info = *found
				}
			}
			file.Close()
			t.cache.libcs[key] = info
		}
		all.Merge(info)
	}
	return all
}

// needsMet reports whether a runtime and the C library of a process tell what the programs need of it.
func (t *target) needsMet(code *runtimeCode) bool {
	var tables storedOnly
	instance, err := code.data.Attach(&tables, t.PID(), code.bias, code.memory)
	if err == nil {
		err = instance.UpdateLibcInfo(&tables, t.PID(), t.libcInfo())
	}
	return err == nil && tables.stored
}

// storedOnly are tables that note whether something of a process is stored.
type storedOnly struct {
	noTables
	stored bool
}

// UpdateProcData notes that.
func (s *storedOnly) UpdateProcData(libpf.InterpreterType, libpf.PID, unsafe.Pointer) error {
	s.stored = true
	return nil
}
