package symbolizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

const (
	// maxUsers is how many workers there are at most, one for each user: each takes some 10 MB, and
	// workerMemoryBytes if a process makes it. Processes of other users get no names.
	maxUsers = 16

	// maxNamesBytes bounds the memory of names of all processes in the client; see also maxProcessBytes.
	maxNamesBytes = 512 << 20

	// itemBytes is what an address takes in Names, and more than a name without its text, or a file.
	itemBytes = 48

	// codeInterval is the shortest time between two requests of a process because of code in no file:
	// each stack may have a new address. A request takes a millisecond.
	codeInterval = time.Second
)

// ErrUsers: there are workers for as many users already as there may be.
var ErrUsers = fmt.Errorf("processes of %d other users are recorded, and no more may have names", maxUsers)

// errClosed: the Client is closed.
var errClosed = errors.New("names are no longer read")

// Client has workers name frames. It is safe for concurrent use.
type Client struct {
	spawner *worker.Spawner

	mu     sync.Mutex
	closed bool
	users  map[uint32]*user
	room   int // left of maxNamesBytes
}

// Open returns a Client, which the caller must close. procRoot is a procfs of our own pid namespace.
// The program's main function must call worker.Main.
func Open(procRoot string) (*Client, error) {
	spawner, err := worker.NewSpawner(procRoot, Kind)
	if err != nil {
		return nil, err
	}
	return &Client{spawner: spawner, users: make(map[uint32]*user), room: maxNamesBytes}, nil
}

// Close kills all workers without waiting for their end. Calls under way return.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	for _, u := range c.users {
		u.fail(errClosed)
	}
	c.spawner.Close()
}

// user is the worker for the processes of one user.
type user struct {
	client *Client
	start  sync.Once
	worker *worker.Process // after start; nil: it could not be started

	sending sync.Mutex // held while a request is sent

	mu        sync.Mutex
	processes []*Process    // by number
	err       error         // why there are no names any more
	failed    chan struct{} // closed with err
}

// Process is one process, or one program of it, whose frames are to be named.
type Process struct {
	user   *user
	number int
	id     procscan.ProcessID
	since  time.Time

	// Learn's.
	sent     map[profile.FileID]struct{}
	codeSent time.Time
	learned  chan struct{} // has a value for each answer

	// The receiving goroutine's, until done is closed.
	room  int  // left of maxProcessBytes
	full  bool // room did not suffice
	names Names
	done  chan struct{}
}

// Process returns a process, whose perf map was not written before since. uid is its user, to which
// what it does to a worker is charged. The error is ErrUsers when there are too many.
func (c *Client) Process(id procscan.ProcessID, since time.Time, uid uint32) (*Process, error) {
	u, err := c.user(uid)
	if err != nil {
		return nil, err
	}
	u.start.Do(u.startWorker)
	u.mu.Lock()
	defer u.mu.Unlock()
	p := &Process{
		user: u, number: len(u.processes), id: id, since: since,
		sent: make(map[profile.FileID]struct{}), learned: make(chan struct{}, 1),
		room: maxProcessBytes, done: make(chan struct{}),
		names: Names{
			Paths: make(map[profile.FileID]string), Native: make(map[profile.FileID]map[uint64]string),
			Code: make(map[uint64]string), Demangled: make(map[string]string),
		},
	}
	u.processes = append(u.processes, p)
	return p, u.err
}

func (c *Client) user(uid uint32) (*user, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.users[uid]
	switch {
	case c.closed:
		return nil, errClosed
	case u != nil:
	case len(c.users) == maxUsers:
		return nil, ErrUsers
	default:
		u = &user{client: c, failed: make(chan struct{})}
		c.users[uid] = u
	}
	return u, nil
}

func (u *user) startWorker() {
	process, err := u.client.spawner.Start()
	if err != nil {
		u.fail(err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.worker = process
	if u.err != nil { // closed meanwhile
		process.Kill()
		return
	}
	go u.receive(process)
}

// fail ends the worker. No process of the user gets names after that.
func (u *user) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return
	}
	u.err = err
	close(u.failed)
	if u.worker != nil {
		u.worker.Kill()
	}
}

// failure returns why there are no names; it may not be called before failed is closed.
func (u *user) failure() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// send sends a request about a process.
func (u *user) send(r *request) error {
	message, err := json.Marshal(r)
	if err != nil {
		return err
	}
	select {
	case <-u.failed:
		return u.failure()
	default:
	}
	u.sending.Lock()
	defer u.sending.Unlock()
	if err := u.worker.Send(message); err != nil {
		u.fail(err)
		return err
	}
	return nil
}

// receive takes the worker's answers until it ends.
func (u *user) receive(process *worker.Process) {
	for {
		message, fd, err := process.Receive(time.Time{})
		if err == nil && fd >= 0 {
			_ = unix.Close(fd)
			err = errAnswer
		}
		if err == nil {
			err = u.take(message)
		}
		if err != nil {
			u.fail(err)
			return
		}
	}
}

// take takes an answer.
func (u *user) take(message []byte) error {
	a, err := decodeAnswer(message)
	if err != nil {
		return err
	}
	u.mu.Lock()
	if a.Process < 0 || a.Process >= len(u.processes) {
		u.mu.Unlock()
		return errAnswer
	}
	p := u.processes[a.Process]
	u.mu.Unlock()
	if a.Learned {
		select {
		case p.learned <- struct{}{}:
			return nil
		default:
			return errAnswer
		}
	}
	return p.take(&a)
}

// Learn has the worker open the files from which the names of a process's frames will be read, while
// it lives: those with given ids, which have, or had, these paths in some process, and the perf map if
// there are addresses of code in no file. It waits until that is done, however long the process makes
// it wait, or until the Client is closed. It is called by one goroutine at a time.
func (p *Process) Learn(files []File, code []uint64) {
	var unsent []file
	for _, f := range files {
		if _, again := p.sent[f.ID]; !again {
			p.sent[f.ID] = struct{}{}
			unsent = append(unsent, file{ID: f.ID, Path: f.path(), View: f.View})
		}
	}
	if len(code) > 0 {
		if now := time.Now(); now.Sub(p.codeSent) < codeInterval {
			code = nil
		} else {
			p.codeSent = now
		}
	}
	for _, r := range p.requests(opLearn, unsent, code) {
		if p.user.send(r) != nil {
			return
		}
		select {
		case <-p.learned:
		case <-p.user.failed:
			return
		}
	}
}

// File is a file of which a process has frames.
type File struct {
	ID   profile.FileID
	Path string
	View profile.View // for Learn: how the process sees it. If it has ended, names are those of one with the same
}

func (f File) path() []byte { return []byte(f.Path[:min(len(f.Path), maxPathBytes)]) }

// requests splits what is to be requested of a process.
func (p *Process) requests(op string, files []file, code []uint64) (all []*request) {
	var r *request
	addrs := 0
	next := func() {
		r, addrs = &request{Op: op, Process: p.number, ID: p.id, Since: p.since}, 0
		all = append(all, r)
	}
	for _, f := range files {
		for part := range chunks(f.Addrs) {
			if r == nil || len(r.Files) == maxRequestFiles || addrs+len(part) > maxRequestAddrs {
				next()
			}
			r.Files, addrs = append(r.Files, file{ID: f.ID, Path: f.Path, View: f.View, Addrs: part}), addrs+len(part)
		}
	}
	for part := range slices.Chunk(code, maxRequestAddrs) {
		next()
		r.Code = part
	}
	return all
}

// chunks returns one part at least.
func chunks(addrs []uint64) iter.Seq[[]uint64] {
	if len(addrs) == 0 {
		return func(yield func([]uint64) bool) { yield(nil) }
	}
	return slices.Chunk(addrs, maxRequestAddrs)
}

// Wanted are the frames of a process that are to be named. None of them is in it twice.
type Wanted struct {
	Files map[File][]uint64 // addresses in files
	Code  []uint64          // in no file
}

// Result has the names of a process.
type Result struct {
	Names Names
	Err   error // context.DeadlineExceeded: the process, or what is read for it, took too long, or hangs
}

// beat is how often it is looked whether a worker goes on, and hangsAfter after how many times that it did not it is
// said to hang: a file system has not answered a read for two seconds.
const (
	beat       = 500 * time.Millisecond
	hangsAfter = 4
)

// Read reads names until ctx ends, or all that are missing hang. It is called once; Learn may still run then.
func (c *Client) Read(ctx context.Context, wanted map[*Process]Wanted) map[*Process]Result {
	byUser := make(map[*user][]*Process)
	results := make(map[*Process]Result)
	for p, want := range wanted {
		if len(want.Files)+len(want.Code) == 0 {
			results[p] = Result{}
			continue
		}
		byUser[p.user] = append(byUser[p.user], p)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	for u, processes := range byUser {
		reading, stop := context.WithCancel(ctx)
		all.Go(func() { u.ask(reading, processes, wanted) })
		all.Go(func() { u.watch(reading, stop) })
		all.Go(func() {
			defer stop()
			for _, p := range processes {
				result := p.result(reading)
				mu.Lock()
				results[p] = result
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return results
}

// watch gives up when the worker hangs, until ctx ends.
func (u *user) watch(ctx context.Context, giveUp func()) {
	u.mu.Lock()
	process := u.worker
	u.mu.Unlock()
	if process == nil {
		return
	}
	pulse, missed := process.Pulse(), 0
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for missed < hangsAfter {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		missed++
		if pulse.Beats() {
			missed = 0
		}
	}
	giveUp()
}

// ask has the worker read names.
func (u *user) ask(ctx context.Context, processes []*Process, wanted map[*Process]Wanted) {
	for _, p := range processes {
		want := wanted[p]
		var files []file
		for f, addrs := range want.Files {
			slices.Sort(addrs) // so those with one name come in one answer
			files = append(files, file{ID: f.ID, Path: f.path(), Addrs: addrs})
		}
		for _, r := range p.requests(opAsk, files, want.Code) {
			if ctx.Err() != nil || u.send(r) != nil {
				return
			}
		}
	}
	_ = u.send(&request{Op: opRead})
}

// result waits for the names of a process until ctx ends.
func (p *Process) result(ctx context.Context) Result {
	select {
	case <-p.done:
		return Result{Names: p.names}
	default:
	}
	select {
	case <-p.done:
		return Result{Names: p.names}
	case <-p.user.failed:
		return Result{Err: p.user.failure()}
	case <-ctx.Done():
		return Result{Err: context.DeadlineExceeded}
	}
}
