package profile

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"

	"correlator/procscan"
)

// maxRegions bounds what the layout of one process takes: 512 KiB. The largest real processes have
// about a thousand executable mappings of files; only one that means harm has many more. Memory
// without a file is left out first: its addresses have the same frames when they are unknown.
const maxRegions = 8192

// maxOpens is how many files one look opens: as many as the largest real processes map. It takes
// 100 ms of CPU when nothing is known of any. The files that are left out have their turn at later
// looks, which open only those that are new or of no use.
const maxOpens = 1024

// look is one look at what a process maps.
type look struct {
	files   *Files
	process Process
	old     *layout
	opens   int                   // that are left
	opened  map[mappedFile]*image // nil when it is no ELF file
}

// mappedFile tells the files that one process maps apart.
type mappedFile struct {
	dev, ino uint64
	path     uint64 // a hash of it; inodes of one number can be two on file systems of many volumes
}

func newLook(files *Files, process Process, old *layout) *look {
	return &look{files: files, process: process, old: old, opens: maxOpens, opened: make(map[mappedFile]*image)}
}

// regions makes regions of mappings, which it sorts.
func (l *look) regions(mappings []procscan.Mapping) []region {
	slices.SortFunc(mappings, func(x, y procscan.Mapping) int { return cmp.Compare(x.Start, y.Start) })
	regions := make([]region, 0, len(mappings))
	for _, m := range mappings {
		r := l.region(m)
		// Compilers change the protection of their memory in places: thousands of mappings can be
		// one range of code.
		if last := len(regions) - 1; r.file == nil && last >= 0 && regions[last].file == nil && regions[last].end == r.start {
			regions[last].end = max(regions[last].end, r.end)
			continue
		}
		regions = append(regions, r)
	}
	return slices.Clone(l.withinLimit(withoutOverlaps(regions))) // without the room for more
}

func (l *look) withinLimit(regions []region) []region {
	excess := len(regions) - maxRegions
	if excess <= 0 {
		return regions
	}
	l.files.Mappings.TooMany.Add(uint64(excess))
	regions = slices.DeleteFunc(regions, func(r region) bool {
		if r.file != nil || excess == 0 {
			return false
		}
		excess--
		return true
	})
	return regions[:maxRegions]
}

// region makes a region of a mapping. It is of no file when the mapping has none, and when the file
// cannot be opened or is no ELF file. The code of these is as good as anonymous: without the file's
// bytes there is no file id, and without its segments there are no ELF addresses. So the frame gets
// the one form that needs neither, and exporters describe it without a mapping, from which a
// collector computes the same id. Another id (of the path, say) would be one that no backend finds.
// The price is that the id is of this process alone.
func (l *look) region(m procscan.Mapping) region {
	r := region{
		start: m.Start, end: m.End, offset: m.Offset,
		of: mappedFile{m.Dev, m.Ino, maphash.String(l.files.seed, m.Path)},
	}
	// The end may differ: the bias does not depend on it.
	same := l.old.find(r.start)
	if same != nil && same.file != nil && same.start == r.start && same.offset == r.offset && same.of == r.of {
		r.file, r.bias = same.file, same.bias
		return r
	}
	found, outcome := l.find(m, r.of)
	if found != nil {
		var ok bool
		if r.bias, ok = found.elf.Bias(m.Start, m.Offset); ok {
			r.file = found.file
		} else {
			outcome = &l.files.Mappings.NotLoaded
		}
	}
	if outcome != nil {
		outcome.Add(1)
	}
	if r.file == nil {
		return region{start: r.start, end: r.end}
	}
	return r
}

// find returns the image that a mapping is of, and what to count. Both are nil for memory that
// has none. Each file is opened once, however many mappings it has.
func (l *look) find(m procscan.Mapping, of mappedFile) (*image, *atomic.Uint64) {
	counters := &l.files.Mappings
	if m.Path == vdsoName {
		if l.files.vdso == nil || l.files.vdso.size != m.End-m.Start {
			return nil, &counters.NotRead
		}
		return &l.files.vdso.image, &counters.Resolved
	}
	if m.Ino == 0 || !strings.HasPrefix(m.Path, "/") {
		return nil, nil
	}
	found, ok := l.opened[of]
	if !ok {
		if l.opens == 0 {
			return nil, &counters.TooMany
		}
		l.opens--
		file, err := l.process.Open(m)
		if err != nil {
			return nil, &counters.NotOpened
		}
		defer file.Close()
		if found, err = l.files.image(file, m.Path); err != nil {
			return nil, &counters.NotRead
		}
		l.opened[of] = found
	}
	if found == nil {
		return nil, &counters.NotELF
	}
	return found, &counters.Resolved
}
