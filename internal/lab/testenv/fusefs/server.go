package fusefs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Op is the kind of a request: opcodes of linux/fuse.h.
type Op uint32

// Those that can hang.
const (
	Lookup  Op = 1
	Getattr Op = 3
	Open    Op = 14
	Read    Op = 15
	Statfs  Op = 17
	Flush   Op = 25 // of close
)

// entrySeconds is how long the kernel knows a name that exists without asking again. Overlayfs
// would ask as whoever accesses it, not as its mounter, and fail with ESTALE for users that have
// no id in the user namespace.
const entrySeconds = 1 << 20

// optionsVariable is set in the environment of a process that is the server.
const optionsVariable = "FUSEFS_SERVER"

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
	s := &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), events: json.NewEncoder(os.Stdout),
		paths: []string{"/"}, answered: make(chan struct{})}
	if err := s.main(text); err != nil {
		fmt.Fprintln(os.Stderr, "FUSE server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// server is the file system. What it does not implement is not supported.
type server struct {
	fuse.RawFileSystem
	source *os.Root // held open: something may be mounted over its path
	uid    uint32   // of all files

	mu       sync.Mutex // all below
	events   *json.Encoder
	paths    []string // of nodes, by number, from the root's on; never removed
	rules    []command
	answered chan struct{} // closed when the requests that hang may go on
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
	device, err := mount(o)
	if err != nil {
		return s.events.Encode(event{Missing: err.Error()})
	}
	// It is mounted already. Who reads waits for the answer itself, not for a page, and cannot be
	// killed.
	served, err := fuse.NewServer(s, fmt.Sprintf("/dev/fd/%d", device), &fuse.MountOptions{SyncRead: true})
	if err != nil {
		return fmt.Errorf("beginning to serve: %w", err)
	}
	if err := s.events.Encode(event{Mounted: true}); err != nil {
		return err
	}
	go s.obey()
	served.Serve()
	return nil
}

// mount mounts the file system: nothing is asked of the server before it serves.
func mount(o options) (device int, err error) {
	if device, err = unix.Open(o.Device, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return 0, fmt.Errorf("opening /dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%[2]d,group_id=%[2]d,default_permissions", device, o.DropTo)
	if o.AllowOther {
		data += ",allow_other"
	}
	if err := unix.Mount("fusefs", o.Target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return 0, fmt.Errorf("mounting: %w", err)
	}
	if o.DropTo == 0 {
		return device, nil
	}
	return device, errors.Join(syscall.Setgroups(nil), syscall.Setgid(o.DropTo), syscall.Setuid(o.DropTo))
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
			close(s.answered)
			s.rules, s.answered = nil, make(chan struct{})
		} else {
			s.rules = append(s.rules, c)
		}
		_ = s.events.Encode(event{}) // the test has ended if nobody reads it
		s.mu.Unlock()
	}
}

// request returns the path that a request is about, relative to the source, when it may be
// answered.
func (s *server) request(op Op, header *fuse.InHeader, child string) string {
	s.mu.Lock()
	var name string
	if i := header.NodeId - fuse.FUSE_ROOT_ID; i < uint64(len(s.paths)) {
		name = path.Join(s.paths[i], child)
	}
	hangs := slices.ContainsFunc(s.rules, func(c command) bool {
		matches, err := path.Match(c.Pattern, name)
		return c.Hang == op && err == nil && matches
	})
	if hangs {
		_ = s.events.Encode(event{Taken: &Request{Op: op, Path: name, TID: int(header.Pid)}})
	}
	answered := s.answered
	s.mu.Unlock()
	if hangs {
		<-answered
	}
	return path.Join(".", name)
}

func (s *server) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	status := s.attributes(s.request(Lookup, header, name), &out.Attr)
	out.NodeId, out.EntryValid = out.Ino, entrySeconds
	return status
}

func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return s.attributes(s.request(Getattr, &in.InHeader, ""), &out.Attr)
}

func (s *server) attributes(relative string, out *fuse.Attr) fuse.Status {
	info, err := s.source.Stat(relative)
	if err != nil {
		return fuse.ToStatus(err)
	}
	out.FromStat(info.Sys().(*syscall.Stat_t))
	out.Nlink, out.Owner = 1, fuse.Owner{Uid: s.uid, Gid: s.uid}
	name := path.Join("/", relative)
	s.mu.Lock()
	defer s.mu.Unlock()
	node := slices.Index(s.paths, name)
	if node < 0 {
		node = len(s.paths)
		s.paths = append(s.paths, name)
	}
	out.Ino = uint64(node + fuse.FUSE_ROOT_ID)
	return fuse.OK
}

func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	s.request(Open, &in.InHeader, "")
	return fuse.OK // without flags: no contents from earlier stay cached
}

func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, content []byte) (fuse.ReadResult, fuse.Status) {
	f, err := s.source.Open(s.request(Read, &in.InHeader, ""))
	if err != nil {
		return nil, fuse.ToStatus(err)
	}
	defer f.Close()
	n, err := f.ReadAt(content, int64(in.Offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fuse.ToStatus(err)
	}
	return fuse.ReadResultData(content[:n]), fuse.OK
}

func (s *server) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	s.request(Flush, &in.InHeader, "")
	return fuse.OK
}

func (s *server) StatFs(_ <-chan struct{}, header *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	s.request(Statfs, header, "")
	*out = fuse.StatfsOut{Bsize: 4096, NameLen: 255, Frsize: 4096}
	return fuse.OK
}

func (s *server) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

func (s *server) ReadDir(<-chan struct{}, *fuse.ReadIn, *fuse.DirEntryList) fuse.Status {
	return fuse.OK
}
