package naming

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/symbolizer"
	"correlator/internal/worker"
	"correlator/profile"
)

// ask asks for the names that are wanted of a process until there are none.
func (n *Namer) ask(p *process) {
	for n.await(p) {
		var spent time.Duration
		if p == n.kernel {
			spent = n.askKernel()
		} else {
			spent = n.askProcess(p)
		}
		n.mu.Lock()
		if now := time.Now(); !p.next.After(now) { // else it failed
			p.next, p.reason = now.Add(n.interval(p, spent)), numReasons
		}
		n.bound()
		n.mu.Unlock()
		n.settleAll(func(one *process) bool { return one == p || p == n.kernel })
		n.mu.Lock()
		p.asking = len(p.wanted) > 0 && !p.gone
		more := p.asking
		n.mu.Unlock()
		if !more {
			return
		}
	}
}

// interval returns the time until the next request of a process, after one that took some CPU time.
func (n *Namer) interval(p *process, spent time.Duration) time.Duration {
	if p != n.kernel {
		return max(pace*spent, shortest)
	}
	p.pause = min(max(2*p.pause, firstKernel), mostKernel)
	return max(pace*spent, p.pause)
}

// await waits until a process may be asked. It reports false when the Namer is closed.
func (n *Namer) await(p *process) bool {
	n.mu.Lock()
	wait := time.Until(p.next)
	n.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.ctx.Done():
	}
	return n.ctx.Err() == nil
}

// take takes the addresses of at most so many files.
func (n *Namer) take(p *process, files, addrs int) map[*profile.File][]uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := make(map[*profile.File][]uint64)
	for a := range p.wanted {
		if _, known := taken[a.file]; !known && len(taken) == files || addrs == 0 {
			continue
		}
		addrs--
		taken[a.file] = append(taken[a.file], a.addr)
		delete(p.wanted, a)
	}
	return taken
}

// askProcess asks for the names that are wanted of a process, and whether its perf map has changed. It
// returns the CPU time that this took.
func (n *Namer) askProcess(p *process) time.Duration {
	p.owner.asking.Lock() // which the next of its requests waits for, but nobody else
	defer p.owner.asking.Unlock()
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	case <-n.ctx.Done():
		return 0
	}
	taken := n.take(p, symbolizer.MaxLiveFiles, symbolizer.MaxLiveAddrs)
	r := symbolizer.LiveRequest{
		ID: p.resource.Process, Started: p.resource.Started, User: worker.User(p.resource.Owner), Code: taken[nil],
		Files: make(map[symbolizer.File][]uint64),
	}
	for f, addrs := range taken {
		if f != nil {
			file := symbolizer.File{ID: f.ID, Path: f.Path}
			r.Files[file] = append(r.Files[file], addrs...)
		}
	}
	n.counters.Requests.Add(1)
	names, err := n.live.Name(r)
	now := time.Now()

	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		p.failed(err, now)
		clear(p.wanted)
		return 0
	}
	p.pause = 0
	if p.perfMapRead = now; p.perfMap != names.PerfMap {
		p.perfMap = names.PerfMap
		n.dropFile(p, codeID)
	}
	for f, addrs := range taken {
		id, found := codeID, names.Code
		if f != nil {
			id, found = f.ID, names.Files[f.ID]
		}
		n.add(p, id, addrs, found)
	}
	return names.Spent
}

// add adds what was found for addresses of a file.
func (n *Namer) add(p *process, id profile.FileID, addrs []uint64, found []symbolizer.LiveName) {
	slices.SortFunc(found, func(a, b symbolizer.LiveName) int { return cmp.Compare(a.Start, b.Start) })
	for _, addr := range addrs {
		i, exact := slices.BinarySearchFunc(found, addr, func(l symbolizer.LiveName, addr uint64) int {
			return cmp.Compare(l.Start, addr)
		})
		if !exact {
			i--
		}
		if i >= 0 {
			n.grow(p, p.rangesOf(id).add(addr, found[i].Range, found[i].Name))
		}
	}
}

func (p *process) rangesOf(id profile.FileID) *ranges {
	names := p.names[id]
	if names == nil {
		names = &ranges{}
		p.names[id] = names
	}
	return names
}

// maxKernelAddrs is how many addresses of the kernel are looked for at a time.
const maxKernelAddrs = 4096

// askKernel reads names of the kernel and of the vDSO. It returns the CPU time that this took.
func (n *Namer) askKernel() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := symbolizer.CPUTime(unix.RUSAGE_THREAD)
	taken := n.take(n.kernel, maxKernelAddrs, maxKernelAddrs)
	var frames []profile.Frame
	found := make(map[profile.Frame]symbolizer.LiveName)
	for file, addrs := range taken {
		for _, addr := range addrs {
			f := profile.Frame{File: file, Address: addr}
			if symbolizer.OriginOf(f) == symbolizer.KernelOrigin {
				frames = append(frames, f)
				continue
			}
			names := symbolizer.ReadVDSO(n.procRoot, file.ID, []uint64{addr})
			found[f] = symbolizer.LiveName{Range: names.Range(addr), Name: names.Name(addr)}
		}
	}
	names := n.symbols.Read(n.ctx, frames)
	for _, f := range frames {
		found[f] = symbolizer.LiveName{Range: names.Range(f), Name: names.Name(f)}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for f, name := range found {
		n.grow(n.kernel, n.kernel.rangesOf(f.FileID()).add(f.Address, name.Range, name.Name))
	}
	return symbolizer.CPUTime(unix.RUSAGE_THREAD) - began
}
