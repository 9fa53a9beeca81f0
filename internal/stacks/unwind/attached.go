package unwind

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
)

// attached is what the engine has of a runtime of a process. It keeps what it has read in caches of 200 to 400 kB:
// making them anew for each request would be most of what the worker allocates.
type attached struct {
	interpreter.Instance
	caches []cache
	from   io.ReaderAt
	texts  *pythonText // nil: as they are
	v8     *v8Text     // the same
}

type cache interface{ Purge() }

// attach has the engine read the runtime through c.pages, if it does not yet.
func (c *runtimeCode) attach() (err error) {
	if c.attached != nil {
		return nil
	}
	a := &attached{from: c.pages, texts: newPythonText(fmt.Sprint(c.data)), v8: c.v8Text}
	if a.Instance, err = c.data.Attach(noTables{}, c.pid, c.bias, remotememory.RemoteMemory{ReaderAt: a}); err != nil {
		return err
	}
	instance := reflect.ValueOf(a.Instance).Elem()
	for i := range instance.NumField() {
		field := instance.Field(i)
		pointer := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr()))
		if cache, is := pointer.Elem().Interface().(cache); is {
			a.caches = append(a.caches, cache)
		}
	}
	c.attached = a
	return nil
}

// ReadAt reads memory of the process.
func (a *attached) ReadAt(p []byte, off int64) (int, error) {
	if a.v8 != nil {
		return a.v8.read(a.from, p, off)
	}
	return a.texts.read(a.from, p, off)
}

// symbolize returns the frames of a word; an error where a name is there that the engine could not read.
func (a *attached) symbolize(word libpf.EbpfFrame) (frames libpf.Frames, err error) {
	if err = a.Symbolize(word, &frames, libpf.FrameMapping{}); err == nil && a.v8 != nil && a.v8.lost {
		a.begin(a.from) // it has kept the function without its name
		err = errV8Object
	}
	return frames, err
}

// begin has the engine forget what it has read, and read from elsewhere.
func (a *attached) begin(from io.ReaderAt) {
	for _, cache := range a.caches {
		cache.Purge()
	}
	a.v8.forget()
	a.from = from
}

// maxAttached bounds of how many processes the worker keeps what is attached.
const maxAttached = 4

// keepAttached keeps what is attached of a process, and not of the one for which that was longest ago.
func (s *server) keepAttached(t *target) {
	if t.code == nil && len(t.codes) == 0 {
		return
	}
	s.forgetAttached(t)
	s.attached = append(s.attached, t)
	if len(s.attached) > maxAttached {
		s.attached[0].detach()
		s.attached = slices.Delete(s.attached, 0, 1)
	}
}

// forgetAttached is called when a process is gone.
func (s *server) forgetAttached(t *target) {
	s.attached = slices.DeleteFunc(s.attached, func(other *target) bool { return other == t })
}

func (t *target) detach() {
	if t.code != nil {
		t.code.attached = nil
	}
	for _, code := range t.codes {
		code.attached = nil
	}
}
