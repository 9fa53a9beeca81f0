package process

import (
	"errors"
	"time"

	"correlator/procscan"
)

// This file is where a process maps the library, as its target was told or has seen.

// Mappings is where the process maps the library, as told last.
func (t *Target) Mappings() []procscan.Mapping { return t.mappings }

// SetMappings says where the process maps the library now; load is due.
func (t *Target) SetMappings(mappings []procscan.Mapping) {
	t.mappings, t.stale, t.loaded = mappings, true, time.Time{}
}

// stillMapped says whether all libraries are mapped where they were.
func (t *Target) stillMapped() (bool, error) {
	for _, mapping := range t.mappings {
		if mapped, err := t.handle.Maps(mapping); err != nil || !mapped {
			return false, err
		}
	}
	return true, nil
}

// Remap makes sure that all libraries are still mapped where they were. If they are not, after an exec or a
// dlclose, it takes down what is mapped instead, and answers so; ErrUnmapped when that is nothing.
func (t *Target) Remap() (remapped bool, err error) {
	mapped, err := t.stillMapped()
	if err != nil || mapped {
		return false, err
	}
	libraries, err := t.handle.Libraries()
	if errors.Is(err, procscan.ErrNotFound) {
		return false, ErrUnmapped
	}
	if err != nil {
		return false, err
	}
	t.SetMappings(libraries)
	return true, nil
}
