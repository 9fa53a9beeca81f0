package memread

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// onThread runs f on a thread of its own that ends with it, so that what f takes away from itself
// affects no other thread.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread dies with the goroutine
		f()
	}()
	<-done
}

// refuseReadv makes process_vm_readv fail with errno on the calling thread.
func refuseReadv(errno unix.Errno) error {
	return testenv.RefuseCalls(map[uint32]unix.Errno{unix.SYS_PROCESS_VM_READV: errno})
}

func TestReadvRefused(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			child := newPuppet(t)
			base := child.mapPages(1)
			child.write(0, 0, []byte("content"))
			process := child.open()
			buf := make([]byte, 7)
			onThread(func() {
				if err := refuseReadv(errno); err != nil {
					t.Error("installing the filter:", err)
					return
				}
				_, err := unix.ProcessVMReadv(child.pid(), nil, nil, 0)
				assert.Check(t, err == errno, "process_vm_readv: %v", err)
				n, err := process.Read(base, buf)
				assert.Check(t, err == nil && n == 7 && string(buf) == "content", "read %d bytes, %q, %v", n, buf, err)
				remembered := process.mem
				reqs := []Request{
					{Addr: base - 1, Buf: make([]byte, 8)},
					{Addr: base + smallestPage - 3, Buf: make([]byte, 8)},
					{Addr: base, Buf: make([]byte, 7)},
				}
				assert.Check(t, process.ReadBatch(reqs))
				assert.Check(t, reqs[0].N == 0 && reqs[1].N == 3 && reqs[2].N == 7 && bytes.Equal(reqs[2].Buf, buf),
					"batch: %+v", reqs)
				assert.Check(t, process.mem != nil && process.mem == remembered, "the way was not remembered")
				child.kill()
				_, err = process.Read(base, buf)
				assert.Check(t, errors.Is(err, ErrGone), "after the end of the process: %v", err)
				_, err = child.open().Read(base, buf)
				assert.Check(t, errors.Is(err, ErrGone), "opened after the end of the process: %v", err)
			})
		})
	}
}

func TestDenied(t *testing.T) {
	testenv.NeedRoot(t)
	child := newPuppet(t)
	base := child.mapPages(1)
	process := child.open()
	onThread(func() {
		// The bare call, because that of package syscall changes every thread.
		const nobody = 65534
		if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); err != 0 {
			t.Error("becoming another user:", err)
			return
		}
		expectAll(t, readAll(process, base), ErrDenied)
	})
	// It is not remembered: what was denied may be permitted later.
	_, err := process.Read(base, make([]byte, 8))
	assert.Check(t, err)
}
