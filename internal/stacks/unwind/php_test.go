package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The program of PHP is changed where it reads a function, and only there; a program without these places, or with them
// twice, is not.
func TestAddFunctionChecks(t *testing.T) {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	program := full.Programs[phpProgram].Instructions
	changed, err := addFunctionChecks(program, full.Types)
	assert.NilError(t, err)
	different := 0
	for i := range program {
		if changed[i].OpCode != program[i].OpCode || changed[i].Constant != program[i].Constant {
			different++
		}
	}
	assert.Check(t, different == 4 && len(changed) > len(program), "%d instructions of the program differ", different)
	_, err = addFunctionChecks(append(program[:len(program):len(program)], program...), full.Types)
	assert.Check(t, err != nil)
	_, err = addFunctionChecks(full.Programs[v8Program].Instructions, full.Types)
	assert.Check(t, err != nil)
}

// Two scripts whose functions come to the same addresses in turn, one with lines below 1000, the other above: no
// function has the name of another one's file, and what was replaced before it was named has none.
func TestReplacedFunctions(t *testing.T) {
	dir := t.TempDir()
	script := func(name string, firstLine int) {
		text := "<?php" + strings.Repeat("\n", firstLine) + "$f = function ($n) {\n" +
			"    for ($i = 0; $i < $n; $i++) { $x = sqrt($i); }\n};\n$f(20000);\n"
		testenv.WriteFile(t, filepath.Join(dir, name), text)
	}
	script("first.php", 1)
	script("other.php", 1000)
	testenv.WriteFile(t, filepath.Join(dir, "main.php"),
		"<?php echo \"ready\\n\"; for (;;) { include 'first.php'; include 'other.php'; }")
	e := openEngine(t)
	e.sample(t)
	j := startBusy(t, testenv.NeedTool(t, "php"), "-d", "opcache.enable_cli=0", filepath.Join(dir, "main.php"))
	e.synchronize(t, j.target)
	named, gone := make(map[string]int), 0
	for named["first.php"] < 20 || named["other.php"] < 20 || gone == 0 {
		frames, err := e.name(t, j.target, e.next(t, j.target))
		assert.NilError(t, err)
		for _, f := range frames {
			file := filepath.Base(f.SourceFile)
			switch {
			case f.Kind != PHPFrame || file == "main.php" || f.SourceFile == "" && f.Function != "":
			case f.Function == "":
				gone++
			case f.Line == 0 || (f.Line > 1000) != (file == "other.php"):
				t.Fatalf("%+v\n%+v", f, frames)
			default:
				named[file]++
			}
		}
	}
}

// phpMemory is memory with functions of PHP 8.2, from phpMemoryStart on.
type phpMemory struct{ bytes.Buffer }

const phpMemoryStart = 0x10000

func (m *phpMemory) ReadAt(b []byte, at int64) (int, error) {
	if at < phpMemoryStart || at > phpMemoryStart+int64(m.Len()) {
		return 0, io.EOF
	}
	return bytes.NewReader(m.Bytes()).ReadAt(b, at-phpMemoryStart)
}

// add adds bytes, and returns their address.
func (m *phpMemory) add(b []byte) uint64 {
	defer m.Write(b)
	return phpMemoryStart + uint64(m.Len())
}

// text adds a zend_string, and returns its address, 0 for "".
func (m *phpMemory) text(s string) uint64 {
	if s == "" {
		return 0
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, zendStringLength), uint64(len(s)))
	return m.add(append(append(b, s...), make([]byte, 16)...))
}

// phpFunctionOf is what a zend_function has.
type phpFunctionOf struct {
	kind, class             byte // class: its type
	flags                   uint32
	name, className, source string
	first, last             uint32
}

// add adds a function, and returns the variables of its word at a line.
func (f phpFunctionOf) add(m *phpMemory, line uint32) (at, variable uint64) {
	b := make([]byte, 256)
	b[0] = f.kind
	binary.LittleEndian.PutUint32(b[4:], f.flags)
	binary.LittleEndian.PutUint64(b[zendFunctionName:], m.text(f.name))
	var class []byte
	if f.className != "" {
		entry := make([]byte, 16)
		entry[0] = f.class
		binary.LittleEndian.PutUint64(entry[zendClassName:], m.text(f.className))
		binary.LittleEndian.PutUint64(b[zendFunctionName+8:], m.add(entry))
		class = []byte(f.className)
	}
	file := b[phpFile["8.2"]:]
	binary.LittleEndian.PutUint64(file, m.text(f.source))
	binary.LittleEndian.PutUint32(file[8:], f.first)
	binary.LittleEndian.PutUint32(file[12:], f.last)
	var name, source []byte
	if f.name != "" {
		name = []byte(f.name)
	}
	if f.source != "" {
		source = []byte(f.source)
	}
	hash := phpHash(file[8:16], source, name, class)
	return m.add(b), uint64(hash&0xffff|hash>>16<<18|phpTop)<<32 | uint64(line)
}

// What is at an address is shown if it is the function that ran there, with its line if that is in it; functions of PHP
// itself, which are there for ever, without a check, but none that PHP makes while it runs.
func TestPHPFrames(t *testing.T) {
	long := strings.Repeat("d/", 200)
	rate := phpFunctionOf{kind: zendUserFunction, name: "rate", source: "/srv/shop.php", first: 3, last: 9}
	for what, c := range map[string]struct {
		of   phpFunctionOf
		line uint32
		want Frame // without a function: none
	}{
		"a function":       {rate, 5, Frame{PHPFrame, 0, "rate", "/srv/shop.php", 5}},
		"a line behind it": {rate, 10, Frame{PHPFrame, 0, "rate", "/srv/shop.php", 0}},
		"one before it":    {rate, 2, Frame{PHPFrame, 0, "rate", "/srv/shop.php", 0}},
		"a method": {phpFunctionOf{kind: zendUserFunction, class: 2, name: "sum", className: `Shop\Cart`,
			source: "/a.php", last: 9}, 1, Frame{PHPFrame, 0, `Shop\Cart::sum`, "/a.php", 1}},
		"of an anonymous class": {phpFunctionOf{kind: zendUserFunction, class: 2, name: "sum",
			className: "class@anonymous\x00/a.php:3$0", source: "/a.php", last: 9}, 1,
			Frame{PHPFrame, 0, "class@anonymous::sum", "/a.php", 1}},
		"a file": {phpFunctionOf{kind: zendUserFunction, source: "/" + long + "a.php", last: 9}, 1,
			Frame{PHPFrame, 0, "{main}", "/" + long + "a.php", 1}},
		"eval": {phpFunctionOf{kind: zendEvalCode, source: "/a.php(3) : eval()'d code", last: 9}, 1,
			Frame{PHPFrame, 0, "eval", "/a.php(3) : eval()'d code", 1}},
		"internal": {phpFunctionOf{kind: zendInternalFunction, name: "strlen"}, 0,
			Frame{Kind: PHPFrame, Function: "strlen"}},
		"of a class": {phpFunctionOf{kind: zendInternalFunction, class: 1, name: "query", className: "PDO"}, 0,
			Frame{Kind: PHPFrame, Function: "PDO::query"}},
		"of an enum": {phpFunctionOf{kind: zendInternalFunction, class: 2, name: "cases", className: "Suit"}, 0, Frame{}},
		"a closure":  {phpFunctionOf{kind: zendInternalFunction, flags: 1 << 22, name: "strlen"}, 0, Frame{}},
		"__call":     {phpFunctionOf{kind: zendInternalFunction, flags: 1 << 18, name: "anything"}, 0, Frame{}},
		"no kind":    {phpFunctionOf{kind: 3, name: "f", source: "/a.php", last: 9}, 1, Frame{}},
		"a long name": {phpFunctionOf{kind: zendUserFunction, name: strings.Repeat("f", maxPHPText+1),
			source: "/a.php"}, 1, Frame{}},
	} {
		m := new(phpMemory)
		at, variable := c.of.add(m, c.line)
		r, typeInfo := phpReader{m, phpFile["8.2"]}, uint32(variable>>32)
		f, lines, err := r.function(at, typeInfo)
		if c.want == (Frame{}) {
			assert.Check(t, err != nil, "%s: %+v", what, f)
			continue
		}
		if lines.Down <= c.line && c.line <= lines.Up {
			f.Line = c.line
		}
		assert.Check(t, err == nil && f == c.want, "%s: %+v, %v", what, f, err)
		if c.of.kind == zendInternalFunction {
			continue
		}
		for bit := range 32 { // each bit of the hash is looked at
			_, _, err = r.function(at, typeInfo^1<<bit)
			of := 1<<bit == phpCalled || 1<<bit == phpTop
			assert.Check(t, (err == nil) == of && (of || errors.Is(err, errPHPFunction)), "%s, bit %d: %v", what, bit, err)
		}
		for end := range m.Len() { // what cannot be read whole has no name
			short := new(phpMemory)
			short.Write(m.Bytes()[:end])
			_, _, err := (&phpReader{short, phpFile["8.2"]}).function(at, typeInfo)
			assert.Check(t, err != nil || end >= m.Len()-256, "%s, %d of %d bytes", what, end, m.Len())
		}
	}
}

// A call without a function, as PHP makes some of its own, is no frame, also the first of a stack; what cannot be read
// is a function without a name, and so is what can, in a version that was not run, until it is plausible.
func TestPHPStack(t *testing.T) {
	m, kind := new(phpMemory), runtimeBy(func(k *runtimeKind) bool { return k.of == libpf.PHP })
	header := libpf.NewEbpfFrameHeader(libpf.PHPFrame, 0, 3, 0)
	none := []uint64{header, 0, ^uint64(1)}
	code := &runtimeCode{phpFile: phpFile["8.2"], pages: newPages()}
	s := &server{targets: map[libpf.PID]*target{1: {codes: map[*runtimeKind]*runtimeCode{kind: code}}}, places: newPlaces()}
	stack := func(keep bool, words []uint64, names ...string) {
		t.Helper()
		s.keep = true
		code.pages.begin(m)
		var got []string
		for _, f := range s.frames(1, words) {
			assert.Check(t, f.Kind == PHPFrame)
			got = append(got, f.Function)
		}
		assert.Check(t, slices.Equal(got, names) && s.keep == keep, "%q, keep: %v", got, s.keep)
	}
	word := func(source string) []uint64 {
		f := phpFunctionOf{kind: zendUserFunction, name: "rate", source: source, first: 3, last: 9}
		at, variable := f.add(m, 5)
		m.Write(make([]byte, pageBytes-m.Len()%pageBytes))
		return []uint64{header, at, variable}
	}
	typed, found := word("Command line code"), word("/srv/shop.php")
	stack(true, none)
	stack(false, typed, "")
	stack(true, slices.Concat(none, found, none), "rate")
	stack(true, slices.Concat(typed, found), "rate", "rate")
	stack(false, []uint64{header, 1 << 40, 5}, "")
	m.Reset() // what was read is not read again, also of another line
	stack(true, slices.Concat(typed, []uint64{found[0], found[1], found[2] + 1}), "rate", "rate")
}

// Whatever differs in what names a function, the hash is another.
func TestPHPHash(t *testing.T) {
	lines := []byte{1, 0, 0, 0, 2, 0, 0, 0}
	seen := make(map[uint32]string)
	for i, texts := range [][][]byte{
		{[]byte("/a.php"), []byte("f"), nil}, {[]byte("/a.php"), nil, []byte("f")}, {[]byte("/b.php"), []byte("f"), nil},
		{[]byte("/a.php"), []byte("g"), nil}, {[]byte("/a.php"), []byte("f"), []byte("C")}, {[]byte("/a.php"), nil, nil},
		{[]byte("/a.php"), []byte(""), nil}, {bytes.Repeat([]byte("a"), 127), nil, nil},
		{bytes.Repeat([]byte("a"), 128), nil, nil}, {append([]byte("b"), bytes.Repeat([]byte("a"), 126)...), nil, nil},
	} {
		hash := phpHash(lines, texts...)
		assert.Check(t, hash>>phpHashBits == 0 && hash != 0)
		assert.Check(t, phpHash([]byte{1, 0, 0, 0, 3, 0, 0, 0}, texts...) != hash)
		assert.Check(t, seen[hash] == "", "%d is like %s", i, seen[hash])
		seen[hash] = fmt.Sprint(i)
	}
}

// Versions of which the layout is not known are refused.
func TestPHPVersions(t *testing.T) {
	for version, want := range map[string]uint8{
		"PHP 8.2.29": 152, "PHP 7.4.3": 136, "PHP 8.4.0": 168, "PHP 7.3.1": 0, "PHP 8.6.0": 0, "PHP 8.2": 0, "": 0,
	} {
		file, err := phpFileOf(version)
		assert.Check(t, file == want && (err == nil) == (want != 0), "%s: %d, %v", version, file, err)
	}
}
