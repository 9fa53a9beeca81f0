package symbolizer

import (
	"errors"

	"correlator/profile"
)

// Names are the names of the frames of a process, as in symbol tables. What has no name is not in it.
type Names struct {
	Paths  map[profile.FileID]string            // of files that were found in the process
	Native map[profile.FileID]map[uint64]string // of addresses in files
	// Demangled has what names are demangled, those that are mangled.
	Demangled map[string]string
	// Code has all addresses in no file that are those of code, with an empty name if they have none. Other
	// addresses are in no known memory.
	Code    map[uint64]string
	PerfMap error // of reading it, if Code was wanted. fs.ErrNotExist: there is none
	Unread  error // why files that may have code of the process were not read; nil: none were left out
}

// errFull: names of a process take too much memory.
var errFull = errors.New("its names take too much memory")

// take adds an answer. The worker has read hostile files: everything is checked.
func (p *Process) take(a *answer) error {
	select {
	case <-p.done:
		return errAnswer
	default:
	}
	if p.full = p.full || !p.takeRoom(a); !p.full {
		p.add(a)
	}
	if a.End != nil {
		p.names.Unread, p.names.PerfMap = failures.Decode(a.End.Unread), failures.Decode(a.End.PerfMap)
		if p.full {
			p.names.Unread = errFull
		}
		close(p.done)
	}
	return nil
}

func (p *Process) add(a *answer) {
	into := p.names.Code
	if a.File != nil {
		if len(a.File.Path) > 0 {
			p.names.Paths[a.File.ID] = string(a.File.Path)
		}
		if into = p.names.Native[a.File.ID]; into == nil {
			into = make(map[uint64]string)
			p.names.Native[a.File.ID] = into
		}
	}
	for _, n := range a.Names {
		name := string(n.Name)
		if len(n.Demangled) > 0 {
			p.names.Demangled[name] = string(n.Demangled)
		}
		for _, addr := range n.Addrs {
			into[addr] = name
		}
	}
}

// takeRoom takes the memory of an answer, if there is enough left.
func (p *Process) takeRoom(a *answer) bool {
	bytes := itemBytes
	for _, n := range a.Names {
		bytes += n.bytes() + itemBytes*(1+len(n.Addrs))
		if len(n.Demangled) > 0 {
			bytes += itemBytes
		}
	}
	if a.File != nil {
		bytes += len(a.File.Path)
	}
	c := p.user.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes > p.room || bytes > c.room {
		return false
	}
	p.room, c.room = p.room-bytes, c.room-bytes
	return true
}
