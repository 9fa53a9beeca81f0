package process

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"correlator/internal/attach/processcontext"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/profile"
)

// This file is what a process publishes of itself: the process storage of Elastic's library. See
// otel.go for OpenTelemetry's process context, and contexts.go for what threads work on.

// Publishes reports whether the last Probe found something that the filter does not leave out.
func (t *Target) Publishes() bool { return (t.HasStorage() || t.HasContext()) && !t.filtered }

// NeedsNothing reports whether the process takes part whether it publishes anything or not.
func (t *Target) NeedsNothing() bool { return t.filter.All }

// Filtered reports whether the filter leaves out what the last Probe found.
func (t *Target) Filtered() bool { return t.filtered }

// HasStorage reports whether the last Probe found a process storage, with a socket to register at.
func (t *Target) HasStorage() bool { return t.publishing != nil }

// Storage returns the process storage that the last Probe found.
func (t *Target) Storage() memread.ProcessStorage { return t.storage }

// Service returns who the process is, by all that the last Probe found.
func (t *Target) Service() profile.Service { return t.service }

// Change is what a Probe found to be new.
type Change struct {
	Storage bool // another process storage, other contents, another image, or none any more
	Context bool // another process context, an update of it, or none any more; or the service is another
}

// Any reports whether anything is new.
func (c Change) Any() bool { return c.Storage || c.Context }

// Probe reads what the process publishes now, and reports what of that is new. Nothing published is
// memread.ErrNotPublished, unless Filter.All, and what the filter leaves out ErrServiceFiltered. Of several images that
// publish, the one that did so before is preferred. Where only one of a storage and a context can be
// read, that one counts: see Trouble.
func (t *Target) Probe() (Change, error) {
	hadStorage := t.HasStorage()
	changed, storageErr := t.readStorage()
	if access.TellsNothing(storageErr) {
		return Change{}, storageErr
	}
	if storageErr != nil {
		t.withdraw()
	}
	// What is new is kept until a Probe that ends has returned it.
	t.change.Storage = t.change.Storage || changed || hadStorage && !t.HasStorage()
	changed, contextErr := t.readContext()
	t.change.Context = t.change.Context || changed
	if access.TellsNothing(contextErr) {
		return Change{}, contextErr
	}
	change := t.change
	t.change = Change{}
	t.trouble = nil
	for _, err := range []error{storageErr, contextErr} {
		if err != nil && !errors.Is(err, memread.ErrNotPublished) && t.trouble == nil {
			t.trouble = err
		}
	}
	if !t.HasStorage() && !t.HasContext() && !t.filter.All {
		t.service, t.filtered = profile.Service{}, false
		return change, cmp.Or(t.trouble, memread.ErrNotPublished)
	}
	t.lookAtProgram()
	if t.readProgram(); t.program.fresh || change.Any() {
		t.program.fresh = false
		service := ServiceOf(t.otel.context, t.program.environment, t.storage, t.program.name())
		change.Context = change.Context || service != t.service && !change.Storage
		t.service = service
		t.filtered = !t.filter.matchesService(t.service.Name)
	}
	if t.filtered {
		return change, ErrServiceFiltered
	}
	return change, nil
}

// Trouble returns why one of a storage and a context cannot be read although the last Probe found the
// other, or nil.
func (t *Target) Trouble() error { return t.trouble }

func (t *Target) readStorage() (changed bool, err error) {
	if t.publishing != nil {
		changed, err = t.readImage(t.publishing)
		if !errors.Is(err, memread.ErrNotPublished) {
			return changed, err
		}
	}
	err = memread.ErrNotPublished
	for _, img := range t.images {
		changed, imgErr := t.readImage(img)
		if imgErr == nil {
			return changed, nil
		}
		if errors.Is(err, memread.ErrNotPublished) { // an image in trouble matters more than one that publishes nothing
			err = imgErr
		}
	}
	t.withdraw()
	return false, err
}

func (t *Target) readImage(img *image) (changed bool, err error) {
	addr, storage, err := t.memory.ReadProcessStorage(img.pointerAddr())
	if err != nil {
		return false, WithReason(ReasonStorageUnreadable, err)
	}
	if img == t.publishing && addr == t.storageAddr && storage == t.storage {
		return false, nil
	}
	t.withdraw()
	t.publishing, t.storageAddr, t.storage = img, addr, storage
	t.elastic.set(&img.library.Variable, img.bias)
	return true, nil
}

// withdraw forgets the storage that was published.
func (t *Target) withdraw() {
	t.publishing, t.storageAddr, t.storage = nil, 0, memread.ProcessStorage{}
	t.elastic.set(nil, 0)
}

// CheckPublishing checks that the process lives and publishes what it did at the last Probe, by the
// same library: then what was read just before is what this process, by this library, publishes.
// Else it returns procscan.ErrGone or ErrWithdrawn.
func (t *Target) CheckPublishing() error {
	if !t.handle.Alive() {
		return procscan.ErrGone
	}
	still, err := t.StillPublishing()
	if err == nil && !still {
		err = errWithdrawn
	}
	return err
}

// StillPublishing reports whether the pointer to the storage, the header of the process context, and
// the words that the rules were made from are what they were. After an exec, or when a library was
// loaded again, they are not; what was read by a rule just before is then of no use. With an error it
// is not known.
func (t *Target) StillPublishing() (bool, error) {
	if !t.HasStorage() && !t.HasContext() {
		return t.filter.All, nil
	}
	var requests []memread.Request
	var holds []func(memread.Request) bool
	expect := func(request memread.Request, hold func(memread.Request) bool) {
		requests, holds = append(requests, request), append(holds, hold)
	}
	same := func(want []byte) func(memread.Request) bool {
		return func(read memread.Request) bool { return read.Err == nil && bytes.Equal(read.Buf, want) }
	}
	if t.HasStorage() {
		pointer := binary.NativeEndian.AppendUint64(nil, t.storageAddr)
		expect(memread.Request{Addr: t.publishing.pointerAddr(), Buf: make([]byte, len(pointer))}, same(pointer))
	}
	if t.HasContext() {
		context := t.otel.context
		expect(memread.Request{Addr: t.otel.addr, Buf: make([]byte, processcontext.HeaderBytes)},
			func(read memread.Request) bool {
				return read.Err == nil && context.IsCurrent([processcontext.HeaderBytes]byte(read.Buf))
			})
	}
	for _, v := range []*variable{&t.elastic, &t.otel.variable} {
		if v.file != nil {
			expect(v.request(), v.holds)
		}
	}
	err := t.memory.ReadBatch(requests)
	if access.TellsNothing(err) {
		return false, err
	}
	if err != nil {
		return false, nil
	}
	for i, request := range requests {
		if !holds[i](request) {
			return false, nil
		}
	}
	return true, nil
}

// Original identifies the publication that a process shows: two processes show the same only if one
// is a copy of the other's memory, by a fork. Programs that are executed do not share addresses,
// but where their layout is not random; and then not their sockets, at the same path below the same
// root.
type Original struct {
	Place   procscan.Place
	Addr    uint64
	Storage memread.ProcessStorage
}

// original identifies what the last Probe found.
func (t *Target) original() (Original, error) {
	place, err := t.access.Place()
	return Original{Place: place, Addr: t.storageAddr, Storage: t.storage}, err
}

// Dial connects to the socket that the process published, with the rights of the program that
// published it: an exec may have given the process others meanwhile. An exec replaces the memory
// before the credentials, so those are the publisher's if what it published is there after they
// were read. Messages show sender.
func (t *Target) Dial(sender messaging.SenderPID) (*messaging.Socket, error) {
	creds, err := t.handle.Credentials()
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}
	if still, err := t.StillPublishing(); err != nil {
		return nil, err
	} else if !still {
		return nil, WithReason(ReasonStorageChanging, errWithdrawn)
	}
	return t.access.Connect(t.storage.SocketPath, messaging.Credentials(creds), sender)
}

// SocketIs reports whether the path that the process published still leads to that socket file, so
// far as can be found out while workers hang.
func (t *Target) SocketIs(identity messaging.SocketID) bool {
	now, err := t.access.IdentifySocket(t.storage.SocketPath)
	return access.TellsNothing(err) || err == nil && now == identity
}
