package unwind

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"golang.org/x/sys/unix"

	"correlator/elfsym"
	"correlator/internal/host/procdir"
	"correlator/internal/host/self"
	"correlator/internal/names/symbols"
	"correlator/internal/stacks/unwind/deltas"
	"correlator/internal/worker"
	"correlator/memread"
	"correlator/procscan"
)

const (
	// maxRequestBytes and maxRequestReads bound what one request reads of a process: of libjvm 30 MB,
	// of memory some MB in some 10,000 reads, which count also where the page was read before.
	maxRequestBytes = 1 << 30
	maxRequestReads = 1 << 20

	// maxMemoryBytes bounds what is read of memory for a synchronization, and so what the engine keeps
	// of it: of a JVM, 10 MB.
	maxMemoryBytes = 64 << 20

	// maxHeapBytes is how much more memory is in use than before at which nothing more is read for a request, so that
	// lists which grow by what is read are within workerMemoryBytes, with their copies, and the places of former ones,
	// where none fits. That is looked at each heapStep bytes. A library with 190 MB takes 36 MB.
	maxHeapBytes = 3 * workerMemoryBytes / 16
	heapStep     = 64 << 10

	// maxRequestTime is of the CPU time for which the worker is not yet killed; it is looked at then, too. What a file
	// says of frames may take 0.1 s for each MB. A library with 190 MB takes 0.7 s.
	maxRequestTime = 3 * synchronizeTimeout / 5

	// maxFailedReads is how often a file is read in vain once there is too much to read. The engine goes on for as long
	// as what it has read says.
	maxFailedReads = 1 << 12

	// maxFileBytes bounds a mapped file, of which parts are read. Browsers have 10 GB with what debuggers need.
	maxFileBytes = 64 << 30

	// maxVDSOBytes is far more than the one to three pages that a vDSO has.
	maxVDSOBytes = 1 << 20
)

var (
	errBudget   = errors.New("too much is read for one request")
	errFileSize = errors.New("file is too large")
)

// Why the vDSO of a process is not taken for that of all.
var (
	errVDSOBytes   = fmt.Errorf("it has more than %d bytes", maxVDSOBytes)
	errVDSO32      = errors.New("it is that of 32-bit programs")
	errVDSOChanged = errors.New("it has been changed, as CRIU does in processes that it restores")
	errVDSO        = errors.New("it is not the kernel's: made by the process, or restored by CRIU from another one")
)

// budget is what is left of maxRequestBytes, maxRequestReads and maxMemoryBytes.
type budget struct {
	bytes, reads, memory atomic.Int64
	// Bytes, when these were looked at last; the heap and CPU time, when they were first.
	looked, heap, time atomic.Int64
	kept               atomic.Int64 // at most this of the heap is no garbage of former requests, as far as is known
}

func (b *budget) reset() {
	b.bytes.Store(maxRequestBytes)
	b.reads.Store(maxRequestReads)
	b.memory.Store(maxMemoryBytes)
	b.looked.Store(maxRequestBytes)
}

// spendMemory is spend for what was read before.
func (b *budget) spendMemory(n int) error {
	if b.memory.Add(-int64(n)) < 0 {
		return errBudget
	}
	return b.spend(0)
}

func (b *budget) isSpent() bool { return min(b.bytes.Load(), b.reads.Load(), b.memory.Load()) < 0 }

func (b *budget) spend(n int) error {
	left := b.bytes.Add(-int64(n))
	if b.looked.Load()-left >= heapStep && b.memory.Load() >= 0 {
		heap, used := heapBytes(), self.Clock(unix.CLOCK_PROCESS_CPUTIME_ID)
		if b.looked.Swap(left) == maxRequestBytes {
			if heap > max(maxHeapBytes, b.kept.Load()+maxHeapBytes/4) {
				runtime.GC()
				heap = heapBytes()
				b.kept.Store(heap)
			}
			b.kept.Store(min(heap, b.kept.Load()))
			b.heap.Store(max(heap-int64(n), 0)) // there is room for these already
			b.time.Store(int64(used))
		}
		if used > time.Duration(b.time.Load())+maxRequestTime {
			b.memory.Store(-1)
		}
		if heap > b.heap.Load()+maxHeapBytes {
			if runtime.GC(); heapBytes() > b.heap.Load()+maxHeapBytes {
				b.memory.Store(-1)
			}
		}
	}
	if b.reads.Add(-1) < 0 || left < 0 || b.memory.Load() < 0 {
		return errBudget
	}
	return nil
}

// heapBytes returns how much memory is in use, with garbage.
func heapBytes() int64 {
	objects := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}} // runtime.ReadMemStats stops all threads
	metrics.Read(objects)
	return int64(objects[0].Value.Uint64())
}

// skipped is a file that could not be read, or, without inode, the reason why something else was not.
type skipped struct {
	inode  uint64
	reason string
}

// target is a process as the engine sees it: process.Process. It refers to the program that the
// process ran when it was made: memory of another one is not read.
type target struct {
	kernelPID uint32
	user      worker.User
	number    uint64 // no other target of the worker has it
	handle    *procscan.Handle
	opener    symbols.Opener
	mem       *os.File
	batch     *memread.Process // many places at once
	budget    *budget
	files     *handler // which stores what they contain

	// Of the synchronization under way.
	systems     *symbols.FileSystems
	mappings    map[uint64]procscan.Mapping // by start
	err         error                       // of reading them
	hasJVM      bool                        // libjvm is mapped
	jvm         *process.RawMapping         // the first of libjvm
	mapped      []process.RawMapping        // the first of each file
	skipped     map[skipped]struct{}        // what could not be read
	inMemory    map[fileID]*memoryFile      // files that are read from memory; nil: none yet
	notInMemory error                       // why there may be more of them
	failure     error                       // of the first of these

	opens map[openedAs]struct{} // of all targets; nil: it is not kept

	memoryFiles map[uint64]bool // inodes of memfds, and whether they are ELF files
	pages       *pages          // see readByPages; nil otherwise

	code  *jvmCode // nil: no JVM is known
	codes map[*runtimeKind]*runtimeCode

	refused map[*runtimeKind]refusal

	cache *fileCache // nil: none
	own   string     // our executable, of the target that is this process; "" for others

	hasTrampolines bool // of CPython

	isLocked bool // the engine may have locked itself, see store
}

var _ process.Process = (*target)(nil)

// openTarget returns a target, which the caller must close; ErrGone when the process has ended.
func openTarget(procRoot string, r *synchronize, b *budget, files *handler) (*target, error) {
	handle, err := procscan.OpenProcess(procRoot, r.ID)
	if err != nil {
		return nil, err
	}
	// The descriptor refers to the memory, not to the pid: after an exec it reads nothing.
	mem, err := os.Open(filepath.Join(procdir.Dir(procRoot, r.ID.PID), "mem"))
	if !handle.Alive() || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		err = procscan.ErrGone
	}
	if err != nil {
		if mem != nil {
			mem.Close()
		}
		handle.Close()
		return nil, err
	}
	return &target{
		kernelPID: r.KernelPID, user: r.User, handle: handle, opener: symbols.Opener{ProcRoot: procRoot},
		mem: mem, batch: memread.OpenAlone(procRoot, r.ID.PID), budget: b, files: files,
		codes: make(map[*runtimeKind]*runtimeCode), refused: make(map[*runtimeKind]refusal),
	}, nil
}

func (t *target) close() {
	t.mem.Close()
	t.batch.Close()
	t.handle.Close()
}

// begin prepares a synchronization.
func (t *target) begin() {
	t.systems, t.inMemory, t.notInMemory, t.memoryFiles = nil, nil, nil, make(map[uint64]bool)
	t.mappings, t.skipped = make(map[uint64]procscan.Mapping), make(map[skipped]struct{})
	t.err, t.hasJVM, t.jvm, t.mapped, t.failure = nil, false, nil, nil, nil
}

// PID returns the key of the process in the tables.
func (t *target) PID() libpf.PID { return libpf.PID(t.kernelPID) }

// GetMachineData returns that of this machine.
func (t *target) GetMachineData() process.MachineData {
	return process.MachineData{Machine: pfelf.CurrentMachine}
}

// GetExe returns the path of the executable.
func (t *target) GetExe() (libpf.String, error) {
	path, err := t.handle.Executable()
	if err != nil {
		return libpf.NullString, err
	}
	return libpf.Intern(path), nil
}

// GetProcessMeta returns a container id, so that the engine does not search for one below the
// process's root, and nothing else.
func (t *target) GetProcessMeta(process.MetaConfig) process.ProcessMeta {
	return process.ProcessMeta{ContainerID: libpf.Intern("-")}
}

// IterateMappings yields the executable mappings.
func (t *target) IterateMappings(yield func(process.RawMapping) bool) (uint32, error) {
	mappings, err := t.handle.ExecutableMemory()
	if errors.Is(err, procscan.ErrTooMany) {
		_ = t.skip(&process.RawMapping{Path: "further mappings"}, err)
	} else if err != nil {
		t.err = err
		if errors.Is(err, procscan.ErrGone) {
			err = fs.ErrNotExist // the engine forgets the process
		}
		return 0, err
	}
	if len(mappings) == 0 {
		t.err = process.ErrNoMappings
		return 0, t.err
	}
	for _, m := range mappings {
		raw, ok := t.engineMapping(m)
		if !ok {
			continue
		}
		t.mappings[m.Start] = m
		t.addFile(&raw)
		if !t.hasJVM && strings.HasSuffix(raw.Path, libjvm) {
			t.hasJVM, t.jvm = true, &raw
		}
		if !t.store(&raw, yield) {
			return 0, process.ErrCallbackStopped
		}
	}
	return 0, nil
}

// store has the engine store what is mapped. If it panics at that, this is an error of the process, unless it has
// locked itself: then the worker ends. What it has stored of other mappings it counts only when it has them all, and
// so it has to go on.
func (t *target) store(raw *process.RawMapping, yield func(process.RawMapping) bool) (goOn bool) {
	defer func() {
		if t.isLocked {
			return
		}
		if wrong := recover(); wrong != nil {
			t.err = engineError(wrong)
		}
	}()
	t.hideJVM(raw)
	goOn = t.files.store(mappedFile{raw.Device, raw.Inode}, time.Now(), func() bool { return yield(*raw) })
	t.isLocked = false
	return goOn
}

// engineMapping is rawMapping, but for a vDSO that is not the kernel's.
func (t *target) engineMapping(m procscan.Mapping) (process.RawMapping, bool) {
	raw, ok := t.rawMapping(m)
	if m.Path != "[vdso]" {
		return raw, ok
	}
	err := errVDSOBytes
	if ok {
		err = t.checkVDSO(&raw)
	}
	if err != nil {
		_ = t.skip(&raw, err)
	}
	return raw, err == nil
}

// addFile adds the file of a mapping to those in which a runtime may be, unless it is known: its mappings are next
// to each other.
func (t *target) addFile(raw *process.RawMapping) {
	last := len(t.mapped) - 1
	if !raw.IsFileBacked() || raw.Path == deltas.Trampolines || last >= 0 && t.mapped[last].Path == raw.Path {
		return
	}
	t.mapped = append(t.mapped, *raw)
}

// rawMapping converts a mapping. The engine caches what it knows of files by device and inode, for all
// processes, and of JVMs even what it has read from the memory of one of them. So that no user's
// process determines what is shown of another user's, these are not the real numbers but depend on
// the user.
func (t *target) rawMapping(m procscan.Mapping) (process.RawMapping, bool) {
	raw := process.RawMapping{
		Vaddr: m.Start, Length: m.End - m.Start, Flags: elf.PF_R | elf.PF_X, FileOffset: m.Offset, Path: m.Path,
	}
	switch {
	case m.Path == "[vdso]":
		raw.Path = process.VdsoPathName
		t.identify(&raw, []byte("vdso")) // a process may write to it
		return raw, raw.Length <= maxVDSOBytes
	case m.Path == "" || strings.HasPrefix(m.Path, "[anon:") || m.Path == "/dev/zero":
		raw.Path = ""
		if offset, are := t.trampolines(m); are {
			t.hasTrampolines, raw.Path, raw.FileOffset = true, deltas.Trampolines, offset
			raw.Length = min(raw.Length, deltas.MaxTrampolineBytes)
			t.identify(&raw, []byte(raw.Path))
		}
		return raw, true
	case !strings.HasPrefix(m.Path, "/"):
		return raw, false
	case strings.HasPrefix(m.Path, "/memfd:") && t.isELF(m):
		raw.Path = "/." + m.Path[1:] // of which the engine does not think that it is code that a compiler writes
	}
	var numbers [16]byte
	binary.LittleEndian.PutUint64(numbers[:], m.Dev)
	binary.LittleEndian.PutUint64(numbers[8:], m.Ino)
	t.identify(&raw, numbers[:])
	return raw, true
}

// maxMemoryFiles is how many memfds of a process are looked into in a synchronization. Compilers have
// one, with many mappings, or thousands, none of which is a library.
const maxMemoryFiles = 256

var errMemoryFiles = fmt.Errorf("the process has mapped more than %d memfds", maxMemoryFiles)

// isELF reports whether a memfd is a file as of a linker, and not code alone.
func (t *target) isELF(m procscan.Mapping) bool {
	known, looked := t.memoryFiles[m.Ino]
	if looked {
		return known
	}
	if len(t.memoryFiles) == maxMemoryFiles {
		_ = t.skip(&process.RawMapping{Path: "/memfd:"}, errMemoryFiles)
		return false
	}
	if file, err := t.handle.OpenMapped(m); err == nil {
		magic := make([]byte, len(elf.ELFMAG))
		_, err = file.ReadAt(magic, 0)
		known = err == nil && string(magic) == elf.ELFMAG
		file.Close()
	}
	t.memoryFiles[m.Ino] = known
	return known
}

// checkVDSO returns why what a process has mapped as the vDSO is not that of all processes, as far as that is known.
func (t *target) checkVDSO(raw *process.RawMapping) error {
	got, want := make([]byte, raw.Length), make([]byte, raw.Length)
	if err := t.remoteMemory().Read(libpf.Address(raw.Vaddr), got); err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	own := ownVDSO()
	if own == 0 {
		return nil
	}
	from := []unix.RemoteIovec{{Base: own, Len: len(want)}}
	to := []unix.Iovec{{Base: unsafe.SliceData(want)}}
	to[0].SetLen(len(want))
	n, err := unix.ProcessVMReadv(os.Getpid(), to, from, 0)
	switch {
	case err != nil:
		return fmt.Errorf("that of the kernel cannot be read: %w", err)
	case bytes.Equal(got, want[:n]):
		return nil
	case len(got) > elf.EI_CLASS && string(got[:len(elf.ELFMAG)]) == elf.ELFMAG &&
		elf.Class(got[elf.EI_CLASS]) == elf.ELFCLASS32:
		return errVDSO32
	}
	if id := buildID(got); id != nil && bytes.Equal(id, buildID(want)) {
		return errVDSOChanged
	}
	return errVDSO
}

// buildID returns the build id of a vDSO, nil if it has none.
func buildID(vdso []byte) []byte {
	file, err := elfsym.ParseFile(bytes.NewReader(vdso), int64(len(vdso)))
	if err != nil {
		return nil
	}
	return file.BuildID
}

// ownVDSO returns where this process has the vDSO, 0 if it has none.
func ownVDSO() uintptr {
	const sysinfoEHDR = 33
	entries, _ := unix.Auxv()
	for _, e := range entries {
		if e[0] == sysinfoEHDR {
			return e[1]
		}
	}
	return 0
}

// identify gives a mapping the numbers of what is mapped, for the user.
func (t *target) identify(raw *process.RawMapping, mapped []byte) {
	id := t.salted(mapped)
	raw.Device, raw.Inode = binary.LittleEndian.Uint64(id[:]), binary.LittleEndian.Uint64(id[8:])
}

// salted returns an id that depends on the user.
func (t *target) salted(of []byte) [16]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s ", len(t.user), t.user)
	h.Write(of)
	return [16]byte(h.Sum(nil))
}

// GetThreads is not used.
func (t *target) GetThreads() ([]process.ThreadInfo, error) { return nil, errors.ErrUnsupported }

// GetRemoteMemory returns the memory, which the engine reads as long as it knows the process. When it asks for it, it
// has locked itself.
func (t *target) GetRemoteMemory() remotememory.RemoteMemory {
	t.isLocked = true
	return t.remoteMemory()
}

func (t *target) remoteMemory() remotememory.RemoteMemory {
	return remotememory.RemoteMemory{ReaderAt: targetMemory{t}}
}

// targetMemory is the memory of a target as the engine reads it.
type targetMemory struct{ target *target }

func (m targetMemory) ReadAt(b []byte, at int64) (int, error) {
	if m.target.pages != nil {
		if err := m.target.budget.spendMemory(len(b)); err != nil { // what describes a JVM may be without end
			return 0, err
		}
		return m.target.pages.ReadAt(b, at)
	}
	return m.target.memory().ReadAt(b, at)
}

func (t *target) memory() *limitedReader {
	return &limitedReader{from: rawFile{t.mem}, budget: t.budget}
}

// readByPages calls a function during which each page of the memory is read once: the engine reads some 10,000
// descriptions of a JVM's types and fields, which lie side by side. What is read last may be older than what was
// read before: of a JVM that has just started, the engine may keep bounds of the code cache that are 0, which its
// programs do not use.
func (t *target) readByPages(p *pages, do func()) {
	p.begin(t.memory())
	t.pages, p.isWhole = p, true
	defer func() {
		t.pages = nil
		p.forget()
	}()
	do()
}

// skipRest notes if a request has ended before all was read. The engine takes that for what each file or memory has.
func (t *target) skipRest(p *pages) {
	if t.budget.isSpent() || p.isShort {
		_ = t.skip(&process.RawMapping{Path: "the rest"}, errBudget)
	}
}

// open opens the file of a mapping, unless its file system waits for a process. What cannot be opened is read from
// the memory of the process, where that does not wait either.
func (t *target) open(raw *process.RawMapping) (*openFile, error) {
	m, ok := t.mappings[raw.Vaddr]
	if !ok {
		return nil, fs.ErrNotExist
	}
	err := t.checkFileSystem(m)
	if err == nil {
		var file *os.File
		if file, err = t.handle.OpenMapped(m); err == nil {
			return sized(file)
		}
	}
	if !readFromMemory(err) {
		return nil, err
	}
	file, errMemory := t.openInMemory(m)
	if errMemory != nil {
		return nil, fmt.Errorf("%w; in memory: %w", err, errMemory)
	}
	return file, nil
}

// checkFileSystem returns an error of a mapping whose file system may wait for a process.
func (t *target) checkFileSystem(m procscan.Mapping) error {
	if t.systems == nil {
		t.systems = t.opener.FileSystems(t.handle.Identity().PID)
	}
	return t.systems.Check(m.Dev)
}

// maxOpens bounds what is known of files that were opened. A host has some hundred.
const maxOpens = 4096

// openedAs identifies a file that could be opened, and its last change: it need not be tried again for each process
// that maps it. What cannot be opened is read from the memory of each.
type openedAs struct {
	dev, ino uint64
	changed  int64
}

func newOpenedAs(stat *unix.Stat_t) openedAs { return openedAs{stat.Dev, stat.Ino, stat.Ctim.Nano()} }

// sized bounds the size of a file.
func sized(file *os.File) (*openFile, error) {
	info, err := file.Stat()
	if err == nil && info.Size() > maxFileBytes {
		err = errFileSize
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &openFile{rawFile{file}, info.Size(), file}, nil
}

// opened is open, with what comes of it counted.
func (t *target) opened(raw *process.RawMapping) (*openFile, error) {
	if !raw.IsFileBacked() {
		return nil, fs.ErrInvalid
	}
	file, err := t.open(raw)
	if err != nil {
		return nil, t.skip(raw, err)
	}
	return file, nil
}

// skip notes that what is mapped is not read, and why. It returns that.
func (t *target) skip(raw *process.RawMapping, err error) error {
	what := skipped{inode: raw.Inode}
	if what.inode == 0 {
		what.reason = err.Error()
	}
	t.skipped[what] = struct{}{}
	if t.failure == nil {
		t.failure = fmt.Errorf("reading %s: %w", raw.Path, err)
	}
	return err
}

// unreadText says which file was not read, the first one if there are more; "" if all were.
func (t *target) unreadText() string {
	if t.failure == nil {
		return ""
	}
	return "callers beyond code that is not read are missing: " + failureText(t.failure)
}

// OpenMappingFile opens the file of a mapping.
func (t *target) OpenMappingFile(raw *process.RawMapping) (process.ReadAtCloser, error) {
	if raw.Path == deltas.Trampolines {
		return notClosed{trampolinesFile()}, nil
	}
	file, err := t.opened(raw)
	if err != nil {
		return nil, err
	}
	if t.own != "" && raw.Path == t.own {
		defer file.Close()
		segments, err := segmentsOf(file)
		return notClosed{segments}, err
	}
	patches, err := elfPatches(file)
	if err != nil {
		file.Close()
		return nil, t.skip(raw, err)
	}
	return &limitedReader{file, t.budget, patches, &t.isLocked}, nil
}

// notClosed is a file in memory.
type notClosed struct{ *bytes.Reader }

func (notClosed) Close() error { return nil }

// GetMappingFileLastModified returns the time of the last change, which the owner of a file cannot set.
func (t *target) GetMappingFileLastModified(raw *process.RawMapping) int64 {
	if raw.Path == deltas.Trampolines {
		return 0
	}
	if m, ok := t.mappings[raw.Vaddr]; ok && raw.IsFileBacked() && t.checkFileSystem(m) == nil {
		stat, err := t.handle.StatMapped(m)
		if _, known := t.opens[newOpenedAs(&stat)]; known && err == nil {
			return stat.Ctim.Nano()
		}
	}
	file, err := t.opened(raw)
	if err != nil {
		return 0
	}
	defer file.Close()
	if file.file == nil {
		return -1 - int64(t.number) // nothing says that what another process has mapped is the same
	}
	var stat unix.Stat_t
	if unix.Fstat(int(file.file.Fd()), &stat) != nil {
		return 0
	}
	if len(t.opens) == maxOpens {
		clear(t.opens)
	}
	if t.opens != nil {
		t.opens[newOpenedAs(&stat)] = struct{}{}
	}
	return stat.Ctim.Nano()
}

// CalculateMappingFileID returns an id of a file that depends on its start, end and size, and on the
// user: see rawMapping.
func (t *target) CalculateMappingFileID(raw *process.RawMapping) (libpf.FileID, error) {
	if raw.Path == deltas.Trampolines {
		return t.trampolinesID(), nil
	}
	var contents io.ReadSeeker
	if raw.IsVDSO() {
		b := make([]byte, raw.Length)
		if err := t.remoteMemory().Read(libpf.Address(raw.Vaddr), b); err != nil {
			return libpf.FileID{}, err
		}
		contents = bytes.NewReader(b)
	} else {
		file, err := t.opened(raw)
		if err != nil {
			return libpf.FileID{}, err
		}
		defer file.Close()
		contents = io.NewSectionReader(file, 0, file.size)
	}
	id, err := libpf.FileIDFromExecutableReader(contents)
	if err != nil {
		return libpf.FileID{}, err
	}
	salted := t.salted(id.Bytes())
	return libpf.FileIDFromBytes(salted[:])
}

// OpenELF would open a file at a path of the process. None is needed: debug links are not followed.
func (t *target) OpenELF(string) (*pfelf.File, error) { return nil, fs.ErrNotExist }

// Close does nothing: a target stays open as long as the engine knows the process.
func (t *target) Close() error { return nil }

// limitedReader reads as far as the budget allows.
type limitedReader struct {
	from     process.ReadAtCloser
	budget   *budget
	patches  []patch // see elfPatches
	isLocked *bool   // see target; nil: of memory
}

// ReadAt panics if it is called again and again where nothing more is read, see target.store.
func (r *limitedReader) ReadAt(b []byte, at int64) (int, error) {
	if err := r.budget.spend(len(b)); err != nil {
		if r.isLocked != nil && !*r.isLocked && r.budget.reads.Load() < -maxFailedReads {
			panic(err)
		}
		return 0, err
	}
	n, err := r.from.ReadAt(b, at)
	apply(r.patches, b[:n], at)
	return n, err
}

// rawFile is a file that is read without telling the Go runtime: its monitor thread would wake up, though nothing else
// is to be done in a worker meanwhile.
type rawFile struct{ *os.File }

func (f rawFile) ReadAt(b []byte, at int64) (n int, err error) {
	defer runtime.KeepAlive(f.File)
	fd := f.Fd()
	for n < len(b) {
		got, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, fd, uintptr(unsafe.Pointer(&b[n])), uintptr(len(b)-n),
			uintptr(at)+uintptr(n), 0, 0)
		switch {
		case errors.Is(errno, unix.EINTR):
		case errno != 0:
			return n, os.NewSyscallError("pread", errno)
		case got == 0:
			return n, io.EOF
		default:
			n += int(got)
		}
	}
	return n, nil
}

// Close closes the file.
func (r *limitedReader) Close() error { return r.from.Close() }

// goneTarget has the engine forget a process.
type goneTarget struct {
	*target
	kernelPID uint32
}

func (t goneTarget) PID() libpf.PID                { return libpf.PID(t.kernelPID) }
func (t goneTarget) GetExe() (libpf.String, error) { return libpf.NullString, fs.ErrNotExist }

func (t goneTarget) GetProcessMeta(process.MetaConfig) process.ProcessMeta {
	return (*target)(nil).GetProcessMeta(process.MetaConfig{})
}

func (t goneTarget) IterateMappings(func(process.RawMapping) bool) (uint32, error) {
	return 0, fs.ErrNotExist
}

func (t goneTarget) GetRemoteMemory() remotememory.RemoteMemory {
	return remotememory.RemoteMemory{ReaderAt: bytes.NewReader(nil)}
}
