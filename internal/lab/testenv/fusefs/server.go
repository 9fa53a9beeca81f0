package fusefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// optionsVariable is set in the environment of a process that is the server.
const optionsVariable = "FUSEFS_SERVER"

// options tell the server what to do.
type options struct {
	Device, Source, Target string
	DropTo                 int // user and group to change to when it is mounted, 0: none
	AllowOther             bool
}

// command is a line of the server's standard input.
type command struct {
	Hang    Op
	Pattern string
	Answer  bool
}

// event is a line of its standard output. An empty one answers a command.
type event struct {
	Mounted bool
	Missing string // why it cannot be mounted
	Taken   *Request
}

// Main serves a file system, and does not return, in a process that Mount has started; else it does
// nothing. It is for TestMain of packages that use this one, at its beginning.
func Main() {
	text := os.Getenv(optionsVariable)
	if text == "" {
		return
	}
	os.Unsetenv(optionsVariable)
	s := &server{events: json.NewEncoder(os.Stdout), paths: []string{"/"}}
	if err := s.main(text); err != nil {
		fmt.Fprintln(os.Stderr, "FUSE server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type server struct {
	source *os.Root // held open: something may be mounted over its path
	device int
	uid    uint32 // of all files

	mu     sync.Mutex // all below
	events *json.Encoder
	paths  []string // of nodes, by number, from rootNode on; never removed
	rules  []command
	held   [][]byte // requests that are not answered
}

func (s *server) main(text string) error {
	var o options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	var err error
	if s.source, err = os.OpenRoot(o.Source); err != nil {
		return err
	}
	s.uid = uint32(o.DropTo)
	if err := s.mount(o); err != nil {
		return s.events.Encode(event{Missing: err.Error()})
	}
	if err := s.events.Encode(event{Mounted: true}); err != nil {
		return err
	}
	go s.obey()
	for buffer := make([]byte, maxRequestBytes); ; {
		n, err := unix.Read(s.device, buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAGAIN):
			continue // ENOENT: the request was aborted before it was read
		case errors.Is(err, unix.ENODEV):
			return nil // unmounted
		case err != nil:
			return fmt.Errorf("reading a request: %w", err)
		}
		if err := s.serve(buffer[:n]); err != nil {
			return err
		}
	}
}

// mount mounts the file system: nothing is asked of the server before it serves.
func (s *server) mount(o options) error {
	var err error
	if s.device, err = unix.Open(o.Device, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("opening /dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%[2]d,group_id=%[2]d,default_permissions", s.device, o.DropTo)
	if o.AllowOther {
		data += ",allow_other"
	}
	if err := unix.Mount("fusefs", o.Target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	if o.DropTo == 0 {
		return nil
	}
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(o.DropTo), syscall.Setuid(o.DropTo))
}

// obey carries out commands, and ends the process with its standard input.
func (s *server) obey() {
	for lines := json.NewDecoder(os.Stdin); ; {
		var c command
		if err := lines.Decode(&c); err != nil {
			os.Exit(0)
		}
		s.mu.Lock()
		if c.Answer {
			for _, request := range s.held {
				s.answer(request)
			}
			s.rules, s.held = nil, nil
		} else {
			s.rules = append(s.rules, c)
		}
		_ = s.events.Encode(event{}) // the test has ended if nobody reads it
		s.mu.Unlock()
	}
}

// serve answers a request, or takes it.
func (s *server) serve(request []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	header, name, err := s.decode(request)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.rules, func(c command) bool {
		matches, err := path.Match(c.Pattern, name)
		return c.Hang == header.Op && err == nil && matches
	}) {
		s.held = append(s.held, bytes.Clone(request))
		return s.events.Encode(event{Taken: &Request{Op: header.Op, Path: name, TID: int(header.TID)}})
	}
	s.answer(request)
	return nil
}

// decode returns the header of a request, and the path that it is about.
func (s *server) decode(request []byte) (header inHeader, name string, err error) {
	if err := decode(request, &header); err != nil {
		return header, "", fmt.Errorf("decoding a request: %w", err)
	}
	if i := header.Node - rootNode; i < uint64(len(s.paths)) { // some requests have no node
		name = s.paths[i]
	}
	if header.Op == Lookup {
		name = path.Join(name, string(bytes.TrimRight(request[headerBytes:], "\x00")))
	}
	return header, name, nil
}

// headerBytes is the length of inHeader.
const headerBytes = 40

// answer answers a request, if it is of a kind that has an answer.
func (s *server) answer(request []byte) {
	header, name, err := s.decode(request)
	var body []byte
	if err == nil {
		switch header.Op {
		case forget, batchForget, interrupt:
			return
		}
		body, err = s.result(header.Op, name, request[headerBytes:])
	}
	out := outHeader{Length: uint32(16 + len(body)), Unique: header.Unique}
	if err != nil {
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			errno = unix.EIO
		}
		out.Length, out.Error, body = 16, -int32(errno), nil
	}
	_, _ = unix.Write(s.device, append(encode(out), body...)) // ENOENT: nobody waits any more
}

func (s *server) result(op Op, name string, arguments []byte) ([]byte, error) {
	switch op {
	case initialize:
		return encode(initOut{Major: protocolMajor, Minor: protocolMinor, Flags: parallelDirOps, MaxWrite: 4096}), nil
	case Lookup:
		a, err := s.attributes(name)
		return encode(entryOut{Node: a.Ino, EntryValid: entrySeconds, Attr: a}), err
	case Getattr:
		a, err := s.attributes(name)
		return encode(attrOut{Attr: a}), err
	case Open, opendir:
		return encode(openOut{}), nil
	case Read:
		return s.read(name, arguments)
	case Statfs:
		return encode(statfsOut{BlockBytes: 4096, NameBytes: 255, FragmentBytes: 4096}), nil
	case Flush, release, readdir, releasedir:
		return nil, nil
	default:
		return nil, unix.ENOSYS
	}
}

func (s *server) attributes(name string) (attr, error) {
	info, err := s.source.Stat(relative(name))
	if err != nil {
		return attr{}, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	node := slices.Index(s.paths, name)
	if node < 0 {
		node = len(s.paths)
		s.paths = append(s.paths, name)
	}
	return attr{
		Ino: uint64(node + rootNode), Size: uint64(stat.Size), Blocks: uint64(stat.Blocks),
		Atime: uint64(stat.Atim.Sec), Mtime: uint64(stat.Mtim.Sec), Ctime: uint64(stat.Ctim.Sec),
		Mode: stat.Mode, Links: 1, UID: s.uid, GID: s.uid, Block: 4096,
	}, nil
}

func (s *server) read(name string, arguments []byte) ([]byte, error) {
	var in readIn
	if err := decode(arguments, &in); err != nil {
		return nil, err
	}
	f, err := s.source.Open(relative(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content := make([]byte, min(in.Size, 1<<20)) // the kernel asks for 128 KiB at most
	n, err := f.ReadAt(content, int64(in.Offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content[:n], nil
}

// relative returns the path of a file below the source.
func relative(name string) string { return path.Join(".", name) }
