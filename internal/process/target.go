package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"correlator/elfsym"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/tlsdesc"
)

var (
	// ErrNotTarget: the process maps only libraries of agents that are too old to take part.
	ErrNotTarget = errors.New("library of an older agent")
	// ErrUnmapped: the process lives, and no longer maps the library.
	ErrUnmapped = errors.New("library is no longer mapped")
	// ErrWithdrawn: what was published is not there any more.
	ErrWithdrawn = errors.New("process storage was withdrawn or replaced")
)

// LibraryCacheEntries is how many distinct library files are worth remembering: one per image
// and extraction that runs at a time, of a few hundred bytes each.
const LibraryCacheEntries = 1024

// image is one copy of the library as it is mapped in a process.
type image struct {
	mapping procscan.Mapping
	bias    uint64
	library *elfsym.Library
}

// pointerAddr is where the image's pointer to the process storage lies.
func (i *image) pointerAddr() uint64 { return i.bias + i.library.StorageAddr }

// pairAddr is where the words lie that the image's TLS relocation fills.
func (i *image) pairAddr() uint64 { return i.bias + i.library.Relocation.Addr }

// Target is what one learns of a process that maps the library: its copies of the library, the
// one that publishes, what it publishes, and where its threads' slots lie. It is used by one
// goroutine at a time. All its methods may block for as long as the process makes them.
type Target struct {
	procRoot string
	filter   Filter
	handle   *procscan.Handle
	memory   *memread.Process

	mappings []procscan.Mapping // of the library, as told last
	stale    bool               // images are not all those of mappings (yet)
	loaded   time.Time          // when that was last tried
	images   []*image           // what can be used of mappings
	cgroup   procscan.Cgroup    // as at the last Load

	// What was published at the last look; publishing is nil when nothing was.
	publishing  *image
	storageAddr uint64
	storage     memread.ProcessStorage
	filtered    bool // the filter leaves out the storage's service

	rule    tlsdesc.Rule // of publishing
	ruleErr error        // why rule is not valid; nil when it is
	pair    pair         // what the loader had stored when rule was made
	tried   time.Time    // when rule was last asked for
}

// pair is the two words that the TLS relocation fills. The loader stores others when the library
// is loaded anew.
type pair [16]byte

// reloadInterval is how often libraries are tried again that could not be used, beside others that
// can.
const reloadInterval = 30 * time.Second

// resolveInterval limits how often the mappings of a process are read for a rule that is not
// resolved yet.
const resolveInterval = 100 * time.Millisecond

// Open looks at nothing but the identity of the process; Load comes next. The caller must Close.
// The error is procscan.ErrGone when the process has ended.
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

// Close gives back the descriptors that the target holds.
func (t *Target) Close() {
	t.memory.Close()
	t.handle.Close()
}

// Handle holds the process. It stays the target's.
func (t *Target) Handle() *procscan.Handle { return t.handle }

// Images says whether there is a copy of the library that can be used.
func (t *Target) Images() bool { return len(t.images) > 0 }

// Publishes says whether a storage was found at the last look that the filter does not leave out.
func (t *Target) Publishes() bool { return t.publishing != nil && !t.filtered }

// Filtered says whether what was published at the last look is left out by the filter.
func (t *Target) Filtered() bool { return t.filtered }

// Cgroup is where the process stood when its libraries were loaded last.
func (t *Target) Cgroup() procscan.Cgroup { return t.cgroup }

// Storage is what was published at the last look.
func (t *Target) Storage() memread.ProcessStorage { return t.storage }

// Rule is where the threads' slots lie; the error says why that is not known: tlsdesc.ErrUnresolved
// while Resolve may still find out.
func (t *Target) Rule() (tlsdesc.Rule, error) { return t.rule, t.ruleErr }

// LoadDue says whether there are libraries to load: new ones, or some that could not be used a
// while ago. A process that has no other is tried at its own pace.
func (t *Target) LoadDue() bool {
	return t.stale && (len(t.images) == 0 || time.Since(t.loaded) >= reloadInterval)
}

// Load opens and parses the libraries that the process maps, as far as that is still to be done.
// When some cannot be used the error is that of the first, and the others serve all the same.
// ErrNotTarget says that there is nothing to serve, nor anything wrong. With ErrContainerFiltered none
// was opened, and none is there to be used; as long as that is so, each Load asks again.
func (t *Target) Load(files *elfsym.Cache) error {
	t.loaded = time.Now()
	if err := t.admit(); err != nil {
		t.images, t.stale = nil, true
		t.withdraw()
		return err
	}
	known := t.images
	t.images = nil
	var firstErr error
	for _, mapping := range t.mappings {
		if i := slices.IndexFunc(known, func(i *image) bool { return i.isAt(mapping) }); i >= 0 {
			t.images = append(t.images, known[i])
			continue
		}
		img, err := t.open(files, mapping)
		switch {
		case errors.Is(err, elfsym.ErrNoSymbols):
			continue
		case err != nil && firstErr == nil:
			firstErr = err
		}
		if err != nil || slices.ContainsFunc(t.images, img.same) {
			continue
		}
		// The loader may have been at work when the mappings were looked at before: first it maps
		// all of the file, and then each segment over that.
		if i := slices.IndexFunc(known, img.same); i >= 0 {
			known[i].mapping = mapping
			img = known[i]
		}
		t.images = append(t.images, img)
	}
	if !slices.Contains(t.images, t.publishing) {
		t.withdraw()
	}
	t.stale = firstErr != nil || len(t.images) == 0
	if t.stale && firstErr == nil {
		return ErrNotTarget
	}
	return firstErr
}

// isAt says whether a mapping is the image's: the same file at the same place. That it was unlinked
// in between changes nothing.
func (i *image) isAt(mapping procscan.Mapping) bool {
	mapping.Deleted = i.mapping.Deleted
	return i.mapping == mapping
}

// same says whether two executable mappings are parts of one copy of the library.
func (i *image) same(other *image) bool {
	return i.bias == other.bias && i.mapping.Dev == other.mapping.Dev && i.mapping.Ino == other.mapping.Ino
}

func (t *Target) open(files *elfsym.Cache, mapping procscan.Mapping) (*image, error) {
	f, err := t.handle.OpenMapped(mapping)
	if err != nil {
		return nil, WithReason(ReasonLibraryUnreadable, fmt.Errorf("opening library %q: %w", mapping.Path, err))
	}
	defer f.Close()
	library, err := files.Library(f)
	if err != nil {
		return nil, WithReason(ReasonLibraryMalformed, fmt.Errorf("parsing library %q: %w", mapping.Path, err))
	}
	bias, ok := library.Bias(mapping.Start, mapping.Offset)
	if !ok {
		return nil, WithReason(ReasonLibraryMalformed,
			fmt.Errorf("parsing library %q: no segment begins at the mapped offset %#x", mapping.Path, mapping.Offset))
	}
	return &image{mapping: mapping, bias: bias, library: library}, nil
}

// Probe reads what the process publishes now, and answers whether that is new: another storage,
// other contents, or another image. Nothing published is memread.ErrNotPublished, and what the filter
// leaves out ErrServiceFiltered. Of several images that publish, the one that did so before keeps its
// right.
func (t *Target) Probe() (changed bool, err error) {
	changed, err = t.look()
	if err == nil && t.filtered {
		return false, ErrServiceFiltered
	}
	return changed, err
}

func (t *Target) look() (changed bool, err error) {
	if t.publishing != nil {
		changed, err = t.lookAt(t.publishing)
		if !errors.Is(err, memread.ErrNotPublished) {
			return changed, err
		}
	}
	err = memread.ErrNotPublished
	for _, img := range t.images {
		changed, imgErr := t.lookAt(img)
		if imgErr == nil {
			return changed, nil
		}
		if errors.Is(err, memread.ErrNotPublished) { // an image in trouble tells more than one that is silent
			err = imgErr
		}
	}
	t.withdraw()
	return false, err
}

func (t *Target) lookAt(img *image) (changed bool, err error) {
	addr, storage, err := t.memory.ReadProcessStorage(img.pointerAddr())
	if err != nil {
		return false, WithReason(ReasonStorageUnreadable, err)
	}
	if img == t.publishing && addr == t.storageAddr && storage == t.storage {
		return false, nil
	}
	t.withdraw()
	t.publishing, t.storageAddr, t.storage = img, addr, storage
	t.filtered = !t.filter.Service(storage.ServiceName)
	return true, nil
}

// withdraw forgets what was published.
func (t *Target) withdraw() {
	t.publishing, t.storageAddr, t.storage, t.filtered = nil, 0, memread.ProcessStorage{}, false
	t.ForgetRule()
}

// CheckPublishing makes sure that the process lives and publishes what it did at the last look, by the same
// library: then what was read just before is what this process, by this library, says. Else it
// answers procscan.ErrGone or ErrWithdrawn.
func (t *Target) CheckPublishing() error {
	if !t.handle.Alive() {
		return procscan.ErrGone
	}
	if !t.StillPublishing() {
		return ErrWithdrawn
	}
	return nil
}

// StillPublishing says whether the pointer to the storage, and the words that the rule was made
// from, are what they were. It is one system call. After an exec, or when the library was loaded
// anew, they are not; what was read by the rule just before is then of no use.
func (t *Target) StillPublishing() bool {
	if t.publishing == nil {
		return false
	}
	var pointer [8]byte
	var now pair
	requests := [...]memread.Request{
		{Addr: t.publishing.pointerAddr(), Buf: pointer[:]},
		{Addr: t.publishing.pairAddr(), Buf: now[:]},
	}
	if t.memory.ReadBatch(requests[:]) != nil || requests[0].Err != nil || requests[1].Err != nil {
		return false
	}
	return binary.NativeEndian.Uint64(pointer[:]) == t.storageAddr && (t.ruleErr != nil || now == t.pair)
}

// ForgetRule has the rule made anew.
func (t *Target) ForgetRule() {
	t.rule, t.ruleErr, t.tried = tlsdesc.Rule{}, tlsdesc.ErrUnresolved, time.Time{}
}

// Resolve finds where the threads' slots lie, for the image that publishes, unless that is known.
func (t *Target) Resolve() error {
	if t.publishing == nil || !errors.Is(t.ruleErr, tlsdesc.ErrUnresolved) || time.Since(t.tried) < resolveInterval {
		return t.ruleErr
	}
	t.tried = time.Now()
	mappings, err := t.handle.ExecutableMappings()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return err
	}
	img := t.publishing
	if _, err := t.memory.Read(img.pairAddr(), t.pair[:]); err != nil {
		return err
	}
	t.rule, t.ruleErr = tlsdesc.Resolve(img.library, img.bias, t.memory, mappings)
	t.ruleErr = WithReason(ReasonTLS, t.ruleErr)
	return t.ruleErr
}

// Dial connects to the socket that the process published, with the rights of the program that
// published it: an exec may have given the process others meanwhile. It replaces the memory before
// the credentials, so those are the publisher's if what it published is there after they were read.
func (t *Target) Dial() (*messaging.Socket, error) {
	creds, err := t.handle.Credentials()
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}
	if !t.StillPublishing() {
		return nil, WithReason(ReasonStorageChanging, ErrWithdrawn)
	}
	root, err := t.handle.OpenRoot()
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	defer root.Close()
	return messaging.Dial(t.procRoot, root, t.storage.SocketPath, messaging.Credentials(creds))
}

// SocketIs says whether the path that the process published still leads to that socket file.
func (t *Target) SocketIs(identity messaging.SocketID) bool {
	root, err := t.handle.OpenRoot()
	if err != nil {
		return false
	}
	defer root.Close()
	now, err := messaging.Identify(root, t.storage.SocketPath)
	return err == nil && now == identity
}

// Describe puts what was learned into a view.
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
