package profile

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// A compiler's memory is many mappings and one range.
func TestManyMappings(t *testing.T) {
	files := newFiles(t)
	p := &fakeProcess{}
	const parts = 3 * maxRegions
	for i := range uint64(parts) {
		p.mappings = append(p.mappings, procscan.Mapping{Start: (i + 1) << 12, End: (i + 2) << 12})
	}
	space := NewAddressSpace(files, pace)
	update(t, space, p)
	if l := space.layout.Load(); len(l.regions) != 1 || l.find(parts<<12) == nil {
		t.Errorf("%d regions", len(l.regions))
	}

	for i := range p.mappings {
		p.mappings[i].Start += 0x100
	}
	// They do not take the place of a file that comes after them.
	last := libraryMapping(t, library, (parts+10)<<12)
	p.mappings = append(p.mappings, last)
	update(t, space, p)
	l := space.layout.Load()
	assert.Check(t, len(l.regions) == maxRegions && cap(l.regions) <= maxRegions*5/4, "%d regions", len(l.regions))
	got := files.Mappings.TooMany.Load()
	assert.Check(t, got == parts+1-maxRegions, "%d counted", got)
	frames := space.AppendFrames(nil, []uint64{last.Start + 0x10})
	assert.Check(t, frames[0].File != nil, "%+v", frames)

	// More than are read count, and those that are read are known.
	p.mappings, p.err = []procscan.Mapping{last}, fmt.Errorf("reading: %w", procscan.ErrTooMany)
	other := NewAddressSpace(files, pace)
	update(t, other, p)
	assert.Check(t, files.Mappings.TooMany.Load() == got+1 && len(other.layout.Load().regions) == 1)
}

// Files are bounded too.
func TestManyFileMappings(t *testing.T) {
	files := newFiles(t)
	p := &fakeProcess{}
	m := libraryMapping(t, library, 0)
	size := m.End
	for i := range uint64(maxRegions + 5) {
		m.Start, m.End = (i+1)<<20, (i+1)<<20+size
		p.mappings = append(p.mappings, m)
	}
	p.mappings = append(p.mappings, procscan.Mapping{Start: 0x1000, End: 0x2000})
	space := NewAddressSpace(files, pace)
	update(t, space, p)
	l := space.layout.Load()
	if len(l.regions) != maxRegions || l.find(0x1000) != nil || l.find(p.mappings[maxRegions-1].Start) == nil {
		t.Errorf("%d regions", len(l.regions))
	}
	got := files.Mappings.TooMany.Load()
	assert.Check(t, got == 6, "%d counted", got)
	assert.Check(t, len(p.opened) == 1, "%d opened", len(p.opened))
}

// A file is opened once in an update, whatever it is and however many mappings it has.
func TestManyMappingsOfOneFile(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	testenv.WriteFile(t, script, "#!/bin/sh\n")
	files := newFiles(t)
	p := &fakeProcess{}
	for i := range uint64(10) {
		p.mappings = append(p.mappings, libraryMapping(t, library, (i+1)<<20),
			fileMapping(t, script, (i+1)<<20+0x80000, 0))
	}
	same := p.mappings[1] // another path, as two volumes of one file system have
	same.Start, same.End, same.Path = 0x1000, 0x2000, p.mappings[0].Path
	p.mappings = append(p.mappings, same)
	space := NewAddressSpace(files, pace)
	update(t, space, p)
	want := []string{same.Path, same.Path, script}
	assert.Check(t, slices.Equal(p.opened, want), "opened %v, want %v", p.opened, want)
	got := files.Mappings.all()
	assert.Check(t, got == [6]uint64{0: 11, 3: 10}, "counted %v", got)
	p.opened = nil
	update(t, space, p)
	want = []string{script}
	assert.Check(t, slices.Equal(p.opened, want), "opened again %v, want %v", p.opened, want)
}

// One update opens a limited number of files; the next one opens the others.
func TestManyFiles(t *testing.T) {
	files := newFiles(t)
	p := &fakeProcess{}
	for i := range uint64(maxOpens + 10) {
		m := libraryMapping(t, library, (i+1)<<20)
		m.Ino += i // to the process they are many, to Files one
		p.mappings = append(p.mappings, m)
	}
	last := p.mappings[maxOpens+9].Start
	space := NewAddressSpace(files, pace)
	update(t, space, p)
	if frames := space.AppendFrames(nil, []uint64{last}); frames[0].File != nil || files.Mappings.TooMany.Load() != 10 {
		t.Errorf("%+v, %d counted", frames, files.Mappings.TooMany.Load())
	}
	p.opened = nil
	update(t, space, p)
	frames := space.AppendFrames(nil, []uint64{last})
	assert.Check(t, frames[0].File != nil && len(p.opened) == 10, "%+v, %d opened", frames, len(p.opened))
}
