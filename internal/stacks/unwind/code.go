package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"go.opentelemetry.io/ebpf-profiler/util"

	"correlator/memread"
)

// runtimeCode reads the code of a runtime of a process. What the engine keeps of it by addresses, it would use
// for ever: also when another function has come to the place of one that is gone. So it begins anew with each
// request.
type runtimeCode struct {
	path   string // of its file
	data   interpreter.Data
	pid    libpf.PID
	bias   libpf.Address
	from   io.ReaderAt      // memory of the process
	batch  *memread.Process // the same, many places at once
	budget *budget
	pages  *pages                    // of it, each read once in a request
	memory remotememory.RemoteMemory // through pages

	noLines  bool // the engine's lines are wrong
	wasTried bool // the version was, see tried
	trusted  bool // see isTrusted

	php     *phpLayout // nil: it is no PHP
	v8      *v8Layout  // nil: the engine reads the code
	v8Text  *v8Text    // with this then, if not nil
	v8Last  uint16     // the last type of functions, 0: the engine knows it
	scripts *v8Scripts

	attached *attached // nil: not yet
	alone    int       // words of the request that were symbolized alone
}

var (
	errNotMapped = errors.New("the runtime is not mapped")
	errOther     = errors.New("the file only has its name")
)

// findCode returns the code of a runtime that a target has mapped: that in the first file which the loader takes
// for the runtime's, as the engine does: one that only has the name of a runtime's file (Debian's node, which has
// it in a library) is passed over. If none can be read, the error is that of the first which is one of the runtime,
// or else an errOther.
func findCode(t *target, kind *runtimeKind, pages *pages) (*runtimeCode, error) {
	var failure, other error
	for i := range t.mapped {
		opened := t.openCode(kind, &t.mapped[i], pages)
		if opened.code != nil {
			return opened.code, nil
		}
		failure, other = cmp.Or(failure, opened.failure), cmp.Or(other, opened.other)
	}
	return nil, cmp.Or(failure, other, errNotMapped)
}

// openCode returns the code of a runtime in a file that is mapped, nil if it has none.
func openCode(t *target, m *process.RawMapping, file *pfelf.Reference, loader interpreter.Loader,
	pages *pages) (*runtimeCode, error) {
	data, err := loader(noTables{}, interpreter.NewLoaderInfo(0, file, nil))
	if err != nil || data == nil {
		return nil, err
	}
	elf, err := file.GetELF()
	if err != nil {
		return nil, err
	}
	mapper := elf.GetAddressMapper()
	inFile, ok := mapper.FileOffsetToVirtualAddress(m.FileOffset)
	if !ok {
		return nil, fmt.Errorf("offset %d of %s is not mapped", m.FileOffset, m.Path)
	}
	c := &runtimeCode{
		path: m.Path, data: data, pid: t.PID(), bias: libpf.Address(m.Vaddr - inFile),
		from:  t.remoteMemory().ReaderAt,
		batch: t.batch, budget: t.budget, pages: pages, memory: remotememory.RemoteMemory{ReaderAt: pages},
		noLines: fmt.Sprint(data) == python310, wasTried: wasTried(fmt.Sprint(data)),
		scripts: newV8Scripts(),
	}
	c.trusted = c.wasTried
	if version := fmt.Sprint(data); strings.HasPrefix(version, phpName) {
		c.php = newPHPLayout(version)
	}
	if strings.HasPrefix(fmt.Sprint(data), v8Name) {
		layout, err := readV8Layout(elf)
		switch {
		case err == nil:
			c.v8 = layout
		case errors.Is(err, errOldV8):
			c.v8Text = newV8Text(layout)
		default:
			return nil, fmt.Errorf("%v: %w", data, err)
		}
		c.v8Last = lastV8Function(elf)
	}
	return c, nil
}

// python310 is the engine's name of the version of which it reads only the first half of each table of lines:
// what is in the other half gets the function's first line (walkLineTable in interpreter/python).
const python310 = "Python 3.10"

// v8Name is how the engine's names of versions of V8 begin.
const v8Name = "V8 "

// begin prepares a request.
func (c *runtimeCode) begin() { c.pages.begin(c.from) }

// end forgets what was read.
func (c *runtimeCode) end() {
	c.alone = 0
	if c.attached != nil {
		c.attached.begin(c.pages)
	}
	c.scripts.end()
	c.pages.forget()
}

// symbolize returns the frames of a word, with what was read in this request.
func (c *runtimeCode) symbolize(word libpf.EbpfFrame) (frames libpf.Frames, err error) {
	if err := c.attach(); err != nil {
		return nil, err
	}
	return c.attached.symbolize(word)
}

// maxAlone bounds how many words of a request are symbolized alone: each takes more than with others, which need not
// be read again.
const maxAlone = 16

// symbolizeAlone returns the frames of a word, and all that was read for them; nothing when it is not certain
// that this was all.
func (c *runtimeCode) symbolizeAlone(word libpf.EbpfFrame) (frames libpf.Frames, read []reading, err error) {
	if c.alone++; c.alone > maxAlone {
		frames, err = c.symbolize(word)
		return frames, nil, err
	}
	if err := c.attach(); err != nil {
		return nil, nil, err
	}
	r := &recorder{from: c.pages}
	c.attached.begin(r)
	defer c.attached.begin(c.pages)
	if frames, err = c.attached.symbolize(word); err != nil {
		return nil, nil, err
	}
	if r.lost {
		return frames, nil, nil
	}
	return frames, r.read, nil
}

// v8Frames returns the frames of a word of V8, and what was read for them; nothing when that was not all.
func (c *runtimeCode) v8Frames(word libpf.EbpfFrame) ([]Frame, []reading, error) {
	words := &recorder{from: c.pages}
	r := v8Reader{v8Layout: c.v8, words: words, pages: c.pages, memory: c.from, scripts: c.scripts}
	frames, err := r.frames(word)
	if words.lost || c.scripts.isShort {
		return frames, nil, err
	}
	return frames, words.read, err
}

// areUnchanged reports whether readings would be the same now.
func (c *runtimeCode) areUnchanged(read []reading) bool {
	size := 0
	for _, r := range read {
		size += r.size
	}
	return c.budget.spend(size) == nil && c.pages.areUnchanged(read, size, c.batch)
}

// noTables is for naming, which needs no tables.
type noTables struct{}

var _ interpreter.EbpfHandler = noTables{}

func (noTables) UpdateInterpreterOffsets(uint16, host.FileID, []util.Range) error { return nil }

func (noTables) UpdateProcData(libpf.InterpreterType, libpf.PID, unsafe.Pointer) error { return nil }

func (noTables) DeleteProcData(libpf.InterpreterType, libpf.PID) error { return nil }

func (noTables) UpdatePidInterpreterMapping(libpf.PID, lpm.Prefix, uint8, host.FileID, uint64) error {
	return nil
}

func (noTables) DeletePidInterpreterMapping(libpf.PID, lpm.Prefix) error { return nil }
