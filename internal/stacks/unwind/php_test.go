package unwind

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// startPHP starts a script, without a cache of code, until the test ends.
func startPHP(t *testing.T, path string) (*jvm, io.Writer) {
	t.Helper()
	cmd := exec.Command(testenv.NeedTool(t, "php"), "-d", "opcache.enable_cli=0", path)
	stdin, stdout := testenv.Start(t, cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // before it is waited for
	j := &jvm{cmd: cmd, stdout: bufio.NewReader(stdout)}
	j.awaitReady(t)
	j.target = identify(t, cmd.Process.Pid)
	return j, stdin
}

// A function that has been replaced at its address by that of another script, until it is named, has no name; the other
// has its own.
func TestReplacedFunctions(t *testing.T) {
	dir := t.TempDir()
	script := func(name string, firstLine int) {
		testenv.WriteFile(t, filepath.Join(dir, name), "<?php"+strings.Repeat("\n", firstLine)+
			"$f = function () {\n    while (fgets(STDIN) === false) { }\n};\n$f();\nunset($f);\n")
	}
	script("first.php", 1)
	script("other.php", 1000)
	testenv.WriteFile(t, filepath.Join(dir, "main.php"),
		"<?php stream_set_blocking(STDIN, false); echo \"ready\\n\";\n"+
			"for (;;) { include 'first.php'; include 'other.php'; }")
	e := openEngine(t)
	e.sample(t)
	j, stdin := startPHP(t, filepath.Join(dir, "main.php"))
	e.synchronize(t, j.target)
	// next returns a stack in the closure of a script, at its line, and the word of that.
	next := func(at uint32) (collected, []uint64) {
		for {
			s := e.next(t, j.target)
			for word, rest := NextWord(s.words); word != nil; word, rest = NextWord(rest) {
				if isPHP(word) && uint32(word[2]) == at {
					return s, word
				}
			}
		}
	}
	name := func(s collected) Frame {
		frames, err := e.name(t, j.target, s)
		assert.NilError(t, err)
		at := slices.IndexFunc(frames, func(f Frame) bool { return f.Kind == PHPFrame && f.Function != "fgets" })
		assert.Assert(t, at >= 0, "%+v", frames)
		return frames[at]
	}
	goOn := func() {
		_, err := io.WriteString(stdin, "\n")
		assert.NilError(t, err)
	}
	for replaced := false; !replaced; {
		first, word := next(3)
		goOn()
		other, itsWord := next(1002)
		if replaced = word[1] == itsWord[1]; replaced {
			f := name(first)
			assert.Check(t, f == Frame{Kind: PHPFrame}, "%+v", f)
		}
		f := name(other)
		assert.Check(t, strings.HasPrefix(f.Function, "{closure") && filepath.Base(f.SourceFile) == "other.php" &&
			f.Line == 1002, "%+v", f)
		goOn()
	}
}

// Names of any length, and lines in the functions that they are of: also where a call begins and ends.
func TestPHPProgram(t *testing.T) {
	dir := t.TempDir()
	for len(dir) < 2*phpTextBytes {
		dir = filepath.Join(dir, strings.Repeat("d", 50))
	}
	assert.NilError(t, os.MkdirAll(dir, 0o755))
	long, exact := strings.Repeat("f", phpTextBytes+3), strings.Repeat("e", phpTextBytes-1)
	lines := []string{
		"<?php", "function " + long + "($n) {", "    for ($i = 0; $i < $n; $i++) { $x = $i * 3; }",
		"    return $x;", "}",
		"function " + exact + "($n) {", "    for ($i = 0; $i < $n; $i++) { $x = $i * 3; }", "    return $x;", "}",
		"$o = new class extends ArrayObject {", "    function sum($n) {",
		"        for ($i = 0, $s = 0; $i < $n; $i++) { $s += $i; }", "        return $s;", "    }", "};",
		"function tiny($a, $b) {", "    $c = $a;", "    $d = $b;", "    return $c + $d;", "}",
		"function deep($n) {", "    if ($n > 0) return deep($n - 1);",
		"    for ($i = 0; $i < 2000; $i++) { $x = $i * 3; }", "}", "echo \"ready\\n\";",
		"for (;;) {", "    " + long + "(2000); " + exact + "(2000); $o->sum(2000); deep(60);",
		"    for ($j = 0; $j < 2000; $j++) { tiny(1, 2); }", "    for ($j = 0; $j < 500; $j++) { $o->count(); }", "}",
	}
	testenv.WriteFile(t, filepath.Join(dir, "a.php"), strings.Join(lines, "\n"))
	version, err := exec.Command("php", "-r", "echo PHP_VERSION;").Output()
	assert.NilError(t, err)
	hasLines := newPHPLayout(phpName+string(version)).oplines != 0 // also the innermost function
	of := map[string][2]uint32{                                    // by function, its lines
		long: {2, 5}, exact: {6, 9}, "ArrayObject@anonymous::sum": {11, 14}, "tiny": {16, 20}, "deep": {21, 24},
		"{main}": {26, 30},
	}
	e := openEngine(t)
	e.sample(t)
	j, _ := startPHP(t, filepath.Join(dir, "a.php"))
	e.synchronize(t, j.target)
	seen := make(map[string]int)
	few := func() bool {
		for function := range of {
			if seen[function] < 10 {
				return true
			}
		}
		return false
	}
	for few() {
		frames, err := e.name(t, j.target, e.next(t, j.target))
		assert.NilError(t, err)
		for i, f := range frames {
			lines, known := of[f.Function]
			if i > 0 && f.Function == "deep" && frames[i-1].Function == "deep" && f.Line != 22 {
				t.Fatalf("a caller of deep is at line %d", f.Line)
			}
			switch {
			case f.Kind != PHPFrame || f.SourceFile == "" && f.Line == 0: // count has a copy, which has no name
			case !known, filepath.Base(f.SourceFile) != "a.php",
				f.Line != 0 && (f.Line < lines[0] || f.Line > lines[1]):
				t.Fatalf("%+v\n%+v", f, frames)
			case f.Line != 0 || !hasLines:
				seen[f.Function]++
			}
		}
	}
	testenv.Poll(t, deadline, "a function that has no name for ever", func() (nameless bool) {
		for word, rest := NextWord(e.next(t, j.target).words); word != nil; word, rest = NextWord(rest) {
			if !isPHP(word) || phpHashOf(uint32(word[2]>>32)) != 0 {
				continue
			}
			named, err := e.Frames(t.Context(), j.target, [][]uint64{word})
			assert.NilError(t, err)
			f := named[0].Frames
			nameless = nameless || len(f) > 0 && f[0].Function == ""
			assert.Check(t, named[0].Keep, "%+v is asked for again", f)
		}
		return nameless
	})
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
	file := b[phpLayouts["8.2"].file:]
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
	if f.kind == zendInternalFunction {
		return m.add(b), 0
	}
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
		"of an enum": {phpFunctionOf{kind: zendInternalFunction, class: 2, name: "cases",
			className: "Suit"}, 0, Frame{}},
		"a closure": {phpFunctionOf{kind: zendInternalFunction, flags: 1 << 22, name: "strlen"}, 0, Frame{}},
		"inherited": {phpFunctionOf{kind: zendInternalFunction, flags: 1 << 25, class: 1, name: "count",
			className: "ArrayObject"}, 0, Frame{}},
		"__call":  {phpFunctionOf{kind: zendInternalFunction, flags: 1 << 18, name: "anything"}, 0, Frame{}},
		"no kind": {phpFunctionOf{kind: 3, name: "f", source: "/a.php", last: 9}, 1, Frame{}},
		"a long name": {phpFunctionOf{kind: zendUserFunction, name: strings.Repeat("f", maxPHPText+1),
			source: "/a.php"}, 1, Frame{}},
	} {
		m := new(phpMemory)
		at, variable := c.of.add(m, c.line)
		r, typeInfo := phpReader{m, phpLayouts["8.2"].file}, uint32(variable>>32)
		f, lines, err := r.function(at, typeInfo)
		if c.want == (Frame{}) {
			assert.Check(t, err != nil, "%s: %+v", what, f)
			continue
		}
		if lines.Down <= c.line && c.line <= lines.Up {
			f.Line = c.line
		}
		assert.Check(t, err == nil && f == c.want, "%s: %+v, %v", what, f, err)
		for bit := range 32 { // each bit of the hash is looked at
			_, _, err = r.function(at, typeInfo^1<<bit)
			of := 1<<bit == phpCalled || 1<<bit == phpTop
			assert.Check(t, (err == nil) == of && (of || errors.Is(err, errPHPFunction)), "%s, bit %d: %v", what,
				bit, err)
		}
		for end := range m.Len() { // what cannot be read whole has no name
			short := new(phpMemory)
			short.Write(m.Bytes()[:end])
			_, _, err := (&phpReader{short, phpLayouts["8.2"].file}).function(at, typeInfo)
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
	code := &runtimeCode{php: newPHPLayout("PHP 8.2.29"), pages: newPages()}
	s := &server{
		targets: map[libpf.PID]*target{1: {codes: map[*runtimeKind]*runtimeCode{kind: code}}}, places: newPlaces(),
	}
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
	inherited := phpFunctionOf{kind: zendInternalFunction, flags: 1 << 25, class: 1, name: "count",
		className: "ArrayObject"}
	copied, _ := inherited.add(m, 0)
	m.Write(make([]byte, pageBytes))
	stack(true, none)
	stack(true, []uint64{header, copied, 0}, "") // which stays so
	stack(false, []uint64{header, copied, found[2]}, "")
	stack(false, typed, "")
	stack(true, slices.Concat(none, found, none), "rate")
	stack(true, slices.Concat(typed, found), "rate", "rate")
	stack(false, []uint64{header, 1 << 40, 5}, "")
	other := word("/srv/other.php")
	code.php = newPHPLayout("PHP 7.3.1")
	stack(true, other, "")
	m.Reset() // what was read is not read again, also of another line
	stack(true, slices.Concat(typed, []uint64{found[0], found[1], found[2] + 1}), "rate", "rate")
}

// Whatever differs in what names a function, the hash is another.
func TestPHPHash(t *testing.T) {
	lines := []byte{1, 0, 0, 0, 2, 0, 0, 0}
	seen := make(map[uint32]string)
	for i, texts := range [][][]byte{
		{[]byte("/a.php"), []byte("f"), nil}, {[]byte("/a.php"), nil, []byte("f")},
		{[]byte("/b.php"), []byte("f"), nil}, {[]byte("/a.php"), []byte("g"), nil},
		{[]byte("/a.php"), []byte("f"), []byte("C")}, {[]byte("/a.php"), nil, nil}, {[]byte("/a.php"), []byte(""), nil},
		{bytes.Repeat([]byte("a"), 127), nil, nil},
		{bytes.Repeat([]byte("a"), 128), nil, nil}, {append([]byte("b"), bytes.Repeat([]byte("a"), 126)...), nil, nil},
	} {
		hash := phpHash(lines, texts...)
		assert.Check(t, hash>>phpHashBits == 0 && hash != 0)
		assert.Check(t, phpHash([]byte{1, 0, 0, 0, 3, 0, 0, 0}, texts...) != hash)
		assert.Check(t, seen[hash] == "", "%d is like %s", i, seen[hash])
		seen[hash] = fmt.Sprint(i)
	}
}

// In a version of which the layout is not known, no function has a name.
func TestPHPVersions(t *testing.T) {
	for version, want := range map[string]phpLayout{
		"PHP 8.2.29": {152, 80}, "PHP 7.4.3": {136, 0}, "PHP 8.4.0": {168, 96}, "PHP 7.3.1": {}, "PHP 8.6.0": {},
		"PHP 8.2": {}, "": {},
	} {
		assert.Check(t, *newPHPLayout(version) == want, version)
	}
	m := new(phpMemory)
	at, variable := phpFunctionOf{kind: zendUserFunction, name: "rate", source: "/a.php", last: 9}.add(m, 5)
	_, _, err := (&phpReader{m, newPHPLayout("PHP 7.3.1").file}).function(at, uint32(variable>>32))
	assert.Check(t, errors.Is(err, errPHPFunction), err)
}
