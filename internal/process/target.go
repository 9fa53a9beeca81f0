package process

import (
	"errors"
	"math"
	"strconv"
	"time"

	"correlator/internal/access"
	"correlator/internal/worker"
	"correlator/memread"
	"correlator/procscan"
	"correlator/tlsdesc"
)

var (
	// ErrNotTarget: the process maps only libraries of agents that are too old to take part.
	ErrNotTarget = errors.New("library of an older agent")
	// ErrUnmapped: the process lives, and no longer maps the library.
	ErrUnmapped = errors.New("library is no longer mapped")
	// errWithdrawn: what was published is not there any more.
	errWithdrawn = errors.New("process storage was withdrawn or replaced")
)

// Target is what is known of a process that maps the library: its copies of the library, the one
// that publishes, what it publishes, and where its threads' slots lie. It is used by one goroutine
// at a time. What its methods read in procfs blocks for as long as the process makes it.
type Target struct {
	procRoot string
	filter   Filter
	handle   *procscan.Handle
	user     uint32
	access   *access.Process
	memory   *memread.Process

	mappings []procscan.Mapping // of the library, so far as known
	stale    bool               // images are not all those of mappings (yet)
	loaded   time.Time          // when that was last tried
	images   []*image           // what can be used of mappings
	cgroup   procscan.Cgroup    // as at the last Load

	// What the last Probe found; publishing is nil when that was nothing.
	publishing  *image
	storageAddr uint64
	storage     memread.ProcessStorage
	filtered    bool // the filter leaves out the storage's service

	rule    tlsdesc.Rule // of publishing
	ruleErr error        // why rule is not valid; nil when it is
	pair    pair         // what the loader had stored when rule was made
	tried   time.Time    // when making the rule was last tried
}

// Open checks nothing but the identity of the process; Load comes next. The caller must Close. The
// error is procscan.ErrGone when the process has ended.
func Open(client *access.Client, procRoot string, found procscan.Found, filter Filter) (*Target, error) {
	handle, err := procscan.OpenProcess(procRoot, found.ProcessID)
	if err != nil {
		return nil, err
	}
	user := UnknownUser
	if credentials, err := handle.Credentials(); err == nil { // else it is gone, or hidden from us
		user = credentials.UID
	}
	process := client.Process(found.ProcessID, ownerOf(handle, user))
	return &Target{
		procRoot: procRoot,
		filter:   filter,
		handle:   handle,
		user:     user,
		access:   process,
		memory:   memread.OpenRemote(procRoot, found.PID, process.ReadBatch),
		mappings: found.Libraries,
		stale:    true,
		ruleErr:  tlsdesc.ErrUnresolved,
	}, nil
}

// UnknownUser is the user of a process whose user is not known: -1, which no process can have.
const UnknownUser uint32 = math.MaxUint32

// ownerOf returns whose bounds a process counts against: root, for example, is another one in each
// container.
func ownerOf(handle *procscan.Handle, user uint32) worker.User {
	owner := strconv.FormatUint(uint64(user), 10)
	if cgroup, err := handle.Cgroup(); err == nil && cgroup.ContainerID != "" {
		owner += "@" + cgroup.ContainerID
	}
	return worker.User(owner)
}

// User returns the user of the process when it was opened, or UnknownUser.
func (t *Target) User() uint32 { return t.user }

// Close closes the descriptors that the target holds.
func (t *Target) Close() {
	t.memory.Close()
	t.handle.Close()
}

// Handle returns the handle of the process, which the target closes.
func (t *Target) Handle() *procscan.Handle { return t.handle }

// Access returns access to what the process controls.
func (t *Target) Access() *access.Process { return t.access }

// Owner returns whose bounds requests for the process count against.
func (t *Target) Owner() worker.User { return t.access.Owner() }

// Cgroup returns the cgroup that the process was in when its libraries were loaded last.
func (t *Target) Cgroup() procscan.Cgroup { return t.cgroup }

// Describe puts what is known into a view.
func (t *Target) Describe(view *View) {
	view.ServiceName, view.ServiceEnvironment = t.storage.ServiceName, t.storage.ServiceEnvironment
	view.SocketPath = t.storage.SocketPath
	view.ContainerID, view.CgroupPath = t.cgroup.ContainerID, t.cgroup.Path
	view.Libc, view.TLS = "", unresolved
	if t.ruleErr == nil {
		view.TLS = t.rule.Kind.String()
		if t.rule.Libc != tlsdesc.LibcUnknown {
			view.Libc = t.rule.Libc.String()
		}
	}
	if len(t.mappings) > 0 {
		view.Library = t.mappings[0].Path
	}
	if t.publishing != nil {
		view.Library = t.publishing.mapping.Path
	}
}
