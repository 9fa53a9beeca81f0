package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"correlator/elfsym"
	"correlator/internal/worker"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/procscan/javaagent"
	"correlator/profile"
)

// timeout is how long a worker may take. Only a process that makes it wait, or a file system that
// is all but dead, takes more than milliseconds.
const timeout = 2 * time.Second

// Errors of all methods of Process, beside their own.
var (
	ErrTimeout     = worker.ErrTimeout // the process made the worker wait too long
	ErrHung        = worker.ErrHung
	ErrBusy        = worker.ErrBusy
	ErrUnavailable = worker.ErrUnavailable
)

// TellsNothing reports whether an error says nothing of what a process has: it was not asked, since
// workers hang, because of it or of others of its user, or there is none; or it was, and the worker
// did not answer in time.
func TellsNothing(err error) bool {
	return errors.Is(err, ErrTimeout) || errors.Is(err, ErrHung) || errors.Is(err, ErrBusy) ||
		errors.Is(err, ErrUnavailable) || errors.Is(err, worker.ErrClosed)
}

// Client has workers access processes. It is safe for concurrent use.
type Client struct{ pool *worker.Pool }

// Open returns a Client, which the caller must close. procRoot is a procfs of our own pid
// namespace. The program's main function must call worker.Main.
func Open(procRoot string, counters *worker.Counters) (*Client, error) {
	pool, err := worker.NewPool(procRoot, Kind, counters)
	if err != nil {
		return nil, err
	}
	pool.Prepare()
	return &Client{pool}, nil
}

// Close ends all workers without waiting for them. Requests under way fail.
func (c *Client) Close() { c.pool.Close() }

// Stats returns how many workers there are.
func (c *Client) Stats() worker.Stats { return c.pool.Stats() }

// EndIdle ends the workers that have waited for requests for so long.
func (c *Client) EndIdle(idle time.Duration) { c.pool.EndIdle(idle) }

// IsSuspect reports whether a request of a user has timed out lately.
func (c *Client) IsSuspect(user worker.User) bool { return c.pool.IsSuspect(user) }

// Process returns access to one process, which need not be closed. user is the process's, to which
// workers that it hangs are charged.
func (c *Client) Process(id procscan.ProcessID, user worker.User) *Process {
	return &Process{client: c, id: id, owner: worker.Owner{PID: id.PID, User: user}}
}

// Process is access to one process. It is safe for concurrent use.
//
// All methods return, whatever the process does: within seconds, or a dozen when others of its user
// hang. procscan.ErrGone is an error of all.
type Process struct {
	client *Client
	id     procscan.ProcessID
	owner  worker.Owner
	spent  atomic.Int64
}

// Spent returns how much CPU time workers have used to access the process.
func (p *Process) Spent() time.Duration { return time.Duration(p.spent.Load()) }

// Owner returns the user that the process was given.
func (p *Process) Owner() worker.User { return p.owner.User }

// isDatagramSocket reports whether a descriptor is what Dial returns: a worker that was taken over may send another.
func isDatagramSocket(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_DGRAM
}

// Connect is messaging.Dial to a path of the process, with the rights of creds. sender is the pid
// that messages show.
func (p *Process) Connect(path string, creds messaging.Credentials, sender messaging.SenderPID) (*messaging.Socket,
	error) {
	var answer connected
	fd, err := p.call(opConnect, &request{Path: []byte(path), Credentials: creds}, &answer)
	if err != nil {
		return nil, err
	}
	if !isDatagramSocket(fd) {
		if fd >= 0 {
			go unix.Close(fd) // which a file system may not let return
		}
		return nil, fmt.Errorf("connecting to %q: %w", path, errAnswer)
	}
	return messaging.NewSocket(fd, answer.Socket, creds, sender), nil
}

// IdentifySocket is messaging.Identify of a path of the process.
func (p *Process) IdentifySocket(path string) (messaging.SocketID, error) {
	var answer connected
	_, err := p.call(opIdentifySocket, &request{Path: []byte(path)}, &answer)
	return answer.Socket, err
}

// Place returns what the paths of the process are relative to.
func (p *Process) Place() (procscan.Place, error) {
	var place procscan.Place
	_, err := p.call(opPlace, &request{}, &place)
	return place, err
}

// JavaAgent is javaagent.Find: nil without an agent.
func (p *Process) JavaAgent() (*javaagent.Agent, error) {
	var agent *javaagent.Agent
	if _, err := p.call(opJavaAgent, &request{}, &agent); err != nil {
		return nil, err
	}
	if agent != nil && !agent.IsValid() {
		return nil, errAnswer
	}
	return agent, nil
}

// Library parses the agent library at a mapping of the process, with the errors of
// procscan.Handle.OpenMapped, and ErrMalformed together with those of elfsym.ParseLibrary.
func (p *Process) Library(m procscan.Mapping) (*elfsym.Library, error) {
	var library elfsym.Library
	if _, err := p.call(opLibrary, newMapped(m), &library); err != nil {
		return nil, err
	}
	return &library, nil
}

// GoProgram reads what the program at a mapping of the process says of Go, with the errors of
// procscan.Handle.OpenMapped, and ErrMalformed together with those of elfsym.ParseGoProgram.
func (p *Process) GoProgram(m procscan.Mapping) (*elfsym.GoProgram, error) {
	var program elfsym.GoProgram
	if _, err := p.call(opGoProgram, newMapped(m), &program); err != nil {
		return nil, err
	}
	return &program, nil
}

// Files identifies and parses the files of mappings of the process, as profile.Process wants it.
func (p *Process) Files(mappings []procscan.Mapping) []profile.FileResult {
	results := make([]profile.FileResult, 0, len(mappings))
	err := askForAll(p, opFiles, mappings, func(file parsed) {
		results = append(results, profile.FileResult{Key: file.Key, File: file.File, View: file.View,
			Err: failures.Decode(file.Error)})
	})
	for len(results) < len(mappings) {
		results = append(results, profile.FileResult{Err: err})
	}
	return results
}

// VariableResult is the thread-local variable of a file, or why there is none.
type VariableResult struct {
	Variable *elfsym.Variable
	Err      error
}

// ThreadContexts looks for OpenTelemetry's thread context in the files of mappings of the process.
// The error is elfsym.ErrNoSymbols of a file without; else one of procscan.Handle.OpenMapped, or
// ErrMalformed together with those of elfsym.ParseThreadContext.
func (p *Process) ThreadContexts(mappings []procscan.Mapping) []VariableResult {
	results := make([]VariableResult, 0, len(mappings))
	err := askForAll(p, opThreadContexts, mappings, func(v variable) {
		result := VariableResult{v.Variable, failures.Decode(v.Error)}
		if (result.Variable == nil) == (result.Err == nil) {
			result = VariableResult{Err: errAnswer}
		}
		results = append(results, result)
	})
	for len(results) < len(mappings) {
		results = append(results, VariableResult{Err: err})
	}
	return results
}

// askForAll has workers answer for each of some mappings, in their order, in as many messages as
// that takes. After an error it answers for no more.
func askForAll[T any](p *Process, operation byte, mappings []procscan.Mapping, yield func(T)) error {
	for rest := mappings; len(rest) > 0; {
		var answer []T
		if _, err := p.call(operation, newMapped(rest[:messageful(rest)]...), &answer); err != nil {
			return err
		}
		if len(answer) == 0 {
			return errAnswer
		}
		answer = answer[:min(len(answer), len(rest))]
		for _, a := range answer {
			yield(a)
		}
		rest = rest[len(answer):]
	}
	return nil
}

// messageful returns how many of some mappings fit in a message.
func messageful(mappings []procscan.Mapping) (n int) {
	for bytes := 0; n < len(mappings); n++ {
		if bytes += mappingBytes + 4*len(mappings[n].Path)/3; bytes > worker.MaxMessageBytes && n > 0 {
			break
		}
	}
	return n
}

// mappingBytes is more than what a mapping takes in a request, without its path in base64; the
// request itself takes less.
const mappingBytes = 512

// call has a worker serve a request. The descriptor is -1 when none came.
func (p *Process) call(operation byte, r *request, answer any) (fd int, err error) {
	r.Process = p.id
	body, err := json.Marshal(r)
	if err != nil {
		return -1, err
	}
	fd = -1
	message := append([]byte{operation}, body...)
	err = p.client.pool.Measure(&p.spent, p.owner, timeout, message, func(message []byte, came int) error {
		fd = came
		return decodeAnswer(message, answer)
	})
	if err == nil && fd >= 0 && operation != opConnect {
		err = errAnswer
	}
	if err != nil && fd >= 0 {
		unix.Close(fd)
		fd = -1
	}
	return fd, err
}
