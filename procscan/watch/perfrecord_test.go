package watch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/procscan"
)

// Records as a little-endian kernel writes them.
const (
	mmap2Hex = "0a000000 0200 6000" + // PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER, 96 bytes
		"01020000 03020000" + // pid 513, tid 515
		"0010a0f7ff7f0000 0020000000000000 0010000000000000" + // addr, len, pgoff
		"08000000 01000000 1500000000000000 0000000000000000" + // maj, min, ino, ino_generation
		"05000000 02000000" + // PROT_READ|PROT_EXEC, MAP_PRIVATE
		"2f7573722f6c69622f6c6962632e736f2e360000 00000000" // "/usr/lib/libc.so.6", with more padding than needed
	vdsoHex = "0a000000 0200 5000" +
		"01020000 01020000" +
		"00e0fff7ff7f0000 0020000000000000 0000000000000000" +
		"00000000 00000000 0000000000000000 0000000000000000" + // no file
		"05000000 02000000" +
		"5b7664736f5d 0000" // "[vdso]"
	lostHex = "02000000 0000 1800 1100000000000000 0701000000000000"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	assert.NilError(t, err)
	return b
}

// mmap2Record returns the kernel's record of a mapping.
func mmap2Record(pid int32, path string) []byte {
	padded := append([]byte(path), make([]byte, 8-len(path)%8)...)
	b := binary.NativeEndian.AppendUint32(nil, unix.PERF_RECORD_MMAP2)
	b = binary.NativeEndian.AppendUint16(b, 2)
	b = binary.NativeEndian.AppendUint16(b, uint16(mmap2NameOffset+len(padded)))
	b = binary.NativeEndian.AppendUint32(b, uint32(pid))
	b = append(b, make([]byte, mmap2NameOffset-len(b))...)
	return append(b, padded...)
}

func TestDecodeEvent(t *testing.T) {
	mmap2, vdso, lost := unhex(t, mmap2Hex), unhex(t, vdsoHex), unhex(t, lostHex)
	for _, test := range []struct {
		name   string
		record []byte
		want   Event
		ok     bool
	}{
		{"mapping of a file", mmap2, Event{Kind: EventFile, PID: 513}, true},
		{"exec", vdso, Event{Kind: EventExec, PID: 513}, true},
		{"lost", lost, Event{Kind: EventLost, Lost: 263}, true},
		{"short mapping", mmap2[:71], Event{Kind: EventLost, Lost: 1}, true},
		{"mapping without a path", mmap2[:72], Event{Kind: EventMapping, PID: 513}, true},
		{"short loss", lost[:23], Event{Kind: EventLost, Lost: 1}, true},
		{"short header", lost[:7], Event{Kind: EventLost, Lost: 1}, true},
		{"nothing", nil, Event{Kind: EventLost, Lost: 1}, true},
		{"exit", unhex(t, "04000000 0000 0800"), Event{}, false},
	} {
		event, ok := decodeEvent(test.record)
		assert.Check(t, event == test.want && ok == test.ok, "%s: %+v, %v", test.name, event, ok)
	}
}

func TestDecodeMapping(t *testing.T) {
	long := strings.Repeat("/a", 2000)
	for path, want := range map[string]EventKind{
		"/x/elastic-jvmti-linux-x64-1.so":           EventLibrary,
		"/x/elastic-jvmti-linux-x64-12.so":          EventLibrary, // with each length of padding
		"/x/elastic-jvmti-linux-x64-123.so":         EventLibrary,
		"/x/elastic-jvmti-linux-x64-1234.so":        EventLibrary,
		"/x/elastic-jvmti-linux-x64-12345.so":       EventLibrary,
		"/x/elastic-jvmti-linux-x64-123456.so":      EventLibrary,
		"/x/elastic-jvmti-linux-x64-1234567.so":     EventLibrary,
		"/x/elastic-jvmti-linux-x64-12345678.so":    EventLibrary,
		"/x/elastic-jvmti-linux-x64.so (deleted)":   EventLibrary,
		"/a\nb/elastic-jvmti-linux-x64.so":          EventLibrary,
		long + "/elastic-jvmti-linux-x64.so":        EventLibrary,
		"//toolong":                                 EventLibrary,
		"//enomem":                                  EventLibrary,
		"//toolong/x":                               EventMapping,
		"//anon":                                    EventMapping,
		"[vdso]":                                    EventExec,
		"/[vdso]":                                   EventFile,
		"[vvar]":                                    EventMapping,
		"":                                          EventMapping,
		long:                                        EventFile,
		"/x/elastic-jvmti-linux-x64.so.1":           EventFile,
		"/x/elastic-jvmti-linux-x64.so (deleted) x": EventFile,
		"/x/libc.so.6":                              EventFile,
		"/x/libc.so.6 (deleted)":                    EventMapping,
		"/memfd:doublemapper (deleted)":             EventMapping,
		"/dev/zero (deleted)":                       EventMapping,
		"/SYSV00000000 (deleted)":                   EventMapping,
		"/":                                         EventMapping,
		"elastic-jvmti-linux-x64.so":                EventMapping,
	} {
		record := mmap2Record(7, path)
		event, ok := decodeEvent(record)
		assert.Check(t, ok && event == Event{Kind: want, PID: 7}, "%q: %+v, %v", path, event, ok)
		for _, pid := range []int32{0, -1} {
			event, ok := decodeEvent(mmap2Record(pid, path))
			assert.Check(t, !ok, "%q of process %d: %+v", path, pid, event)
		}
	}
}

// Any bytes are decoded to a consistent event, or none.
func FuzzDecodeEvent(f *testing.F) {
	for _, text := range []string{mmap2Hex, vdsoHex, lostHex} {
		f.Add(unhex(f, text))
	}
	f.Add(mmap2Record(7, "/x/elastic-jvmti-linux-x64-1.so (deleted)"))
	f.Add(mmap2Record(-1, pathTooLong))
	f.Fuzz(func(t *testing.T, record []byte) {
		event, ok := decodeEvent(record)
		switch {
		case !ok:
			assert.Check(t, event == Event{}, "%+v, though not reported", event)
		case event.Kind == EventLost:
			assert.Check(t, event.PID == 0, "%+v", event)
		case event.Kind > EventLost, event.PID <= 0, event.Lost != 0:
			t.Errorf("%+v", event)
		case event.Kind == EventLibrary:
			path := string(bytes.TrimRight(record[mmap2NameOffset:], "\x00"))
			assert.Check(t, procscan.MatchLibrary(path) || path == pathTooLong || path == pathNoMemory,
				"%q is decoded as a library", path)
		}
	})
}
