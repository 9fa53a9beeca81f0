package profile

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// The check values of the id's definition. Those of lines were computed apart from this code.
func TestTraceID(t *testing.T) {
	pay := NewJVMFrame(NewFunction("shop.Checkout.pay", "Checkout.java"), 42)
	run := NewJVMFrame(NewFunction("shop.Über$Ångström.läuft", ""), 0)
	first := NewJVMFrame(NewFunction("java.lang.Thread.run", "Thread.java"), 1)
	named := NewFunction("main", "main.c")
	file := &File{ID: FileID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}
	text := file.ID.String()
	assert.Check(t, text == "000102030405060708090a0b0c0d0e0f", "file id %s", text)
	text = (Frame{}).FileID().String()
	assert.Check(t, text == "ef46db3751d8e999ef46db3751d8e999", "file id of a frame without a file %s", text)
	for _, tt := range []struct {
		frames       []Frame
		hex, printed string
	}{
		{[]Frame{{File: file, Address: 4096}}, "921d22175f89ffd1eda17037685c7dfa", "kh0iF1-J_9HtoXA3aFx9-g"},
		{[]Frame{{File: file, Address: 4096}, {File: file, Address: 8191}}, "f9b56ee3b1bee3964eddd983113af10f",
			"-bVu47G-45ZO3dmDETrxDw"},
		{[]Frame{{Address: 140000000000000}, {File: file, Address: 1}}, "b807129abf5b12c7328f784fd6db007b",
			"uAcSmr9bEscyj3hP1tsAew"},
		{[]Frame{{File: file, Function: named, Line: 7, Address: 4096}}, "921d22175f89ffd1eda17037685c7dfa",
			"kh0iF1-J_9HtoXA3aFx9-g"}, // the same as without a name
		{[]Frame{Frame{File: file, Address: 4096}.WithName(NewSymbol("_Z1fv", "f"))},
			"921d22175f89ffd1eda17037685c7dfa", "kh0iF1-J_9HtoXA3aFx9-g"},
		{[]Frame{Frame{Address: 140000000000000}.WithName(NewSymbol("_Z1fv", "f")), {File: file, Address: 1}},
			"b807129abf5b12c7328f784fd6db007b", "uAcSmr9bEscyj3hP1tsAew"},
		{[]Frame{pay}, "f88b467b56c62f4f6d13d478a13a3c0b", "-ItGe1bGL09tE9R4oTo8Cw"},
		{[]Frame{run}, "16312ed341651955f0eb268496870cc8", "FjEu00FlGVXw6yaElocMyA"},
		{[]Frame{first}, "e54df74ba5b3c909c2b459f093b804b4", "5U33S6WzyQnCtFnwk7gEtA"},
		{[]Frame{pay, first}, "dcee5a1320db59b83ab30f1b3e113a1e", "3O5aEyDbWbg6sw8bPhE6Hg"},
		{[]Frame{pay, NewCutFrame()}, "e4fcf67ae0038c08390a6c96a772ec82", "5Pz2euADjAg5CmyWp3Lsgg"},
		{[]Frame{{File: file, Address: 4096}, NewCutFrame()}, "ad4a048f07ef8b9898b41aa4c6c80cad",
			"rUoEjwfvi5iYtBqkxsgMrQ"},
		{[]Frame{pay, run, {File: file, Address: 4096}, {Address: 140000000000000}, first, NewCutFrame()},
			"ee5e83e71c16267c6f55784ae9a8405e", "7l6D5xwWJnxvVXhK6ahAXg"},
	} {
		id := TraceID(tt.frames)
		got := hex.EncodeToString(id[:])
		assert.Check(t, got == tt.hex, "%v: %s, want %s", tt.frames, got, tt.hex)
		got = id.String()
		assert.Check(t, got == tt.printed, "%v: %s, want %s", tt.frames, got, tt.printed)
	}
}

func TestFileIDOfFunctions(t *testing.T) {
	for want, frame := range map[string]Frame{
		"43e6b7c9f4384c8443e6b7c9f4384c84": NewJVMFrame(NewFunction("shop.Checkout.pay", "Checkout.java"), 42),
		"9fb9fce606840ce69fb9fce606840ce6": NewJVMFrame(NewFunction("shop.Über$Ångström.läuft", ""), 0),
		"0258bff6884e68880258bff6884e6888": NewJVMFrame(NewFunction("java.lang.Thread.run", "Thread.java"), 1),
		"9e0860bd073c12469e0860bd073c1246": NewCutFrame(),
		"dd93738cda68011ddd93738cda68011d": NewJVMFrame(NewFunction("", ""), 0),
	} {
		if got := frame.FileID().String(); got != want || frame.Address == 0 {
			t.Errorf("%q: %s at %d, want %s", frame.Name(), got, frame.Address, want)
		}
	}
	frame := NewJVMFrame(NewFunction("f", ""), math.MaxUint32)
	assert.Check(t, frame.Address == math.MaxUint32 && frame.Line == math.MaxUint32, "%+v", frame)
}

// What a process calls its functions is sent as it is hashed.
func TestNewFunction(t *testing.T) {
	long := strings.Repeat("x", maxFunctionText)
	for _, tt := range []struct{ text, want string }{
		{"a.B.c", "a.B.c"}, {"\xff", "\ufffd"}, {"a\xff\xfeb", "a\ufffdb"}, {long, long},
		{long + "y", long[3:] + "…"}, {long[1:] + "é", long[3:] + "…"}, {long[2:] + "é", long[2:] + "é"},
		{long[:maxFunctionText-4] + "\U0001f600y", long[:maxFunctionText-4] + "…"},
		{strings.Repeat("\x80", 5000), "\ufffd…"},
		{strings.Repeat("a\xff", 5000), strings.Repeat("a\ufffd", 255) + "a…"},
	} {
		f := NewFunction(tt.text, tt.text)
		assert.Check(t, f.Name == tt.want && f.SourceFile == tt.want,
			"%.20q: %.20q of %d bytes, want %d", tt.text, f.Name, len(f.Name), len(tt.want))
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
		got, want := TraceID(frames), referenceID(frames)
		assert.Assert(t, got == want, "%x, want %x", got, want)
	})
}

func TestTraceIDAllocatesNothing(t *testing.T) {
	frames := append(deepStack(), NewJVMFrame(NewFunction("shop.Checkout.pay", "Checkout.java"), 42), NewCutFrame())
	n := testing.AllocsPerRun(100, func() { TraceID(frames) })
	assert.Check(t, n == 0, "%v allocations", n)
}

func TestKind(t *testing.T) {
	for _, tt := range []struct {
		frame Frame
		want  string
	}{
		{Frame{}, "anonymous"},
		{Frame{File: &File{Kind: NativeFrame}}, "native"},
		{Frame{File: &File{Kind: KernelFrame}}, "kernel"},
		{NewJVMFrame(NewFunction("f", ""), 0), "jvm"},
		{NewCutFrame(), "cut"},
		{Frame{File: &File{Kind: 9}}, "unknown"},
	} {
		got := tt.frame.Kind().String()
		assert.Check(t, got == tt.want, "%s, want %s", got, tt.want)
	}
}

// A name that a frame is given is for display: neither its id nor its kind changes.
func TestWithName(t *testing.T) {
	file := &File{ID: FileID{1}, Kind: NativeFrame, Path: "/lib"}
	for _, f := range []Frame{{File: file, Address: 5}, {Address: 0x7f0000001000}, {Address: 1<<64 - 9}} {
		named := f.WithName(NewFunction("checkout", ""))
		assert.Check(t, named.Name() == "checkout" && named.Kind() == f.Kind() && named.Address == f.Address &&
			TraceID([]Frame{named}) == TraceID([]Frame{f}),
			"%+v becomes %+v", f, named)
	}
}

// Frames of runtimes have the ids that those of JVMs have, made of function, source file and line.
func TestRuntimeFrames(t *testing.T) {
	function := NewFunction("Work.run", "/srv/work.py")
	jvm := NewJVMFrame(function, 7)
	for kind, text := range map[Kind]string{JVMFrame: "jvm", PythonFrame: "cpython", V8Frame: "v8js"} {
		f := NewRuntimeFrame(kind, function, 7)
		if f.Kind() != kind || kind.String() != text || !kind.OfRuntime() || f.Line != 7 || f.Name() != "Work.run" ||
			f.SourceFile() != "/srv/work.py" || TraceID([]Frame{f}) != TraceID([]Frame{jvm}) {
			t.Errorf("%v: %+v", kind, f)
		}
	}
	for _, kind := range []Kind{AnonymousFrame, NativeFrame, KernelFrame, CutFrame} {
		assert.Check(t, !kind.OfRuntime(), "%v is of a runtime", kind)
	}
}

// A C library is known by its name.
func TestIsCLibrary(t *testing.T) {
	for path, want := range map[string]bool{
		"/lib/libc.so.6": true, "/lib/libc-2.31.so": true, "/lib/libpthread-2.31.so": true,
		"/lib/ld-musl-x86_64.so.1": true, "/lib/libc.musl-x86_64.so.1": true, "/lib/libcrypto.so": false,
		"/libc.so.6/work": false, "/lib/ld-linux.so.2": false,
	} {
		assert.Check(t, (&File{Path: path}).IsCLibrary() == want, path)
	}
	assert.Check(t, !(*File)(nil).IsCLibrary())
}

// deepStack is a stack of 64 frames in a few files, the way samples have them: runs of frames in
// one library.
func deepStack() []Frame {
	files := []*File{{ID: FileID{1}}, {ID: FileID{2}}, nil, {ID: FileID{3}}}
	frames := make([]Frame, 64)
	for i := range frames {
		frames[i] = Frame{File: files[i/16], Address: uint64(i)*4099 + 1_000_000}
		if frames[i].File == nil {
			frames[i].Address += 0x7f0000000000
		}
	}
	return frames
}
