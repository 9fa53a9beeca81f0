package process

import (
	"errors"
	"time"

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
// at a time. All its methods may block for as long as the process makes them.
type Target struct {
	procRoot string
	filter   Filter
	handle   *procscan.Handle
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
func Open(procRoot string, found procscan.Found, filter Filter) (*Target, error) {
	handle, err := procscan.OpenProcess(procRoot, found.ProcessID)
	if err != nil {
		return nil, err
	}
	return &Target{
		procRoot: procRoot,
		filter:   filter,
		handle:   handle,
		memory:   memread.Open(procRoot, found.PID),
		mappings: found.Libraries,
		stale:    true,
		ruleErr:  tlsdesc.ErrUnresolved,
	}, nil
}

// Close closes the descriptors that the target holds.
func (t *Target) Close() {
	t.memory.Close()
	t.handle.Close()
}

// Handle returns the handle of the process, which the target closes.
func (t *Target) Handle() *procscan.Handle { return t.handle }

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
