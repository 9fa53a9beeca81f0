package agent

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

// errNotTarget: the process maps only libraries of agents that are too old to take part.
var errNotTarget = errors.New("library of an older agent")

// errWithdrawn: what was published is not there any more.
var errWithdrawn = errors.New("process storage was withdrawn or replaced")

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

// target is what one learns of a process that maps the library: its copies of the library, the
// one that publishes, what it publishes, and where its threads' slots lie. It is used by one
// goroutine at a time. All its methods may block for as long as the process makes them.
type target struct {
	handle *procscan.Handle
	memory *memread.Process

	mappings []procscan.Mapping // of the library, as told last
	stale    bool               // images are not all those of mappings (yet)
	loaded   time.Time          // when that was last tried
	images   []*image           // what can be used of mappings

	// What was published at the last look; publishing is nil when nothing was.
	publishing  *image
	storageAddr uint64
	storage     memread.ProcessStorage

	rule    tlsdesc.Rule // of publishing
	ruleErr error        // why rule is not valid; nil when it is
	pair    pair         // what the loader had stored when rule was made
	tried   time.Time    // when rule was last asked for
}

// pair is the two words that the TLS relocation fills. The loader stores others when the library
// is loaded anew.
type pair [16]byte

// resolveInterval limits how often the mappings of a process are read for a rule that is not
// resolved yet.
const resolveInterval = 100 * time.Millisecond

// openTarget looks at nothing but the identity of the process; load comes next.
func openTarget(procRoot string, found procscan.Found) (*target, error) {
	handle, err := procscan.OpenProcess(procRoot, found.Identity)
	if err != nil {
		return nil, err
	}
	return &target{
		handle:   handle,
		memory:   memread.Open(procRoot, found.PID),
		mappings: found.Libraries,
		stale:    true,
		ruleErr:  tlsdesc.ErrUnresolved,
	}, nil
}

func (t *target) close() {
	t.memory.Close()
	t.handle.Close()
}

// setMappings says where the process maps the library now; load is due.
func (t *target) setMappings(mappings []procscan.Mapping) {
	t.mappings, t.stale, t.loaded = mappings, true, time.Time{}
}

// loadDue says whether there are libraries to load: new ones, or some that could not be used a
// while ago. A process that has no other is tried at its own pace.
func (t *target) loadDue() bool {
	return t.stale && (len(t.images) == 0 || time.Since(t.loaded) >= retryMax)
}

// load opens and parses the libraries that the process maps, as far as that is still to be done.
// When some cannot be used the error is that of the first, and the others serve all the same.
// errNotTarget says that there is nothing to serve, nor anything wrong.
func (t *target) load(files *elfsym.Cache) error {
	t.loaded = time.Now()
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
		case err != nil && firstErr == nil:
			firstErr = err
		case err == nil && !slices.ContainsFunc(t.images, img.same):
			t.images = append(t.images, img)
		}
	}
	if !slices.Contains(t.images, t.publishing) {
		t.withdraw()
	}
	t.stale = firstErr != nil || len(t.images) == 0
	if t.stale && firstErr == nil {
		return errNotTarget
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

func (t *target) open(files *elfsym.Cache, mapping procscan.Mapping) (*image, error) {
	f, err := t.handle.OpenLibrary(mapping)
	if err != nil {
		return nil, inStage(ReasonLibraryUnreadable, fmt.Errorf("opening library %q: %w", mapping.Path, err))
	}
	defer f.Close()
	library, err := files.Library(f)
	if err != nil {
		return nil, inStage(ReasonLibraryMalformed, fmt.Errorf("parsing library %q: %w", mapping.Path, err))
	}
	bias, ok := library.Bias(mapping.Start, mapping.Offset)
	if !ok {
		return nil, inStage(ReasonLibraryMalformed,
			fmt.Errorf("parsing library %q: no segment begins at the mapped offset %#x", mapping.Path, mapping.Offset))
	}
	return &image{mapping: mapping, bias: bias, library: library}, nil
}

// look reads what the process publishes now, and answers whether that is new: another storage,
// other contents, or another image. Nothing published is memread.ErrNotPublished. Of several
// images that publish, the one that did so before keeps its right.
func (t *target) look() (changed bool, err error) {
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

func (t *target) lookAt(img *image) (changed bool, err error) {
	addr, storage, err := t.memory.ReadProcessStorage(img.pointerAddr())
	if err != nil {
		return false, inStage(ReasonStorageUnreadable, err)
	}
	if img == t.publishing && addr == t.storageAddr && storage == t.storage {
		return false, nil
	}
	t.withdraw()
	t.publishing, t.storageAddr, t.storage = img, addr, storage
	return true, nil
}

// withdraw forgets what was published.
func (t *target) withdraw() {
	t.publishing, t.storageAddr, t.storage = nil, 0, memread.ProcessStorage{}
	t.forgetRule()
}

// stillPublishing says whether the pointer to the storage, and the words that the rule was made
// from, are what they were. It is one system call. After an exec, or when the library was loaded
// anew, they are not; what was read by the rule just before is then of no use.
func (t *target) stillPublishing() bool {
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

// stillMapped says whether all libraries are mapped where they were.
func (t *target) stillMapped() (bool, error) {
	for _, mapping := range t.mappings {
		if mapped, err := t.handle.Maps(mapping); err != nil || !mapped {
			return false, err
		}
	}
	return true, nil
}

// forgetRule has the rule made anew.
func (t *target) forgetRule() {
	t.rule, t.ruleErr, t.tried = tlsdesc.Rule{}, tlsdesc.ErrUnresolved, time.Time{}
}

// resolve finds where the threads' slots lie, for the image that publishes, unless that is known.
func (t *target) resolve() error {
	if t.publishing == nil || !errors.Is(t.ruleErr, tlsdesc.ErrUnresolved) || time.Since(t.tried) < resolveInterval {
		return t.ruleErr
	}
	t.tried = time.Now()
	mappings, err := t.handle.ExecutableMappings()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return err
	}
	files := make([]tlsdesc.Mapping, len(mappings))
	for i, m := range mappings {
		files[i] = tlsdesc.Mapping{Start: m.Start, End: m.End, Path: m.Path}
	}
	img := t.publishing
	if _, err := t.memory.Read(img.pairAddr(), t.pair[:]); err != nil {
		return err
	}
	t.rule, t.ruleErr = tlsdesc.Resolve(img.library, img.bias, t.memory, files)
	return t.ruleErr
}

// dial connects to the socket that the process published, with the rights of the program that
// published it: an exec may have given the process others meanwhile. It replaces the memory before
// the credentials, so those are the publisher's if what it published is there after they were read.
func (t *target) dial() (*messaging.Socket, error) {
	creds, err := t.handle.Credentials()
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}
	if !t.stillPublishing() {
		return nil, inStage(ReasonStorageChanging, errWithdrawn)
	}
	root, err := t.handle.OpenRoot()
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	defer root.Close()
	return messaging.Dial(root, t.storage.SocketPath, messaging.Credentials(creds))
}

// socketIs says whether the path that the process published still leads to that socket file.
func (t *target) socketIs(identity messaging.Identity) bool {
	root, err := t.handle.OpenRoot()
	if err != nil {
		return false
	}
	defer root.Close()
	now, err := messaging.Identify(root, t.storage.SocketPath)
	return err == nil && now == identity
}

// describe puts what was learned into a view.
func (t *target) describe(view *Process) {
	view.ServiceName, view.ServiceEnvironment = t.storage.ServiceName, t.storage.ServiceEnvironment
	view.SocketPath = t.storage.SocketPath
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
