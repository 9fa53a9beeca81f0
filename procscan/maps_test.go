package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func captured(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/maps", name))
	assert.NilError(t, err)
	return text
}

func collectText(text io.Reader, bufferBytes int, what selection, limit int) ([]Mapping, error) {
	r := newMapsReader(bufferBytes)
	r.reset(text)
	lists := []mappingList{{what: what, limit: limit}}
	if err := r.collect(lists); err != nil {
		return lists[0].found, err
	}
	return lists[0].result()
}

func TestParseMapping(t *testing.T) {
	long := "/" + strings.Repeat("d/", 8000) + "lib.so"
	for _, c := range []struct {
		line string
		want Mapping
	}{
		{"7f1903980000-7f1903981000 r-xp 00001000 fe:00 9978099                    /tmp/a.so (deleted)",
			Mapping{0x7f1903980000, 0x7f1903981000, 0x1000, unix.Mkdev(0xfe, 0), 9978099, "/tmp/a.so", true}},
		{"00400000-00401000 --xp 00000000 103:05 1                          /a  b ",
			Mapping{0x400000, 0x401000, 0, unix.Mkdev(0x103, 5), 1, "/a  b ", false}},
		{"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
			Mapping{0xffffffffff600000, 0xffffffffff601000, 0, 0, 0, "[vsyscall]", false}},
		{"7f1903a00000-7f1903a01000 rw-p 00000000 00:00 0 ",
			Mapping{0x7f1903a00000, 0x7f1903a01000, 0, 0, 0, "", false}},
		{"1000-2000 rwxs 0 00:00 0", Mapping{0x1000, 0x2000, 0, 0, 0, "", false}},
		{"0-1 rwxs ffffffffffffffff ffff:fffff 18446744073709551615 /x",
			Mapping{0, 1, 1<<64 - 1, unix.Mkdev(0xffff, 0xfffff), 1<<64 - 1, "/x", false}},
		{"1000-2000 r-xp 0 00:2a 7 /a (deleted) (deleted)",
			Mapping{0x1000, 0x2000, 0, unix.Mkdev(0, 0x2a), 7, "/a (deleted)", true}},
		{"1000-2000 r-xp 0 00:2a 7 /a\\012b\xff\t", Mapping{0x1000, 0x2000, 0, unix.Mkdev(0, 0x2a), 7, "/a\\012b\xff\t",
			false}},
		{"1000-2000 r-xp 0 00:2a 7 " + long, Mapping{0x1000, 0x2000, 0, unix.Mkdev(0, 0x2a), 7, long, false}},
	} {
		got, path, ok := parseMapping([]byte(c.line))
		got.Path = string(path)
		assert.Check(t, ok && got == c.want, "%q:\n got %+v, %v\nwant %+v", c.line, got, ok, c.want)
	}
}

func TestParseMappingErrors(t *testing.T) {
	for _, line := range []string{
		"", " ", "\x00", "-", "1000", "1000-", "1000-2000", "1000-2000 ", "1000-2000 r-x", "1000-2000 r-xp",
		"1000-2000 r-xp 0", "1000-2000 r-xp 0 ", "1000-2000 r-xp 0 00", "1000-2000 r-xp 0 00:",
		"1000-2000 r-xp 0 00:00", "1000-2000 r-xp 0 00:00 ", "1000-2000 r-xp 0 00:00 1x /lib.so",
		"1000-2000 r-xp 0 00:00 a",
		"-2000 r-xp 0 00:00 0", "1000 -2000 r-xp 0 00:00 0", " 1000-2000 r-xp 0 00:00 0", "1000-2000  r-xp 0 00:00 0",
		"2000-1000 r-xp 0 00:00 0", "1000-1000 r-xp 0 00:00 0", "10000000000000000-20000000000000000 r-xp 0 00:00 0",
		"1000-2000 r-xp 0 100000000:00 0", "1000-2000 r-xp 0 00:100000000 0",
		"1000-2000 r-xp 0 00:00 18446744073709551616", "1000-2000 r-xp g 00:00 0", "1000-200G r-xp 0 00:00 0",
		"1000-2000 r-xp -1 00:00 0", "0x1000-0x2000 r-xp 0 00:00 0",
		"1000-2000 /elastic-jvmti-linux-x64.so", "1000-2000 r-xp /elastic-jvmti-linux-x64.so",
	} {
		m, path, ok := parseMapping([]byte(line))
		assert.Check(t, !ok, "%q is parsed as %+v, path %q", line, m, path)
	}
}

func TestLibraryLines(t *testing.T) {
	const deletedPath = "/tmp/" + realName
	jvm := Mapping{0x7f1903980000, 0x7f1903981000, 0x1000, unix.Mkdev(0xfe, 0), 9978099, deletedPath, true}
	musl := Mapping{0x7ff63f465000, 0x7ff63f466000, 0x1000, unix.Mkdev(0xfe, 0), 9978322,
		strings.Replace(deletedPath, "linux-x64", "linux-musl-x64", 1), false}
	const header = "7f1903980000-7f1903981000 r-xp 00001000 fe:00 9978099                    "
	overlong := header + "/" + strings.Repeat("x/", mapsBufferBytes) + realName + "\n"
	whole := header + deletedPath + deletedSuffix + "\n"
	longest := "/" + strings.Repeat(`\012`, 4095-len(realName)) + "/" + realName

	for _, c := range []struct {
		name, text string
		want       []Mapping
	}{
		{"JVM, library deleted", string(captured(t, "jvm.txt")), []Mapping{jvm}},
		{"musl", string(captured(t, "musl.txt")), []Mapping{musl}},
		{"both", string(captured(t, "jvm.txt")) + string(captured(t, "musl.txt")), []Mapping{jvm, musl}},
		{"empty", "", nil},
		{"only a newline", "\n", nil},
		{"no newline at the end", header + deletedPath + " (deleted)", []Mapping{jvm}},
		{"not executable", strings.Replace(header, "r-xp", "rw-p", 1) + deletedPath + "\n", nil},
		{"name of anonymous memory", header + "[anon:/" + realName + "]\n", nil},
		{"garbage between", "\x00\xff\n\n-\n" + whole + "1000-2000 r-xp /" + realName + "\n", []Mapping{jvm}},
		{"line longer than the buffer between", overlong + whole + overlong, []Mapping{jvm}},
		{"line longer than the buffer at the end", whole + strings.TrimSpace(overlong), []Mapping{jvm}},
		{"longest path, newlines escaped", header + longest + " (deleted)\n",
			[]Mapping{{jvm.Start, jvm.End, jvm.Offset, jvm.Dev, jvm.Ino, longest, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, source := range []struct {
				name string
				io.Reader
			}{
				{"at once", strings.NewReader(c.text)},
				{"byte by byte", iotest.OneByteReader(strings.NewReader(c.text))},
				{"end with the data", iotest.DataErrReader(strings.NewReader(c.text))},
			} {
				got, err := collectText(source, mapsBufferBytes, agentLibrary, maxLibraries)
				assert.Check(t, err == nil && reflect.DeepEqual(got, c.want),
					"%s: got %+v, %v\nwant %+v", source.name, got, err, c.want)
			}
		})
	}
}

func TestExecutableFileLines(t *testing.T) {
	text := string(captured(t, "musl.txt")) +
		"7fff00000000-7fff00001000 r-xp 00000000 00:00 0                          [anon:code /of jit]\n" +
		"7fff00002000-7fff00003000 rwxp 00000000 00:00 0 \n" +
		"7fff00004000-7fff00005000 r-xp 00000000 00:2a 7                          /a [b] c\n"
	got, err := collectText(strings.NewReader(text), mapsBufferBytes, executableFiles, maxExecutable)
	assert.NilError(t, err)
	var paths []string
	for _, m := range got {
		paths = append(paths, filepath.Base(m.Path))
	}
	want := []string{"host", strings.Replace(realName, "linux-x64", "linux-musl-x64", 1), "libc.so", "a [b] c"}
	assert.Check(t, reflect.DeepEqual(paths, want), "got %q, want %q", paths, want)
}

// An error of the source is returned after the complete lines. A line that it truncates is ignored,
// since its path may be incomplete.
func TestCollectError(t *testing.T) {
	whole := "1000-2000 r-xp 0 00:2a 7 /a/" + realName + "\n"
	cutOff := "2000-3000 r-xp 0 00:2a 7 /b/" + realName
	source := io.MultiReader(strings.NewReader(whole+cutOff), iotest.ErrReader(unix.ESRCH))
	got, err := collectText(source, mapsBufferBytes, agentLibrary, maxLibraries)
	assert.Check(t, errors.Is(err, unix.ESRCH) && len(got) == 1 && got[0].Path == "/a/"+realName,
		"got %+v, %v", got, err)
}

func TestCollectLimits(t *testing.T) {
	var many bytes.Buffer
	for i := range 3 {
		fmt.Fprintf(&many, "%x-%x r-xp 0 00:2a 7 /a/%s\n", i*2+1, i*2+2, realName)
	}
	for limit, want := range map[int]error{2: ErrTooMany, 3: nil, 4: nil} {
		got, err := collectText(bytes.NewReader(many.Bytes()), mapsBufferBytes, agentLibrary, limit)
		assert.Check(t, errors.Is(err, want) && len(got) == min(limit, 3),
			"limit %d: %d mappings, %v", limit, len(got), err)
	}

	// The sum of the paths is limited; equal ones of adjacent mappings count once.
	path := "/" + strings.Repeat("x", 16000)
	for _, c := range []struct {
		names []string
		want  int
		err   error
	}{
		{[]string{"a", "b"}, maxPathBytes / (len(path) + 1), ErrTooMany},
		{[]string{"a"}, 100, nil},
	} {
		var long bytes.Buffer
		for i := range 100 {
			fmt.Fprintf(&long, "%x-%x r-xp 0 00:2a 7 %s\n", i*2+1, i*2+2, path+c.names[i%len(c.names)])
		}
		got, err := collectText(&long, mapsBufferBytes, executableFiles, maxExecutable)
		assert.Check(t, errors.Is(err, c.err) && len(got) == c.want,
			"long paths %q: %d mappings, %v", c.names, len(got), err)
	}
}

// Executable memory without a file has a name in brackets or none.
func TestExecutableLines(t *testing.T) {
	const text = "" +
		"00400000-00401000 r--p 00000000 fe:00 1                          /a\n" +
		"00401000-00402000 r-xp 00001000 fe:00 1                          /a\n" +
		"10000000-10001000 rwxp 00000000 00:00 0 \n" +
		"10001000-10002000 rw-p 00000000 00:00 0 \n" +
		"10002000-10003000 --xp 00000000 00:00 0                          [anon:code /of jit]\n" +
		"10003000-10004000 r-xs 00000000 00:01 2051                       /memfd:doublemapper (deleted)\n" +
		"7fff00002000-7fff00004000 r-xp 00000000 00:00 0                  [vdso]\n" +
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\n"
	got, err := collectText(strings.NewReader(text), mapsBufferBytes, executableMemory, maxExecutable)
	want := []Mapping{
		{0x401000, 0x402000, 0x1000, unix.Mkdev(0xfe, 0), 1, "/a", false},
		{0x10000000, 0x10001000, 0, 0, 0, "", false},
		{0x10002000, 0x10003000, 0, 0, 0, "[anon:code /of jit]", false},
		{0x10003000, 0x10004000, 0, unix.Mkdev(0, 1), 2051, "/memfd:doublemapper", true},
		{0x7fff00002000, 0x7fff00004000, 0, 0, 0, "[vdso]", false},
	}
	assert.Check(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v\nwant %+v", got, err, want)
}

// A reader can be reused for another process, whatever the state of the previous one.
func TestMapsReaderReset(t *testing.T) {
	r := newMapsReader(64)
	r.reset(strings.NewReader(strings.Repeat("x", 1000))) // too long
	line, err := r.next()
	assert.Check(t, err == io.EOF, "got %q, %v", line, err)
	r.reset(strings.NewReader("a\nb"))
	r.next()
	r.reset(strings.NewReader("c\n"))
	line, err = r.next()
	assert.Check(t, err == nil && string(line) == "c", "got %q, %v", line, err)
	r.reset(stuckReader{})
	_, err = r.next()
	assert.Check(t, err == io.ErrNoProgress, "a source without progress: %v", err)
}

type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

func FuzzParseMapping(f *testing.F) {
	for _, name := range []string{"jvm.txt", "musl.txt"} {
		for line := range bytes.Lines(captured(f, name)) {
			f.Add(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	f.Add([]byte("0-1 rwxs ffffffffffffffff fff:fffff 18446744073709551615 / (deleted) (deleted)"))
	f.Fuzz(func(t *testing.T, line []byte) {
		original := bytes.Clone(line)
		m, path, ok := parseMapping(line)
		assert.Assert(t, bytes.Equal(line, original), "%q was changed to %q", original, line)
		if !ok {
			assert.Check(t, m == Mapping{} && path == nil, "%q is an error, with %+v, %q", line, m, path)
			return
		}
		assert.Check(t, m.Start < m.End, "%q: %#x-%#x", line, m.Start, m.End)
		// Formatted as the kernel does, it is the same mapping again.
		again := fmt.Appendf(nil, "%08x-%08x r-xp %08x %02x:%02x %d %s", m.Start, m.End, m.Offset,
			unix.Major(m.Dev), unix.Minor(m.Dev), m.Ino, path)
		if m.Deleted {
			again = append(again, deletedSuffix...)
		}
		m2, path2, ok := parseMapping(again)
		assert.Check(t, ok && m2 == m && bytes.Equal(path, path2),
			"%q is %+v, %q; written again %q it is %+v, %q, %v", line, m, path, again, m2, path2, ok)
		got := agentLibrary.wants(line)
		assert.Check(t, got == specExpression.Match(path), "%q with path %q: is the library: %v", line, path, got)
		// A selection wants a line if it wants its name, which is all that a query returns: of
		// lines as the kernel writes them, in which nothing else can look like a name.
		if perms := line[bytes.IndexByte(line, ' ')+1:][:len("rwxp")]; bytes.ContainsAny(perms, "/[") {
			return
		}
		name := path
		if m.Deleted {
			name = append(bytes.Clone(path), deletedSuffix...)
		}
		for _, what := range []selection{
			agentLibrary, executableFiles, executableMemory, processContexts, javaMachine,
		} {
			assert.Check(t, what.wants(line) == what.wants(name),
				"%q with name %q: selection %d wants one of them", line, name, what)
		}
	})
}

// For any text, buffer size and size of the pieces read, the lines are those of bytes.Split,
// without those that are longer than the buffer.
func FuzzMapsReader(f *testing.F) {
	f.Add([]byte("a\nbb\n\ncccccccc\nd"), uint8(4), uint8(3))
	f.Add([]byte("\n\n"), uint8(1), uint8(1))
	f.Add(captured(f, "musl.txt"), uint8(200), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, bufferBytes, pieceBytes uint8) {
		size := int(bufferBytes) + 1
		var want []string
		rest := text
		for len(rest) > 0 {
			line, after, _ := bytes.Cut(rest, []byte("\n"))
			if len(line) < size { // leaves room for the newline
				want = append(want, string(line))
			}
			rest = after
		}
		r := newMapsReader(size)
		r.reset(&pieceReader{text, int(pieceBytes) + 1})
		var got []string
		for {
			line, err := r.next()
			if err == io.EOF {
				break
			}
			assert.NilError(t, err)
			got = append(got, string(line))
		}
		assert.Check(t, reflect.DeepEqual(got, want),
			"buffer %d, pieces of %d:\n got %q\nwant %q", size, int(pieceBytes)+1, got, want)
	})
}

type pieceReader struct {
	text  []byte
	bytes int
}

func (r *pieceReader) Read(b []byte) (int, error) {
	if len(r.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.text[:min(r.bytes, len(r.text))])
	r.text = r.text[n:]
	return n, nil
}
