package demo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestHostileStorage(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{Manual: true})
	unreadable := func(address uint64) bool { return !readable(p.PID, address) }
	start := func(address uint64) string { return string(readMemory(t, p.PID, address, 8)) }
	for kind, holds := range map[string]func(address uint64) bool{
		"storage-unmapped": unreadable,
		"storage-wild":     unreadable,
		"storage-edge":     func(a uint64) bool { return !unreadable(a) && unreadable(a+uint64(os.Getpagesize())) },
		"storage-version":  func(a uint64) bool { return strings.HasPrefix(start(a), "\x00\x00\x04\x00\x00\x00") },
		"storage-length":   func(a uint64) bool { return strings.HasPrefix(start(a), "\x01\x00\xff\xff\xff\xff") },
		"storage-utf8":     func(a uint64) bool { return string(readMemory(t, p.PID, a+10, 2)) == "\xff\xfe" },
	} {
		published := p.Hostile(kind, "")
		assert.Check(t, holds(published.Storage), "%s does not hold at %#x", kind, published.Storage)
	}
	assert.Check(t, p.Command(nil, "hostile", "storage-kind") != nil, "a kind that does not exist was accepted")
}

func TestHostileSockets(t *testing.T) {
	p := Start(t, Options{})
	storedPath := func(storage uint64) string {
		at := storage + 2
		for range 2 { // service name and environment
			at += 4 + uint64(binary.NativeEndian.Uint32(readMemory(t, p.PID, at, 4)))
		}
		n := binary.NativeEndian.Uint32(readMemory(t, p.PID, at, 4))
		if n == 0 {
			return ""
		}
		return string(readMemory(t, p.PID, at+4, int(n)))
	}
	for kind, mode := range map[string]os.FileMode{
		"socket-fifo":      os.ModeNamedPipe,
		"socket-directory": os.ModeDir,
		"socket-file":      0,
		"socket-stream":    os.ModeSocket,
		"socket-forbidden": os.ModeSocket,
		"socket-symlink":   os.ModeSymlink,
	} {
		path := storedPath(p.Hostile(kind, "/run/elsewhere.socket").Storage)
		info, err := os.Lstat(path)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		} else if got := info.Mode().Type(); got != mode {
			t.Errorf("%s: %v is at the path, not %v", kind, got, mode)
		} else if forbidden := info.Mode().Perm() == 0; forbidden != (kind == "socket-forbidden") {
			t.Errorf("%s: mode %v", kind, info.Mode())
		}
	}
	if path := storedPath(p.Hostile("socket-missing", "").Storage); !strings.HasPrefix(path, p.Dir) {
		t.Errorf("missing socket at %q", path)
	} else if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing socket: %v", err)
	}
	path := storedPath(p.Hostile("socket-empty", "").Storage)
	assert.Check(t, path == "", "empty path is %q", path)
	path = storedPath(p.Hostile("socket-relative", "").Storage)
	assert.Check(t, path == "relative.socket", "relative path is %q", path)
	path = storedPath(p.Hostile("socket-nul", "").Storage)
	assert.Check(t, strings.Count(path, "\x00") == 1, "path with a zero byte is %q", path)
}

func TestSpoiledSlots(t *testing.T) {
	p := Start(t, Options{Idle: 1, Manual: true})
	for kind, holds := range map[string]func(slot uint64) bool{
		"slot-null":     func(slot uint64) bool { return slot == 0 },
		"slot-unmapped": func(slot uint64) bool { return !readable(p.PID, slot) },
		"slot-wild":     func(slot uint64) bool { return !readable(p.PID, slot) },
		"slot-edge":     func(slot uint64) bool { return readable(p.PID, slot+4) && !readable(p.PID, slot+5) },
		"slot-updating": func(slot uint64) bool { return readMemory(t, p.PID, slot, 37)[2] == 0 },
		"slot-version":  func(slot uint64) bool { return string(readMemory(t, p.PID, slot, 3)) == "\x00\x00\x01" },
		"slot-junk": func(slot uint64) bool {
			return bytes.Equal(readMemory(t, p.PID, slot, 37), bytes.Repeat([]byte{0xff}, 37))
		},
	} {
		p.Begin(1)
		p.Spoil(1, kind)
		thread := p.Threads()[1]
		held := readWord(t, p.PID, thread.Variable)
		assert.Check(t, held == thread.Slot && holds(held), "%s does not hold at %#x of %+v", kind, held, thread)
		context := p.Begin(1)
		slot := readMemory(t, p.PID, context.Thread.Slot, 37)
		assert.Check(t, slot[2] == 1 && bytes.Equal(slot[5:21], context.TraceID[:]),
			"after %s and another transaction, the slot is %x", kind, slot)
	}
}

func readable(pid int, address uint64) bool {
	data := make([]byte, 1)
	n, _ := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &data[0], Len: 1}},
		[]unix.RemoteIovec{{Base: uintptr(address), Len: 1}}, 0)
	return n == 1
}
