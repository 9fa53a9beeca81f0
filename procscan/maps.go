package procscan

import (
	"bytes"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// mapsBufferBytes holds the longest line that matters and a page more. A path that any system call
// takes has 4096 bytes at most (PATH_MAX), and maps writes a newline in it as four: 16 KiB. A
// longer line, of a file with a longer path, is skipped. A larger buffer reads no faster: the
// kernel returns one page per read (seq_file).
const mapsBufferBytes = 32 << 10

// firstKernelAddr is the first address above user space. Only the vsyscall page is there, which
// maps shows and PROCMAP_QUERY does not: it is the kernel's, and no code runs in it.
const firstKernelAddr = 1 << 63

// collect adds the selected mappings to each of the lists, in one pass, until they are complete.
//
// It allocates nothing for a line that is not selected, and skips a line of another form.
func (r *mapsReader) collect(lists []mappingList) error {
	for !complete(lists) {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		writable, executable := permissions(line)
		for i := range lists {
			l := &lists[i]
			if l.full || !l.what.wantsPermissions(writable, executable) || !l.what.wants(line) {
				continue
			}
			if m, path, ok := parseMapping(line); ok && m.Start < firstKernelAddr {
				l.add(m, path)
			}
		}
	}
	return nil
}

// permissions returns whether there are w and x in "start-end rwxp ...".
func permissions(line []byte) (writable, executable bool) {
	i := bytes.IndexByte(line, ' ')
	if i < 0 || i+3 >= len(line) {
		return false, false
	}
	return line[i+2] == 'w', line[i+3] == 'x'
}

// parseMapping parses a line of /proc/PID/maps (show_map_vma in fs/proc/task_mmu.c). Numbers have
// no leading zeros beyond those shown; the path is padded with spaces to a column, and ends with
// the line. The path is returned separately, as part of line: Mapping.Path stays empty.
//
//	field    text           example
//	start    hex            7f0240121000
//	end      - hex          -7f0240178000
//	perms    SP 4 chars      r-xp
//	offset   SP hex          00002000
//	device   SP hex : hex    fe:00
//	inode    SP decimal      316526
//	path     SP...           /usr/lib/jvm/lib/libjli.so (deleted)
func parseMapping(line []byte) (m Mapping, path []byte, ok bool) {
	s := fieldScanner{rest: line}
	m.Start = s.number(16)
	s.expect('-')
	m.End = s.number(16)
	s.expect(' ')
	s.skip(len("rwxp"))
	s.expect(' ')
	m.Offset = s.number(16)
	s.expect(' ')
	major := s.number(16)
	s.expect(':')
	minor := s.number(16)
	s.expect(' ')
	m.Ino = s.number(10)
	if len(s.rest) > 0 {
		s.expect(' ')
	}
	if s.bad || m.Start >= m.End || major > 1<<32-1 || minor > 1<<32-1 {
		return Mapping{}, nil, false
	}
	m.Dev = unix.Mkdev(uint32(major), uint32(minor))
	path, m.Deleted = cutDeleted(bytes.TrimLeft(s.rest, " "))
	return m, path, true
}

// fieldScanner consumes a line from its start. bad is set at the first unexpected byte, and stays.
type fieldScanner struct {
	rest []byte
	bad  bool
}

func (s *fieldScanner) expect(c byte) {
	if len(s.rest) == 0 || s.rest[0] != c {
		s.bad = true
		return
	}
	s.rest = s.rest[1:]
}

func (s *fieldScanner) skip(n int) {
	if len(s.rest) < n {
		s.bad = true
		return
	}
	s.rest = s.rest[n:]
}

// number consumes the digits of a number in base 10 or 16 (lower case, as the kernel writes them),
// at least one, that fits 64 bits.
func (s *fieldScanner) number(base uint64) uint64 {
	var n uint64
	i := 0
	for ; i < len(s.rest); i++ {
		digit := uint64(s.rest[i] - '0')
		if digit > 9 {
			if digit = uint64(s.rest[i]-'a') + 10; digit >= base {
				break
			}
		}
		if n > (1<<64-1-digit)/base {
			s.bad = true
			return 0
		}
		n = n*base + digit
	}
	if i == 0 {
		s.bad = true
	}
	s.rest = s.rest[i:]
	return n
}

// mapsReader splits text into lines in a single buffer. It is used by one goroutine at a time.
type mapsReader struct {
	source     io.Reader
	buf        []byte
	start, end int   // buf[start:end] was read and not returned yet
	err        error // of source, to be returned after what is in buf
	overlong   bool  // buf[start:] belongs to a line that did not fit
	filled     bool  // something was read
}

func newMapsReader(bufferBytes int) *mapsReader {
	return &mapsReader{buf: make([]byte, bufferBytes)}
}

// reset starts reading another source, and drops what is left of the previous one.
func (r *mapsReader) reset(source io.Reader) {
	*r = mapsReader{source: source, buf: r.buf}
}

// next returns the next line without its newline, valid until the next call, or the error of the
// source: io.EOF at its end. A line that does not fit the buffer is skipped. The last line may lack
// its newline, unless an error cut it off.
func (r *mapsReader) next() ([]byte, error) {
	searched := 0 // bytes from start on without a newline
	for {
		if i := bytes.IndexByte(r.buf[r.start+searched:r.end], '\n'); i >= 0 {
			line := r.buf[r.start : r.start+searched+i]
			r.start += searched + i + 1
			searched = 0
			if r.overlong {
				r.overlong = false
				continue
			}
			return line, nil
		}
		if r.err != nil {
			line := r.buf[r.start:r.end]
			r.start = r.end
			if len(line) > 0 && !r.overlong && errors.Is(r.err, io.EOF) {
				return line, nil
			}
			return nil, r.err
		}
		if r.end-r.start == len(r.buf) {
			r.overlong = true
			r.start = r.end
		}
		searched = r.end - r.start
		r.fill()
	}
}

// fill reads once, behind what is left in the buffer.
func (r *mapsReader) fill() {
	r.end = copy(r.buf, r.buf[r.start:r.end])
	r.start = 0
	n, err := r.source.Read(r.buf[r.end:])
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	r.end += n
	r.err = err
	r.filled = r.filled || n > 0
}

// fdReader reads a descriptor without an os.File, which would be allocated, registered and
// collected once per process of a sweep.
type fdReader int

func (fd fdReader) Read(b []byte) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(int(fd), b) })
	switch {
	case err != nil:
		return 0, err
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}
