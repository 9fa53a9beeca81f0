package profile

import (
	"cmp"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"

	"correlator/internal/host/sorting"
	"correlator/procscan"
)

// maxRegions bounds the memory of the layout of one process: 1 MiB. The largest real processes
// have about a thousand executable mappings of files; only a malicious one has many more. Memory
// without a file is dropped first: its addresses have the same frames when they are unknown.
const maxRegions = 8192

// maxOpens is how many files one update opens: as many as the largest real processes map. It takes
// 100 ms of CPU when none is cached. Files beyond it are opened by later updates, which open only
// those that are new or failed.
const maxOpens = 1024

// regionBuilder makes the regions of one update of an address space.
type regionBuilder struct {
	files   *Files
	process Process
	old     *layout
	opened  map[mappedFile]opened // in this update
	partial bool                  // a file could not be opened or read, and may be the next time
}

// opened is a file that was opened, or not.
type opened struct {
	image   *image // nil when it is not an ELF file
	view    View
	outcome *atomic.Uint64 // the counter of an error
}

// mappedFile identifies a file among those that one process maps.
type mappedFile struct {
	dev, ino uint64
	path     uint64 // its hash; on file systems of many volumes, two inodes can have one number
}

func newRegionBuilder(files *Files, process Process, old *layout) *regionBuilder {
	return &regionBuilder{files: files, process: process, old: old, opened: make(map[mappedFile]opened)}
}

// build makes regions of mappings, which it sorts.
func (b *regionBuilder) build(mappings []procscan.Mapping) []region {
	sorting.Sort(mappings, func(x, y procscan.Mapping) int { return cmp.Compare(x.Start, y.Start) })
	b.open(mappings)
	regions := make([]region, 0, len(mappings))
	for _, m := range mappings {
		r := b.region(m)
		// Compilers change the protection of parts of their memory: thousands of mappings can be
		// one range of code.
		if last := len(regions) - 1; r.file == nil && last >= 0 && regions[last].file == nil &&
			regions[last].end == r.start {
			regions[last].end = max(regions[last].end, r.end)
			continue
		}
		regions = append(regions, r)
	}
	return slices.Clone(b.withinLimit(withoutOverlaps(regions))) // without spare capacity
}

func (b *regionBuilder) withinLimit(regions []region) []region {
	excess := len(regions) - maxRegions
	if excess <= 0 {
		return regions
	}
	b.files.Mappings.TooMany.Add(uint64(excess))
	regions = slices.DeleteFunc(regions, func(r region) bool {
		if r.file != nil || excess == 0 {
			return false
		}
		excess--
		return true
	})
	return regions[:maxRegions]
}

// region makes the region of a mapping. It has no file when the mapping has none, and when the file
// cannot be opened or is not an ELF file. Code in such a file is treated as anonymous: without the
// file's bytes there is no file id, and without its segments there are no ELF addresses. So the
// frame gets the one form that needs neither, and exporters describe it without a mapping, from
// which a collector computes the same id. Another id (of the path, say) would be one that no
// backend finds. The price is that the id is unique to this process.
func (b *regionBuilder) region(m procscan.Mapping) region {
	r := region{start: m.Start, end: m.End, offset: m.Offset, key: b.mappedFile(m)}
	if same := b.known(m, r.key); same != nil {
		r.file, r.bias, r.view = same.file, same.bias, same.view
		return r
	}
	found, outcome := b.find(m, r.key)
	if found != nil {
		var ok bool
		if r.bias, ok = found.elf.Bias(m.Start, m.Offset); ok {
			r.file, r.view = found.file, b.opened[r.key].view
		} else {
			outcome = &b.files.Mappings.NotLoaded
		}
	}
	if outcome != nil {
		outcome.Add(1)
	}
	counters := &b.files.Mappings
	b.partial = b.partial || outcome == &counters.NotOpened || outcome == &counters.NotRead ||
		outcome == &counters.TooMany
	if r.file == nil {
		return region{start: r.start, end: r.end}
	}
	return r
}

// find returns the image of a mapping, and the counter of the result. Both are nil for memory
// without a file.
func (b *regionBuilder) find(m procscan.Mapping, key mappedFile) (*image, *atomic.Uint64) {
	counters := &b.files.Mappings
	if m.Path == vdsoName {
		if b.files.vdso == nil || b.files.vdso.size != m.End-m.Start {
			return nil, &counters.NotRead
		}
		return &b.files.vdso.image, &counters.Resolved
	}
	if !hasFile(m) {
		return nil, nil
	}
	found, ok := b.opened[key]
	if !ok {
		return nil, &counters.TooMany
	}
	if found.outcome != nil {
		return nil, found.outcome
	}
	if found.image == nil {
		return nil, &counters.NotELF
	}
	return found.image, &counters.Resolved
}

// open opens the files of mappings that were not known, each once, however many mappings it has.
func (b *regionBuilder) open(mappings []procscan.Mapping) {
	var wanted []procscan.Mapping
	for _, m := range mappings {
		key := b.mappedFile(m)
		if _, again := b.opened[key]; again || !hasFile(m) || b.known(m, key) != nil {
			continue
		}
		if len(wanted) == maxOpens {
			break
		}
		b.opened[key] = opened{outcome: &b.files.Mappings.NotOpened}
		wanted = append(wanted, m)
	}
	if len(wanted) == 0 {
		return
	}
	for i, result := range b.process.Files(wanted) {
		m := wanted[i]
		switch key := b.mappedFile(m); {
		case errors.Is(result.Err, ErrNotRead):
			b.opened[key] = opened{outcome: &b.files.Mappings.NotRead}
		case result.Err == nil:
			b.opened[key] = opened{image: b.files.image(result.Key, result.File, m.Path), view: result.View}
		}
	}
}

// hasFile reports whether a mapping is of a file.
func hasFile(m procscan.Mapping) bool { return m.Ino != 0 && strings.HasPrefix(m.Path, "/") }

func (b *regionBuilder) mappedFile(m procscan.Mapping) mappedFile {
	return mappedFile{m.Dev, m.Ino, maphash.String(b.files.seed, m.Path)}
}

// known returns the region of a mapping that is as it was at the last update, or nil. The end may
// differ: the bias does not depend on it.
func (b *regionBuilder) known(m procscan.Mapping, key mappedFile) *region {
	same := b.old.find(m.Start)
	if same != nil && same.file != nil && same.start == m.Start && same.offset == m.Offset && same.key == key {
		return same
	}
	return nil
}
