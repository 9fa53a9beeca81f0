package symbols

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// All addresses in one symbol share its name, without the version.
func TestSharedName(t *testing.T) {
	full, _, _ := build(t)
	e, _ := open(t, full)
	all := make([]uint64, 64<<10)
	for i := range all {
		all[i] = uint64(i)
	}
	q := NewQuery(all)
	assert.NilError(t, q.ReadTable(e.Static))
	texts := make(map[*byte]string)
	for _, name := range q.names {
		assert.Check(t, !strings.Contains(name, "@"), "%q", name)
		if name != "" {
			texts[unsafe.StringData(name)] = name
		}
	}
	distinct := make(map[string]struct{})
	for _, text := range texts {
		distinct[text] = struct{}{}
	}
	assert.Check(t, len(texts) == len(distinct) && len(texts) >= 3, "%d texts for %d names", len(texts), len(distinct))
	runtime.KeepAlive(q)
}

func TestWithoutVersion(t *testing.T) {
	for name, want := range map[string]string{"memcpy@@GLIBC_2.14": "memcpy", "read@GLIBC_2.2.5": "read", "f": "f",
		"@f": "@f", "": ""} {
		got := string(withoutVersion([]byte(name)))
		assert.Check(t, got == want, "%q: %q, want %q", name, got, want)
	}
}

// Budgets are used together: what exceeds one takes nothing from the other.
func TestBudgets(t *testing.T) {
	small, large := NewBudget(2*addressBytes+5), NewBudget(1000)
	q := NewQuery([]uint64{0x10, 0x20}, large, small)
	err := q.ReadPerfMap(strings.NewReader("10 1 abcde\n"), 11)
	assert.Check(t, err == nil && q.Name(0x10) == "abcde" && !q.OverBudget(), err)
	err = q.ReadPerfMap(strings.NewReader("20 1 a\n"), 7)
	assert.Check(t, errors.Is(err, elfsym.ErrLimit) && q.Name(0x20) == "" && q.OverBudget(), err)
	if q := NewQuery([]uint64{0x10}, large, small); len(q.addrs) != 0 || !q.OverBudget() {
		t.Errorf("%v", q)
	}
	left := large.left.Load()
	assert.Check(t, left == 1000-2*addressBytes-5 && small.left.Load() == 0, "%d left", left)
}

// Reads fail once the context has ended.
func TestUntil(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := Until(ctx, bytes.NewReader([]byte("text")))
	_, err := r.ReadAt(make([]byte, 4), 0)
	assert.Check(t, err)
	cancel()
	_, err = r.ReadAt(make([]byte, 4), 0)
	assert.Check(t, errors.Is(err, context.Canceled), err)
}

func TestFileSystems(t *testing.T) {
	known := &FileSystems{types: make(map[uint64]string)}
	known.read(strings.NewReader(`22 27 0:21 / /proc rw,relatime - proc proc rw
36 35 0:42 / /home/a\040b rw shared:1 master:2 - fuse.sshfs host:/ rw
37 35 8:1 / / rw - ext4 /dev/sda1 rw
38 35 8:2 / /n rw - fuseblk /dev/sda2 rw
39 35 0:43 / /nfs rw - nfs4 host:/ rw
40 35 0:44 / / rw - overlay overlay rw
nonsense
41 35 x:y / / rw - ext4 x rw
`))
	for dev, foreign := range map[uint64]bool{21: false, 42: true, 8<<8 | 1: false, 8<<8 | 2: true, 43: true,
		44: false, 45: true, 8<<8 | 3: false} {
		err := known.Check(dev)
		assert.Check(t, errors.Is(err, procscan.ErrFileSystem) == foreign, "%d: %v", dev, err)
	}
	assert.Check(t, len(known.types) == 6, known)
	// The rest of a list without end is not read: what is mapped from there counts as not mounted.
	const first, second = "1 0 0:50 / / rw - tmpfs tmpfs rw\n", "2 0 0:51 / / rw - tmpfs tmpfs rw\n"
	known.read(strings.NewReader(first + strings.Repeat("\n", maxMountBytes-len(first)) + second))
	assert.Check(t, known.Check(50) == nil && errors.Is(known.Check(51), ErrNotMounted), known)
	// What this very program is mapped from is known, by the table of the process, else by our own.
	procFS, err := os.Stat("/proc/self/maps")
	assert.NilError(t, err)
	dev := procFS.Sys().(*syscall.Stat_t).Dev
	for _, pid := range []int{os.Getpid(), 1 << 30} {
		systems := (Opener{ProcRoot: "/proc"}).FileSystems(pid)
		assert.Check(t, systems.typeOf(dev) == "proc", "of process %d: %v", pid, systems)
		assert.Check(t, (len(systems.tables) == 2) == (pid == os.Getpid()), "of process %d: %v", pid, systems)
	}
}

// What the host has mounted is read for all processes, and again after a while; what a process has mounted is read for
// it alone, as it can unmount that.
func TestMounts(t *testing.T) {
	mounts, proc := &Mounts{}, t.TempDir()
	table := func(whose, mounted string) { testenv.WriteFile(t, filepath.Join(proc, whose, "mountinfo"), mounted) }
	table("1", "1 0 0:101 / / rw - ext4 a rw\n")
	table("self", "1 0 0:102 / / rw - overlay a rw\n")
	table("10", "1 0 0:102 / / rw - overlay a rw\n1 0 0:103 / /a rw - tmpfs a rw\n")
	table("11", "1 0 0:103 / /a rw - fuse a rw\n")
	opener := Opener{ProcRoot: proc, Mounts: mounts}
	expect := func(pid, unread int, want ...string) {
		t.Helper()
		f := opener.FileSystems(pid)
		for i, want := range want {
			got := f.typeOf(unix.Mkdev(0, uint32(101+i)))
			assert.Check(t, got == want, "%d of %d: %q", 101+i, pid, got)
		}
		assert.Check(t, len(f.tables) == unread, f)
	}
	expect(10, 1, "ext4", "overlay")
	expect(10, 0, "ext4", "overlay", "tmpfs")
	expect(11, 0, "ext4", "overlay", "fuse")
	table("1", "1 0 0:101 / / rw - xfs a rw\n")
	assert.Check(t, !mounts.until.IsZero())
	mounts.until = time.Now().Add(time.Hour)
	expect(11, 1, "ext4")
	mounts.until = time.Time{}
	expect(11, 1, "xfs", "overlay")
}
