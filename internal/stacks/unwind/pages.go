package unwind

import (
	"hash/maphash"
	"io"
	"slices"

	"correlator/memread"
)

const (
	pageBytes = 4096

	// maxPages bounds the memory that is read for a request: a stack takes some 100 pages.
	maxPages = 2048

	// sparePages are kept for the next request.
	sparePages = 128

	// maxReadings bounds what is recorded. A method takes some 20.
	maxReadings = 64
)

// pages reads memory by pages, each once in a request: what belongs to one class lies side by side.
type pages struct {
	from  io.ReaderAt
	read  map[int64][]byte
	spare [][]byte
	seed  maphash.Seed // nobody can choose bytes with the hash of others

	room     []byte            // scratch, of areUnchanged
	requests []memread.Request // scratch

	isWhole bool // no page is read twice: what was checked does not change
	isShort bool // more would have been read
}

func newPages() *pages { return &pages{read: make(map[int64][]byte), seed: maphash.MakeSeed()} }

// begin prepares a request that reads memory of a process.
func (p *pages) begin(from io.ReaderAt) {
	p.forget()
	p.from, p.isWhole, p.isShort = from, false, false
}

// forget is called after a request.
func (p *pages) forget() {
	for _, page := range p.read {
		if len(p.spare) < sparePages {
			p.spare = append(p.spare, page)
		}
	}
	clear(p.read)
}

// ReadAt implements io.ReaderAt.
func (p *pages) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) {
		start := (at + int64(n)) &^ (pageBytes - 1)
		page, err := p.page(start)
		if err != nil {
			return n, err
		}
		n += copy(b[n:], page[at+int64(n)-start:])
	}
	return n, nil
}

func (p *pages) page(start int64) (page []byte, err error) {
	if page, ok := p.read[start]; ok {
		return page, nil
	}
	if len(p.read) == maxPages {
		if p.isWhole {
			p.isShort = true
			return nil, errBudget
		}
		clear(p.read)
	}
	if last := len(p.spare) - 1; last >= 0 {
		page, p.spare = p.spare[last], p.spare[:last]
	} else {
		page = make([]byte, pageBytes)
	}
	if _, err := p.from.ReadAt(page, start); err != nil {
		return nil, err
	}
	p.read[start] = page
	return page, nil
}

// reading is what was read once.
type reading struct {
	at   int64
	size int
	hash uint64 // of the bytes
}

func (p *pages) newReading(b []byte, at int64) reading {
	return reading{at: at, size: len(b), hash: maphash.Bytes(p.seed, b)}
}

// areUnchanged reports whether readings, of so many bytes together, would be the same now. They are made with
// one system call, by the process's id: if another program has that now, what it has there is not the same, or
// it does not matter.
func (p *pages) areUnchanged(read []reading, size int, memory *memread.Process) bool {
	p.room = slices.Grow(p.room[:0], size)
	room, requests := p.room[:size], p.requests[:0]
	for _, r := range read {
		requests = append(requests, memread.Request{Addr: uint64(r.at), Buf: room[:r.size]})
		room = room[r.size:]
	}
	p.requests = requests
	if memory.ReadBatch(requests) != nil {
		return false
	}
	for i, r := range read {
		if requests[i].Err != nil || p.newReading(requests[i].Buf, r.at) != r {
			return false
		}
	}
	return true
}

// recorder records what is read.
type recorder struct {
	from *pages
	read []reading
	lost bool // a reading failed, or there were too many: what is recorded does not tell all
}

// ReadAt implements io.ReaderAt.
func (r *recorder) ReadAt(b []byte, at int64) (n int, err error) {
	n, err = r.from.ReadAt(b, at)
	if err != nil || len(r.read) == maxReadings {
		r.lost = true
	} else {
		r.read = append(r.read, r.from.newReading(b, at))
	}
	return n, err
}
