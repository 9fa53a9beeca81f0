package symbols

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"correlator/elfsym"
)

// maxPerfMapBytes bounds the time that a perf map costs: two seconds. A JVM writes a few megabytes;
// a runtime that appends for weeks writes more, and its last entries are those that count.
const maxPerfMapBytes = 256 << 20

// bufferBytes is the unit in which text is read.
const bufferBytes = 64 << 10

// ReadPerfMap names addresses by a perf map: text to which a just-in-time compiler appends a line
// for each function that it compiles, as the perf tool reads it
// (tools/perf/Documentation/jit-interface.txt in the kernel):
//
//	field  text     example
//	start  hex      7f3c4c6a8b20
//	size   SP hex    1e8
//	name   SP ...    void Demo$Worker.burn()
//
// Compilers reuse memory, so of two entries that contain an address the later one is right. An
// address that is not in the map keeps its name. Like perf, it takes tabs for spaces. Lines of another form are
// skipped, and so is one without a newline, which is being written.
//
// Errors come from r, but for elfsym.ErrLimit and ErrLines. With an error, nothing is named, but where the map is
// longer than what is read, or has lines of another form, and an address is in no other.
func (q *Query) ReadPerfMap(r io.ReaderAt, size int64) error {
	first := max(0, size-maxPerfMapBytes)
	lines := bufio.NewReaderSize(io.NewSectionReader(r, first, size-first), bufferBytes)
	names := make([]string, len(q.addrs))
	left, other := maxMatches, 0
	var edges *edges
	if q.ranges != nil {
		edges = newEdges(q.addrs)
	}
	for skip := first > 0; ; skip = false {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading perf map: %w", err)
		}
		start, end, name, ok := parsePerfMapLine(line)
		if !ok || skip {
			if !skip && len(line) > 0 {
				other++
			}
			continue
		}
		i, _ := slices.BinarySearch(q.addrs, start)
		edges.add(start, end, i)
		if i == len(q.addrs) || q.addrs[i] >= end {
			continue
		}
		text, err := q.text(name)
		if err != nil {
			return fmt.Errorf("reading perf map: %w", err)
		}
		for ; i < len(q.addrs) && q.addrs[i] < end; i++ {
			if left--; left < 0 {
				return fmt.Errorf("reading perf map: %w: entries overlap too often", elfsym.ErrLimit)
			}
			names[i] = text
		}
	}
	for i, name := range names {
		if name != "" {
			q.names[i] = name
		}
	}
	if edges != nil {
		for i, r := range edges.ranges() {
			q.ranges[i] = q.ranges[i].Intersect(r)
		}
	}
	if first > 0 && slices.Contains(names, "") {
		return fmt.Errorf("reading perf map: %w: it has more than the %d bytes that are read of its end", elfsym.ErrLimit,
			maxPerfMapBytes)
	}
	if other > 0 && slices.Contains(names, "") {
		return fmt.Errorf("reading perf map: %w in %d of its lines", ErrLines, other)
	}
	return nil
}

// ErrLines: lines of a perf map are of another form.
var ErrLines = errors.New("there is no start, size and name")

// readLine returns the next line without its newline, truncated if it does not fit the buffer. Text
// after the last newline is not a line. The line is valid until the next call.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return bytes.TrimSuffix(line, []byte{'\n'}), err
	}
	start := slices.Clone(line[:maxLineBytes])
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = r.ReadSlice('\n')
	}
	return start, err
}

// maxLineBytes holds two numbers and a name of maxNameBytes.
const maxLineBytes = maxNameBytes + 64

func parsePerfMapLine(line []byte) (start, end uint64, name []byte, ok bool) {
	first, rest := cutField(line)
	second, name := cutField(rest)
	start, okStart := parseHex(first)
	size, okSize := parseHex(second)
	name, _, _ = bytes.Cut(bytes.TrimSpace(name), []byte{0})
	if !okStart || !okSize || start+size < start || len(name) == 0 {
		return 0, 0, nil, false
	}
	return start, start + size, name, true
}

// cutField cuts what is before the first space or tab.
func cutField(line []byte) (field, rest []byte) {
	line = bytes.TrimLeft(line, " \t")
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		return line[:end], line[end+1:]
	}
	return line, nil
}

// parseHex parses up to 16 hexadecimal digits, which some compilers prefix with 0x.
func parseHex(text []byte) (value uint64, ok bool) {
	text = bytes.TrimPrefix(text, []byte("0x"))
	value, err := strconv.ParseUint(string(text), 16, 64)
	return value, err == nil && len(text) <= 16
}
