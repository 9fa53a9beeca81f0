package naming

import (
	"cmp"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
	"correlator/internal/host/sorting"
	"correlator/internal/names/symbolizer"
	"correlator/internal/names/symbols"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

// errNothing: a worker has answered nothing of what it was asked for.
var errNothing = errors.New("a worker has named nothing")

// take takes what is wanted of a process, as far as it fits into a request.
func (n *Namer) take(p *process) symbolizer.LiveRequest {
	r := symbolizer.LiveRequest{
		ID: p.resource.Process, Image: p.resource.Image, Since: p.resource.Since, User: worker.User(p.resource.Owner),
		Files: make(map[symbolizer.File][]uint64), PerfMap: p.look,
	}
	for a := range p.wanted {
		if len(p.taken) == symbolizer.MaxLiveAddrs {
			break
		}
		if a.file == nil {
			r.Code = append(r.Code, a.addr)
		} else {
			file := symbolizer.File{ID: a.file.ID, Path: a.file.Path}
			if _, known := r.Files[file]; !known && len(r.Files) == symbolizer.MaxLiveFiles {
				continue
			}
			r.Files[file] = append(r.Files[file], a.addr)
		}
		p.taken[a] = struct{}{}
		delete(p.wanted, a)
	}
	return r
}

// askProcess asks for names of a process, and whether its perf map has changed.
func (n *Namer) askProcess(p *process, r symbolizer.LiveRequest) {
	n.counters.Requests.Add(1)
	began := time.Now()
	names, err := n.live.Name(r)
	now := time.Now()
	n.mu.Lock()
	if err == nil && len(p.taken) > 0 && isEmpty(names) {
		err = errNothing
	}
	looked := r.PerfMap || len(r.Code) > 0
	p.look = p.look && !looked
	switch {
	case n.closed: // which is why it failed
	case err != nil:
		n.failed(p, err, now)
		n.end(p, now, 0, now.Sub(began))
	default:
		n.answered(p, names, looked, now)
		n.end(p, now, names.Spent, 0)
	}
	n.mu.Unlock()
	n.settleAll(func(one *process) bool { return one == p })
}

// isEmpty reports whether an answer says nothing about what was asked for.
func isEmpty(names *symbolizer.LiveNames) bool {
	all := append(slices.Collect(maps.Values(names.Files)), names.Code)
	return !slices.ContainsFunc(all, func(f symbolizer.LiveFile) bool {
		return len(f.Names) > 0 || f.Failure != symbolizer.NoFailure
	})
}

// failed has a process left out for a while after a request failed, for good when it has ended.
// What was asked for is wanted still.
func (n *Namer) failed(p *process, err error, now time.Time) {
	failure := failureOf(err)
	n.counters.failures[failure].Add(1)
	if failure == failedGone {
		p.gone = true
		n.dropWanted(p)
		return
	}
	// A refusal is because of earlier failures, and nobody is to blame for a busy machine.
	if failure != failedRefused && !errors.Is(err, worker.ErrStarved) {
		p.owner.turn.failed = now
	}
	maps.Copy(p.wanted, p.taken)
	clear(p.taken)
	p.reason = unnamedFailed
	if failure == failedTimeout {
		p.reason = unnamedTimeout
	}
	p.pause = pauses.Next(p.pause)
	p.next = now.Add(p.pause)
}

func failureOf(err error) failure {
	switch {
	case errors.Is(err, procscan.ErrGone):
		return failedGone
	case errors.Is(err, worker.ErrTimeout):
		return failedTimeout
	case errors.Is(err, worker.ErrHung), errors.Is(err, worker.ErrBusy):
		return failedRefused
	}
	return failedWorker
}

// answered keeps what was read for a process.
func (n *Namer) answered(p *process, names *symbolizer.LiveNames, looked bool, now time.Time) {
	p.pause = 0
	if looked {
		p.perfMapRead = now
	}
	// The names of one that is gone stay, as code does.
	if code := p.files[codeID]; names.PerfMap != p.perfMap && names.PerfMap != (symbolizer.PerfMap{}) {
		p.perfMap = names.PerfMap
		if code != nil {
			code.version++
			code.retry = time.Time{}
		}
	}
	for id, addrs := range p.takenByFile() {
		found := names.Files[id]
		if id == codeID {
			found = names.Code
		}
		if found.View != (profile.View{}) || len(found.Names) > 0 {
			n.share(p, id, found.View)
		}
		n.store(p, id, addrs, found.Names, failuresOf[found.Failure], now)
	}
	p.taken = make(map[address]struct{}) // a map alone does not shrink
	n.forgetWanted(p)
}

// failuresOf are the failures to read a file.
var failuresOf = [...]failure{
	symbolizer.NoFailure: numFailures, symbolizer.NotMapped: failedNotMapped, symbolizer.FileSystem: failedFileSystem,
	symbolizer.Unreadable: failedUnreadable, symbolizer.PerfMapRefused: failedPerfMap,
}

func (p *process) takenByFile() map[profile.FileID][]address {
	files := make(map[profile.FileID][]address)
	for a := range p.taken {
		files[a.id()] = append(files[a.id()], a)
	}
	return files
}

// store keeps what was found for addresses of a file. After a failure, numFailures for none, it is
// not asked for others for a while; without one, those that are not answered are wanted again.
func (n *Namer) store(p *process, id profile.FileID, addrs []address, found []symbolizer.LiveName,
	failure failure, now time.Time) {
	sorting.Sort(found, func(a, b symbolizer.LiveName) int { return cmp.Compare(a.Start, b.Start) })
	f := n.file(p, id)
	for _, a := range addrs {
		i, exact := slices.BinarySearchFunc(found, a.addr, func(l symbolizer.LiveName, addr uint64) int {
			return cmp.Compare(l.Start, addr)
		})
		if !exact {
			i--
		}
		switch {
		case i >= 0 && a.addr >= found[i].Start && a.addr < found[i].End:
			n.put(p, f, a.addr, &found[i], now)
		case failure == numFailures && f.find(a.addr) == nil: // else it was known
			p.wanted[a] = struct{}{}
			continue
		}
		n.grow(p.owner, -wantedBytes)
	}
	if failure == numFailures {
		f.pause, f.retry = 0, time.Time{}
		return
	}
	n.counters.failures[failure].Add(1)
	f.pause = pauses.Next(f.pause)
	f.retry = now.Add(f.pause)
}

// file returns the names in a file.
func (n *Namer) file(p *process, id profile.FileID) *file {
	f := p.files[id]
	if f == nil {
		f = &file{names: p.owner.use(new(names))}
		p.files[id] = f
		n.grow(p.owner, fileBytes)
	}
	return f
}

// fileOf returns what is known of a file of a process: if that is nothing, what others have read that have the same
// view of it; else nil. What is read for the process later is kept under the view that a worker finds then.
func (n *Namer) fileOf(p *process, id profile.FileID) *file {
	if f := p.files[id]; f != nil || p.space == nil {
		return f
	}
	view := p.space.View(id)
	if view == (profile.View{}) || p.owner.shared[view] == nil {
		return nil
	}
	n.share(p, id, view)
	return p.files[id]
}

// share has a process use the names in a file with all others of its owner that have the same view of it.
func (n *Namer) share(p *process, id profile.FileID, view profile.View) {
	f := n.file(p, id)
	if f.names.view == view {
		return
	}
	n.leave(p.owner, f.names)
	f.names = p.owner.shared[view]
	if view == (profile.View{}) || f.names == nil {
		f.names = &names{view: view}
	}
	p.owner.use(f.names)
	if view != (profile.View{}) {
		p.owner.shared[view] = f.names
	}
}

// use counts one process more that has names.
func (o *owner) use(these *names) *names {
	these.uses++
	o.names[these] = struct{}{}
	return these
}

// leave counts one process less, and forgets names that none has any more.
func (n *Namer) leave(o *owner, these *names) {
	if these.uses--; these.uses > 0 {
		return
	}
	bytes, _ := these.ranges.deleteFunc(func(*named) bool { return true })
	n.grow(o, -bytes)
	delete(o.names, these)
	if o.shared[these.view] == these {
		delete(o.shared, these.view)
	}
}

// put keeps the name of a range around an address, if there is room.
func (n *Namer) put(p *process, f *file, addr uint64, found *symbolizer.LiveName, now time.Time) {
	name := named{Range: found.Range, version: f.version, used: n.seconds(now)}
	if found.Name != "" {
		name.function = profile.NewSymbol(found.Name, found.Demangled)
	}
	if !n.makeRoom(p, name.bytes(), now) {
		n.counters.failures[failedMemory].Add(1)
		return
	}
	n.grow(p.owner, f.ranges.put(addr, name))
}

// forgetWanted forgets what is wanted and known by now.
func (n *Namer) forgetWanted(p *process) {
	for a := range p.wanted {
		f := n.fileOf(p, a.id())
		if known := f.find(a.addr); known != nil && known.version == f.version {
			delete(p.wanted, a)
			n.grow(p.owner, -wantedBytes)
		}
	}
	if len(p.wanted) == 0 {
		p.wanted = make(map[address]struct{})
	}
}

// askKernel reads names of the kernel and of the vDSO.
func (n *Namer) askKernel() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := self.CPUTime(unix.RUSAGE_THREAD)
	p := n.kernel
	n.mu.Lock()
	p.taken, p.wanted = p.wanted, make(map[address]struct{})
	taken := p.takenByFile()
	n.mu.Unlock()
	found := n.readKernel(taken)
	now := time.Now()
	n.mu.Lock()
	for id, addrs := range taken {
		n.store(p, id, addrs, found[id].names, found[id].failure, now)
	}
	p.taken = make(map[address]struct{})
	n.forgetWanted(p)
	n.end(p, now, self.CPUTime(unix.RUSAGE_THREAD)-began, 0)
	n.mu.Unlock()
	n.settleAll(func(*process) bool { return true })
}

// kernelNames are the names in a file of the kernel.
type kernelNames struct {
	names   []symbolizer.LiveName
	failure failure // numFailures: none
}

// add adds what was found for an address. Without a name, it may have one after an error.
func (k *kernelNames) add(name symbolizer.LiveName, err error) {
	if err != nil && name.Name == "" {
		k.failure = failedKernel
		return
	}
	k.names = append(k.names, name)
}

// readKernel reads the names of addresses by file.
func (n *Namer) readKernel(files map[profile.FileID][]address) map[profile.FileID]*kernelNames {
	found := make(map[profile.FileID]*kernelNames)
	var frames []profile.Frame
	for id, addrs := range files {
		found[id] = &kernelNames{failure: numFailures}
		var ofVDSO []uint64
		for _, a := range addrs {
			if f := (profile.Frame{File: a.file, Address: a.addr}); symbolizer.OriginOf(f) == symbolizer.KernelOrigin {
				frames = append(frames, f)
			} else {
				ofVDSO = append(ofVDSO, a.addr)
			}
		}
		names, err := symbolizer.ReadVDSO(n.procRoot, id, slices.Clone(ofVDSO))
		for _, addr := range ofVDSO {
			found[id].add(symbolizer.LiveName{Range: names.Range(addr), Name: names.Name(addr)}, err)
		}
	}
	names, err := n.symbols.Read(n.ctx, frames)
	var demangler symbols.Demangler
	for _, f := range frames {
		of := found[f.FileID()]
		if !names.Located(f) {
			of.failure = failedKernel
			continue
		}
		name := names.Name(f)
		of.add(symbolizer.LiveName{Range: names.Range(f), Name: name, Demangled: demangler.Demangle(name)}, err)
	}
	return found
}
