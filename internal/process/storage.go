package process

import (
	"encoding/binary"
	"errors"
	"fmt"

	"correlator/internal/access"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
)

// This file is what a process publishes of itself: the process storage of the Elastic library.
// Another way to publish that has its place beside it, with contexts.go for what its threads work
// on.

// Publishes reports whether the last Probe found a storage that the filter does not leave out.
func (t *Target) Publishes() bool { return t.publishing != nil && !t.filtered }

// Filtered reports whether the filter leaves out what the last Probe found.
func (t *Target) Filtered() bool { return t.filtered }

// Storage returns what the last Probe found.
func (t *Target) Storage() memread.ProcessStorage { return t.storage }

// Probe reads what the process publishes now, and reports whether that is new: another storage,
// other contents, or another image. Nothing published is memread.ErrNotPublished, and what the
// filter leaves out ErrServiceFiltered. Of several images that publish, the one that did so before
// is preferred.
func (t *Target) Probe() (changed bool, err error) {
	changed, err = t.readStorage()
	if err == nil && t.filtered {
		return false, ErrServiceFiltered
	}
	return changed, err
}

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
	t.filtered = !t.filter.matchesService(storage.ServiceName)
	return true, nil
}

// withdraw forgets what was published.
func (t *Target) withdraw() {
	t.publishing, t.storageAddr, t.storage, t.filtered = nil, 0, memread.ProcessStorage{}, false
	t.ForgetRule()
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

// StillPublishing reports whether the pointer to the storage, and the words that the rule was made
// from, are what they were. After an exec, or when the library was loaded again, they are not; what
// was read by the rule just before is then of no use. With an error it is not known.
func (t *Target) StillPublishing() (bool, error) {
	if t.publishing == nil {
		return false, nil
	}
	var pointer [8]byte
	var now pair
	requests := [...]memread.Request{
		{Addr: t.publishing.pointerAddr(), Buf: pointer[:]},
		{Addr: t.publishing.pairAddr(), Buf: now[:]},
	}
	err := t.memory.ReadBatch(requests[:])
	if access.TellsNothing(err) {
		return false, err
	}
	if err != nil || requests[0].Err != nil || requests[1].Err != nil {
		return false, nil
	}
	return binary.NativeEndian.Uint64(pointer[:]) == t.storageAddr && (t.ruleErr != nil || now == t.pair), nil
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
