package profile

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"math"
	"strconv"
	"testing"
)

// The check values of the id's definition.
func TestTraceID(t *testing.T) {
	file := &File{ID: FileID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}
	if text := file.ID.String(); text != "000102030405060708090a0b0c0d0e0f" {
		t.Errorf("file id %s", text)
	}
	if text := (Frame{}).FileID().String(); text != "ef46db3751d8e999ef46db3751d8e999" {
		t.Errorf("file id of a frame without a file %s", text)
	}
	for _, tt := range []struct {
		frames       []Frame
		hex, printed string
	}{
		{[]Frame{{file, 4096}}, "921d22175f89ffd1eda17037685c7dfa", "kh0iF1-J_9HtoXA3aFx9-g"},
		{[]Frame{{file, 4096}, {file, 8191}}, "f9b56ee3b1bee3964eddd983113af10f", "-bVu47G-45ZO3dmDETrxDw"},
		{[]Frame{{nil, 140000000000000}, {file, 1}}, "b807129abf5b12c7328f784fd6db007b", "uAcSmr9bEscyj3hP1tsAew"},
	} {
		id := TraceID(tt.frames)
		if got := hex.EncodeToString(id[:]); got != tt.hex {
			t.Errorf("%v: %s, want %s", tt.frames, got, tt.hex)
		}
		if got := id.String(); got != tt.printed {
			t.Errorf("%v: %s, want %s", tt.frames, got, tt.printed)
		}
	}
}

// referenceID is the definition written down with the standard library.
func referenceID(frames []Frame) (id StackTraceID) {
	h := fnv.New128a()
	for _, f := range frames {
		file := f.FileID()
		h.Write(file[:])
		h.Write([]byte(strconv.FormatUint(f.Address, 10)))
	}
	h.Sum(id[:0])
	return id
}

func FuzzTraceID(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("a file id of 16 and address 8 ..a file id of 16 and address 8 .."))
	f.Add(binary.LittleEndian.AppendUint64(make([]byte, 16), math.MaxUint64))
	f.Fuzz(func(t *testing.T, b []byte) {
		var frames []Frame
		for ; len(b) >= 24; b = b[24:] {
			frame := Frame{Address: binary.LittleEndian.Uint64(b[16:])}
			if id := FileID(b[:16]); id != (FileID{}) {
				frame.File = &File{ID: id}
			}
			frames = append(frames, frame)
		}
		if got, want := TraceID(frames), referenceID(frames); got != want {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}

func TestTraceIDAllocatesNothing(t *testing.T) {
	frames := deepStack()
	if n := testing.AllocsPerRun(100, func() { TraceID(frames) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKind(t *testing.T) {
	for _, tt := range []struct {
		frame Frame
		want  string
	}{
		{Frame{}, "anonymous"},
		{Frame{File: &File{Kind: NativeFrame}}, "native"},
		{Frame{File: &File{Kind: KernelFrame}}, "kernel"},
		{Frame{File: &File{Kind: 3}}, "kind 3"},
	} {
		if got := tt.frame.Kind().String(); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
