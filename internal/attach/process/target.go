package process

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/procscan"
	"correlator/profile"
)

var (
	// ErrNotTarget: the process maps only libraries of agents that are too old to take part.
	ErrNotTarget = errors.New("library of an older agent")
	// ErrUnmapped: the process lives, and maps neither the library nor a process context any more.
	ErrUnmapped = errors.New("neither a library nor a process context is mapped any more")
	// errWithdrawn: what was published is not there any more.
	errWithdrawn = errors.New("what was published was withdrawn or replaced")
)

// Target is what is known of a process that maps Elastic's library or a process context: its copies
// of the library, the one that publishes, what it publishes by either standard, and where its threads
// have what they work on. It is used by one goroutine at a time. What its methods read in procfs
// blocks for as long as the process makes it.
type Target struct {
	procRoot string
	filter   Filter
	handle   *procscan.Handle
	user     uint32
	access   *access.Process
	memory   *memread.Process

	mappings []procscan.Mapping // of Elastic's library, so far as known
	stale    bool               // images are not all those of mappings (yet)
	loaded   time.Time          // when that was last tried
	images   []*image           // what can be used of mappings
	admitted bool               // the last Load was not refused by the filter
	cgroup   procscan.Cgroup    // as at the last Load

	// What the last Probe found; publishing is nil when that was nothing.
	publishing  *image
	storageAddr uint64
	storage     memread.ProcessStorage
	elastic     variable // of publishing

	otel    otelPublication
	trouble error           // why one of both cannot be read, while the other can
	service profile.Service // by all that was found

	labels goLabels // of the program that runs
	ofOBI  bool     // see SetOBI

	filtered bool // the filter leaves out the service

	program program // that runs
	change  Change  // what was found to be new, and not returned yet
}

// Open checks nothing but the identity of the process; Load comes next. The caller must Close. The
// error is procscan.ErrGone when the process has ended.
func Open(client *access.Client, procRoot string, found procscan.Found, filter Filter) (*Target, error) {
	handle, err := procscan.OpenProcess(procRoot, found.ProcessID)
	if err != nil {
		return nil, err
	}
	t := &Target{
		procRoot: procRoot,
		filter:   filter,
		handle:   handle,
		stale:    true,
	}
	t.SetMappings(found.Libraries, found.Contexts)
	t.elastic.set(nil, 0)
	var owner worker.User
	t.user, owner = t.readOwner()
	t.access = client.Process(found.ProcessID, owner)
	t.memory = memread.OpenRemote(procRoot, found.PID, t.access.ReadBatch)
	return t, nil
}

// readOwner reads the process's user, and whose bounds it counts against. It does not block.
func (t *Target) readOwner() (user uint32, owner worker.User) {
	user = UnknownUser
	if credentials, err := t.handle.Credentials(); err == nil { // else it is gone, or hidden from us
		user = credentials.UID
	}
	cgroup, _, _ := t.handle.Cgroup(t.filter.roots) // the zero value with an error
	return user, ownerOf(user, cgroup)
}

// UnknownUser is the user of a process whose user is not known: -1, which no process can have.
const UnknownUser uint32 = math.MaxUint32

// ownerOf returns whose bounds a process counts against: its container's, where root can take on any
// user, or else its user's.
func ownerOf(user uint32, cgroup procscan.Cgroup) worker.User {
	if id := containerOf(cgroup); id != "" {
		return worker.User(id)
	}
	return worker.User(strconv.FormatUint(uint64(user), 10))
}

// containerOf returns the container that a process cannot choose itself: the outermost one, because
// those below may be cgroups that the processes of a container have made, and none below user.slice,
// where users make cgroups.
func containerOf(cgroup procscan.Cgroup) string {
	outermost := cgroup
	for above, ok := cgroup.Parent(); ok && above.ContainerID != ""; above, ok = above.Parent() {
		outermost = above
	}
	if strings.Contains(outermost.Path, "/user.slice/") {
		return ""
	}
	return outermost.ContainerID
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

// Owner returns whose bounds the process counts against, as of when it was opened: a container, or a
// user outside of containers.
func (t *Target) Owner() worker.User { return t.access.Owner() }

// CurrentOwner returns the Owner that the process would have if it were opened now: it may have
// become another user. It does not block. The error is procscan.ErrGone.
func (t *Target) CurrentOwner() (worker.User, error) {
	_, owner := t.readOwner()
	if !t.handle.Alive() {
		return "", procscan.ErrGone
	}
	return owner, nil
}

// Cgroup returns the cgroup that the process was in when its libraries were loaded last.
func (t *Target) Cgroup() procscan.Cgroup { return t.cgroup }
