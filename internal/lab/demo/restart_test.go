package demo

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// With a fixed layout and its socket a process that executes its program again is what it was, but
// for its traces.
func TestRestart(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{Manual: true, Idle: 1, Placement: Placement{FixedLayout: true}})
	context, loaded, published := p.Begin(1), p.Loaded(), p.Published()
	inode := func() uint64 {
		var stat unix.Stat_t
		assert.NilError(t, unix.Stat(p.HostPath(p.Socket), &stat))
		return stat.Ino
	}
	socket := inode()
	connection := connect(t, p)
	p.Restart(true)
	if p.Loaded().Base != loaded.Base || p.Published().Storage != published.Storage || inode() != socket {
		t.Errorf("library, storage or socket is elsewhere: %+v, %+v", p.Loaded(), p.Published())
	}
	again := p.Begin(1)
	assert.Check(t, again.TraceID != context.TraceID, "the new program has a trace of the former")
	send(t, connection, unhex(t, registration), unhex(t,
		correlation(again.TraceID, again.TransactionID, stackA, "0100")))
	p.ReportWhen("messages at the socket that was kept", func(report Report) bool { return report.InTime == 1 })

	p.Restart(false)
	send(t, connect(t, p), unhex(t, registration))
	p.Registration(1)
	_, err := connection.Write([]byte(unhex(t, registration)))
	assert.Check(t, err != nil, "the socket before is open still")
}

// Slots that are paged out are in memory again when somebody has read them.
func TestPagedOutSlots(t *testing.T) {
	for _, flavor := range []Flavor{Glibc, Musl} {
		p := Start(t, Options{Flavor: flavor, Manual: true, Idle: 1, PageOut: true})
		context := p.Begin(1)
		assert.Check(t, !resident(t, p.PID, context.Thread.Slot),
			"%v: the slot is resident after it was written", flavor)
		slot := readMemory(t, p.PID, context.Thread.Slot, 37)
		assert.Check(t, string(slot[5:21]) == string(context.TraceID[:]) && slot[2] == 1,
			"%v: slot %x of %+v", flavor, slot, context)
		assert.Check(t, resident(t, p.PID, context.Thread.Slot),
			"%v: the slot is not resident after it was read", flavor)
	}
}

// resident reports whether a page is present: the highest bit of its word in pagemap.
func resident(t *testing.T, pid int, address uint64) bool {
	t.Helper()
	pagemap, err := os.Open("/proc/" + strconv.Itoa(pid) + "/pagemap")
	assert.NilError(t, err)
	defer pagemap.Close()
	var word [8]byte
	_, err = pagemap.ReadAt(word[:], int64(address/uint64(os.Getpagesize())*8))
	assert.NilError(t, err)
	return word[7]&0x80 != 0
}
