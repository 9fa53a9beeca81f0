package symbols

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"correlator/elfsym"
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
	if err := q.ReadTable(e.Static); err != nil {
		t.Fatal(err)
	}
	texts := make(map[*byte]string)
	for _, name := range q.names {
		if strings.Contains(name, "@") {
			t.Errorf("%q", name)
		}
		if name != "" {
			texts[unsafe.StringData(name)] = name
		}
	}
	distinct := make(map[string]struct{})
	for _, text := range texts {
		distinct[text] = struct{}{}
	}
	if len(texts) != len(distinct) || len(texts) < 3 {
		t.Errorf("%d texts for %d names", len(texts), len(distinct))
	}
	runtime.KeepAlive(q)
}

func TestWithoutVersion(t *testing.T) {
	for name, want := range map[string]string{"memcpy@@GLIBC_2.14": "memcpy", "read@GLIBC_2.2.5": "read", "f": "f",
		"@f": "@f", "": ""} {
		if got := string(withoutVersion([]byte(name))); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// Budgets are used together: what exceeds one takes nothing from the other.
func TestBudgets(t *testing.T) {
	small, large := NewBudget(2*addressBytes+5), NewBudget(1000)
	q := NewQuery([]uint64{0x10, 0x20}, large, small)
	if err := q.ReadPerfMap(strings.NewReader("10 1 abcde\n"), 11); err != nil || q.Name(0x10) != "abcde" ||
		q.OverBudget() {
		t.Errorf("%v", err)
	}
	if err := q.ReadPerfMap(strings.NewReader("20 1 a\n"), 7); !errors.Is(err, elfsym.ErrLimit) || q.Name(0x20) != "" ||
		!q.OverBudget() {
		t.Errorf("%v", err)
	}
	if q := NewQuery([]uint64{0x10}, large, small); len(q.addrs) != 0 || !q.OverBudget() {
		t.Errorf("%v", q)
	}
	if left := large.left.Load(); left != 1000-2*addressBytes-5 || small.left.Load() != 0 {
		t.Errorf("%d left", left)
	}
}

// Reads fail once the context has ended.
func TestUntil(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := Until(ctx, bytes.NewReader([]byte("text")))
	if _, err := r.ReadAt(make([]byte, 4), 0); err != nil {
		t.Error(err)
	}
	cancel()
	if _, err := r.ReadAt(make([]byte, 4), 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFileSystems(t *testing.T) {
	known := make(FileSystems)
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
		if err := known.Check(dev); errors.Is(err, ErrFileSystem) != foreign {
			t.Errorf("%d: %v", dev, err)
		}
	}
	if len(known) != 6 {
		t.Errorf("%v", known)
	}
	// What this very program is mapped from is known.
	if own := (Opener{ProcRoot: "/proc"}).FileSystems(os.Getpid()); len(own) == 0 {
		t.Error("no file systems")
	}
}
