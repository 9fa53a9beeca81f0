package bpf

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/safedir"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// mountBPF mounts a bpf file system in a mount namespace of the calling goroutine's thread, and
// returns a directory in it. The thread ends with the goroutine.
func mountBPF(t *testing.T) string {
	t.Helper()
	testenv.NeedRoot(t)
	dir := t.TempDir()
	runtime.LockOSThread()
	assert.NilError(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	assert.NilError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	assert.NilError(t, unix.Mount("bpf", dir, "bpf", 0, "mode=0700"))
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return filepath.Join(dir, "correlator")
}

// Another program that includes correlator.h and uses the pinned table reads the same context of
// every thread as the sampler, wherever the thread-local variable is placed.
func TestConsumer(t *testing.T) {
	dir := mountBPF(t)
	s := openSampler(t, SamplerOptions{PinDir: dir, BySpan: true})
	consumer := openConsumer(t, dir, noChange)
	for _, flavor := range demo.Flavors() {
		t.Run(flavor.String(), func(t *testing.T) { testConsumer(t, s, consumer, flavor) })
	}
}

// Kernels before 5.11 have no typed pointer to the current task.
func TestConsumerWithoutTypedTask(t *testing.T) {
	dir := mountBPF(t)
	s := openSampler(t, SamplerOptions{PinDir: dir, BySpan: true})
	consumer := openConsumer(t, dir, func(spec *ebpf.CollectionSpec) {
		asked := 0
		instructions := spec.Programs["look"].Instructions
		for i := range instructions {
			if relocation := btf.CORERelocationMetadata(&instructions[i]); relocation != nil &&
				strings.Contains(relocation.String(), "enumval_exists") {
				symbol := instructions[i].Symbol()
				instructions[i].Metadata = asm.Metadata{}
				instructions[i] = instructions[i].WithSymbol(symbol)
				instructions[i].Constant = 0
				asked++
			}
		}
		assert.Check(t, asked != 0, "the program does not check for it")
	})
	testConsumer(t, s, consumer, demo.GlibcDynamic)
}

func testConsumer(t *testing.T, s *Sampler, consumer *consumer, flavor demo.Flavor) {
	p := demo.Start(t, demo.Options{Flavor: flavor, Busy: 2, Manual: true})
	target := addDemo(t, s, p)
	for thread := 1; thread <= 2; thread++ {
		context := p.Begin(thread)
		sampleThread(t, consumer.Look, context.Thread.TID, time.Millisecond)
		waitForContext(t, consumer.Seen, context, target)
		waitForCount(t, s, context)
	}
}

type consumer struct {
	Look    *ebpf.Program `ebpf:"look"`
	Targets *ebpf.Map     `ebpf:"targets"`
	Seen    *ebpf.Map     `ebpf:"seen"`
	Records *ebpf.Map     `ebpf:"records"`
}

func noChange(*ebpf.CollectionSpec) {}

// openConsumer loads the other program with the pinned table.
func openConsumer(t *testing.T, dir string, change func(*ebpf.CollectionSpec)) *consumer {
	t.Helper()
	table, err := ebpf.LoadPinnedMap(filepath.Join(dir, "targets"), nil)
	assert.NilError(t, err)
	defer table.Close()
	spec := compileProgram(t, "consumer")
	change(spec)
	spec.Maps["targets"].MaxEntries = table.MaxEntries()
	c := new(consumer)
	options := &ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{"targets": table}}
	assert.NilError(t, spec.LoadAndAssign(c, options))
	t.Cleanup(func() {
		c.Look.Close()
		c.Targets.Close()
		c.Seen.Close()
		c.Records.Close()
	})
	return c
}

// waitForContext waits until the program has seen the thread in its transaction. The value is a
// struct correlator_context.
func waitForContext(t *testing.T, seen *ebpf.Map, want demo.Context, target Target) {
	t.Helper()
	var value [unsafe.Sizeof(samplerScratch{}.Context)]byte
	testenv.Poll(t, waiting, "the context of a thread", func() bool {
		err := seen.Lookup(uint32(want.Thread.TID), &value)
		return err == nil && demo.TraceID(value[32:48]) == want.TraceID
	})
	if demo.SpanID(value[48:56]) != want.SpanID || demo.TransactionID(value[56:64]) != want.TransactionID ||
		binary.NativeEndian.Uint32(value[:]) != uint32(target) ||
		binary.NativeEndian.Uint64(value[16:]) != want.Thread.ThreadPointer {
		t.Errorf("context %x, thread %+v", value, want)
	}
}

func waitForCount(t *testing.T, s *Sampler, want demo.Context) {
	t.Helper()
	found := false
	testenv.Poll(t, waiting, "the same context from the sampler", func() bool {
		for _, c := range drainAll(t, s) {
			found = found || c.TraceID == want.TraceID && c.TransactionID == want.TransactionID &&
				c.SpanID == want.SpanID
		}
		return found
	})
}

// The pinned table stays when the sampler is closed, empty, and the next sampler uses it.
func TestPinnedTableStays(t *testing.T) {
	dir := mountBPF(t)
	path := filepath.Join(dir, "targets")
	needSampler(t)
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	open := func(maxTargets int) *Sampler {
		t.Helper()
		s, err := OpenSampler(SamplerOptions{SamplesPerSecond: 1000, MaxTargets: maxTargets, PinDir: dir})
		assert.NilError(t, err)
		return s
	}
	closeSampler := func(s *Sampler) {
		t.Helper()
		assert.NilError(t, s.Close())
	}
	var held *ebpf.Map
	verify := func(state string, want int) {
		t.Helper()
		n := entries(t, held)
		assert.Check(t, n == want, "%s: %d entries, not %d", state, n, want)
	}
	leaveBehind := func() {
		t.Helper()
		assert.NilError(t, held.Put(uint32(1), &samplerCorrelatorTarget{}))
	}

	first := open(8)
	addDemo(t, first, p)
	held, err := ebpf.LoadPinnedMap(path, nil)
	assert.NilError(t, err)
	defer held.Close()
	verify("one target", 1)
	_, err = OpenSampler(SamplerOptions{SamplesPerSecond: 1000, PinDir: dir})
	assert.Check(t, errors.Is(err, unix.EWOULDBLOCK), "two samplers at a time: %v", err)
	verify("after another sampler was refused", 1)
	closeSampler(first)
	verify("closed", 0)

	leaveBehind() // as after a sampler was killed
	second := open(8)
	verify("opened again", 0)
	addDemo(t, second, p)
	verify("one target again", 1)
	waitForOutcome(t, second, Correlated)
	closeSampler(second)
	verify("closed again", 0)

	leaveBehind()
	third := open(9) // another size: another table
	defer closeSampler(third)
	verify("replaced", 0)
	addDemo(t, third, p)
	verify("replaced, one target", 0)
	if pinned, err := ebpf.LoadPinnedMap(path, nil); err != nil || entries(t, pinned) != 1 || pinned.MaxEntries() != 9 {
		t.Errorf("pinned now: %v, %v", pinned, err)
	}
}

func entries(t *testing.T, table *ebpf.Map) (n int) {
	t.Helper()
	var key uint32
	var value samplerCorrelatorTarget
	all := table.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	assert.NilError(t, all.Err())
	return n
}

func TestPinDirOnAnotherFileSystem(t *testing.T) {
	testenv.NeedRoot(t)
	openSampler(t, SamplerOptions{})
	dir := filepath.Join(t.TempDir(), "maps")
	_, err := OpenSampler(SamplerOptions{SamplesPerSecond: 1, PinDir: dir})
	var missing *MissingError
	assert.Check(t, errors.As(err, &missing) && missing.Feature == "a bpf file system at "+dir, "error %v", err)
	_, err = os.Stat(dir)
	assert.Check(t, errors.Is(err, fs.ErrNotExist), "the directory was created: %v", err)
}

// In a bpf file system that everybody may write to, as mount(8) makes it, another user who is there
// first gets neither the directory of the table nor the table.
func TestPinDirOfAnother(t *testing.T) {
	openSampler(t, SamplerOptions{SamplesPerSecond: 1}).Stop()
	dir := mountBPF(t)
	shared := filepath.Dir(dir)
	assert.NilError(t, os.Chmod(shared, os.ModeSticky|0o777))
	opened, err := os.Open(shared)
	assert.NilError(t, err)
	defer opened.Close()
	mkdir := exec.Command(testenv.NeedTool(t, "mkdir"), "/proc/self/fd/3/"+filepath.Base(dir))
	mkdir.ExtraFiles = []*os.File{opened} // its path leads through a directory that only root may enter
	mkdir.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testenv.Attacker}}
	out, err := mkdir.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	refused := func(dir, problem string) {
		t.Helper()
		s, err := OpenSampler(SamplerOptions{PinDir: dir})
		if err == nil {
			s.Close()
		}
		for _, err := range []error{err, ProbePinDir(dir)} {
			unsafe := (*safedir.UnsafeError)(nil)
			assert.Check(t, errors.As(err, &unsafe) && strings.Contains(unsafe.Problem, problem),
				"%v, want one that says: %s", err, problem)
		}
	}
	refused(dir, dir+" belongs to user 1000")
	refused(shared, shared+" (mode 1777) is open to other users")
	entries, err := os.ReadDir(dir)
	assert.Check(t, err == nil && len(entries) == 0, "pinned there: %v, %v", entries, err)

	// As a user with CAP_BPF can, or every user where kernel.unprivileged_bpf_disabled is 0, before
	// the mode is changed.
	assert.NilError(t, os.Chmod(shared, 0o700))
	s, err := OpenSampler(SamplerOptions{PinDir: shared})
	assert.NilError(t, err)
	assert.NilError(t, s.Close())
	table := filepath.Join(shared, "targets")
	assert.NilError(t, os.Chown(table, testenv.Attacker, testenv.Attacker))
	refused(shared, table+" belongs to user 1000")
}

// Another user who may open the directory of the table could lock it, so it is refused; who may not
// open it cannot.
func TestPinDirLockedByAnother(t *testing.T) {
	dir := mountBPF(t)
	assert.NilError(t, os.Chmod(filepath.Dir(dir), 0o755))
	assert.NilError(t, os.Mkdir(dir, 0o700))
	for _, mode := range []os.FileMode{0o755, 0o750, 0o701, 0o704, 0o700} {
		assert.NilError(t, os.Chmod(dir, mode))
		locked, unlock := lockAsAnother(t, dir)
		if want := mode&0o004 != 0; locked != want {
			t.Errorf("mode %04o: another user could lock the directory: %v, want %v", mode, locked, want)
		}
		d, err := openPinDir(dir)
		if err == nil {
			d.Close()
		}
		for _, err := range []error{err, ProbePinDir(dir)} {
			unsafe := (*safedir.UnsafeError)(nil)
			switch {
			case mode == 0o700 && err != nil:
				t.Errorf("mode %04o: %v", mode, err)
			case mode != 0o700 && (!errors.As(err, &unsafe) || !strings.Contains(unsafe.Remedy, "chmod 0700 "+dir)):
				t.Errorf("mode %04o: %v, want one that says: chmod 0700 %s", mode, err, dir)
			}
		}
		unlock()
	}
}

// lockAsAnother locks a directory as another user if that may open it. The lock ends with unlock.
func lockAsAnother(t *testing.T, dir string) (locked bool, unlock func()) {
	t.Helper()
	parent, err := os.Open(filepath.Dir(dir)) // below a directory that only root may enter
	assert.NilError(t, err)
	defer parent.Close()
	cmd := exec.Command(testenv.NeedTool(t, "flock"), "--shared", "--nonblock", "/proc/self/fd/3/"+filepath.Base(dir),
		"sh", "-c", "echo locked && exec cat")
	cmd.ExtraFiles = []*os.File{parent}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testenv.Attacker,
		Gid: testenv.Attacker}}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	assert.NilError(t, errors.Join(err1, err2, cmd.Start()))
	said, _ := io.ReadFull(stdout, make([]byte, len("locked")))
	return said > 0, func() {
		stdin.Close()
		_ = cmd.Wait() // fails where it could not lock
	}
}
