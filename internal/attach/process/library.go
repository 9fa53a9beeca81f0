package process

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"correlator/elfsym"
	"correlator/internal/worker/access"
	"correlator/procscan"
)

// reloadInterval is how often libraries are tried again that could not be used, beside others that
// can.
const reloadInterval = 30 * time.Second

// image is one copy of the library as it is mapped in a process.
type image struct {
	mapping procscan.Mapping
	bias    uint64
	library *elfsym.Library
}

// pointerAddr is where the image's pointer to the process storage lies.
func (i *image) pointerAddr() uint64 { return i.bias + i.library.StorageAddr }

// Maps reports whether the process maps the library, and process contexts, just where given, so far
// as known.
func (t *Target) Maps(libraries, contexts []procscan.Mapping) bool {
	return slices.Equal(libraries, t.mappings) && slices.Equal(contexts, t.otel.mappings) && !t.otel.lost
}

// SetMappings sets where the process maps the library, and process contexts, now; Load is due.
func (t *Target) SetMappings(libraries, contexts []procscan.Mapping) {
	t.mappings, t.stale, t.loaded = libraries, true, time.Time{}
	t.otel.setMappings(contexts)
}

// Replace has Remap read what is mapped, and Load what the program is: the process runs another one.
func (t *Target) Replace() {
	t.otel.lost, t.stale, t.loaded = true, true, time.Time{}
	t.otel.variable, t.otel.search = variable{}, variableSearch{}
	t.labels = goLabels{}
}

// stillMapped reports whether all libraries are mapped where they were.
func (t *Target) stillMapped() (bool, error) {
	for _, mapping := range t.mappings {
		if mapped, err := t.handle.Maps(mapping); err != nil || !mapped {
			return false, err
		}
	}
	return true, nil
}

// Remap checks that all libraries are still mapped where they were, and so far as the last Probe has
// shown, process contexts. If they are not, after an exec or a dlclose, it sets what is mapped
// instead, and returns true; ErrUnmapped when that is nothing.
func (t *Target) Remap() (remapped bool, err error) {
	mapped, err := t.stillMapped()
	if err != nil || mapped && !t.otel.lost {
		return false, err
	}
	libraries, err := t.handle.Libraries()
	if err != nil && !errors.Is(err, procscan.ErrNotFound) {
		return false, err
	}
	contexts, err := t.handle.ProcessContexts()
	if err != nil && !errors.Is(err, procscan.ErrNotFound) {
		return false, err
	}
	if len(libraries)+len(contexts) == 0 && !t.filter.All {
		return false, ErrUnmapped
	}
	if slices.Equal(libraries, t.mappings) && slices.Equal(contexts, t.otel.mappings) {
		t.otel.lost = false
		return false, nil
	}
	t.SetMappings(libraries, contexts)
	return true, nil
}

// IsUsable reports whether there is a copy of the library that can be used, or what may be a process
// context, or none is needed.
func (t *Target) IsUsable() bool {
	return t.admitted && (t.filter.All || len(t.images) > 0 || len(t.otel.mappings) > 0)
}

// LoadDue reports whether there are libraries to load: new ones, or some that could not be used a
// while ago, or the filter leaves out what the process has become since: another user or name, or one of
// another cgroup. A process that has no other is tried at its own pace.
func (t *Target) LoadDue() bool {
	if t.admitted && !t.filter.IsZero() && t.admit() != nil {
		t.admitted, t.stale = false, true // Load returns why
	}
	return t.stale && (!t.IsUsable() || t.loaded.IsZero() || time.Since(t.loaded) >= reloadInterval)
}

// Load opens and parses the libraries that the process maps and that were not loaded yet. When some
// cannot be used the error is that of the first, and the others serve all the same. ErrNotTarget
// means that there is nothing to serve, nor anything wrong. With ErrContainerFiltered, or ErrCommandFiltered, none was
// opened, and none can be used; each Load checks that again.
func (t *Target) Load() error {
	t.loaded = time.Now()
	err := t.admit()
	if t.admitted = err == nil; err != nil {
		t.images, t.stale = nil, true
		t.withdraw()
		t.otel.withdraw()
		return err
	}
	t.program.forget()
	t.readProgram() // most publish later, and do not wait for this then
	known := t.images
	t.images = nil
	var firstErr error
	for _, mapping := range t.mappings {
		if i := slices.IndexFunc(known, func(i *image) bool { return i.isAt(mapping) }); i >= 0 {
			t.images = append(t.images, known[i])
			continue
		}
		img, err := t.open(mapping)
		switch {
		case errors.Is(err, elfsym.ErrNoSymbols):
			continue
		case err != nil && firstErr == nil:
			firstErr = err
		}
		if err != nil || slices.ContainsFunc(t.images, img.same) {
			continue
		}
		// The loader may have been at work when the mappings were read before: first it maps all of
		// the file, and then each segment over that.
		if i := slices.IndexFunc(known, img.same); i >= 0 {
			known[i].mapping = mapping
			img = known[i]
		}
		t.images = append(t.images, img)
	}
	if !slices.Contains(t.images, t.publishing) {
		t.withdraw()
	}
	t.stale = firstErr != nil || !t.IsUsable()
	if t.stale && firstErr == nil {
		return ErrNotTarget
	}
	return firstErr
}

// isAt reports whether a mapping is the image's: the same file at the same place. That it was
// unlinked in between changes nothing.
func (i *image) isAt(mapping procscan.Mapping) bool {
	mapping.Deleted = i.mapping.Deleted
	return i.mapping == mapping
}

// same reports whether two executable mappings are parts of one copy of the library.
func (i *image) same(other *image) bool {
	return i.bias == other.bias && i.mapping.Dev == other.mapping.Dev && i.mapping.Ino == other.mapping.Ino
}

func (t *Target) open(mapping procscan.Mapping) (*image, error) {
	library, err := t.access.Library(mapping)
	switch {
	case errors.Is(err, access.ErrMalformed):
		return nil, WithReason(ReasonLibraryMalformed, fmt.Errorf("parsing library %q: %w", mapping.Path, err))
	case err != nil:
		return nil, WithReason(ReasonLibraryUnreadable, fmt.Errorf("opening library %q: %w", mapping.Path, err))
	}
	bias, ok := library.Bias(mapping.Start, mapping.Offset)
	if !ok {
		return nil, WithReason(ReasonLibraryMalformed,
			fmt.Errorf("parsing library %q: no segment begins at the mapped offset %#x", mapping.Path, mapping.Offset))
	}
	return &image{mapping: mapping, bias: bias, library: library}, nil
}
