package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// deadline is the limit for everything that the process does at once: far more than it needs on a
// machine that is busy with other tests.
const deadline = 60 * time.Second

// maxEventBytes bounds one line: a report of some thousand transactions with hundreds of stacks
// each.
const maxEventBytes = 256 << 20

// Process is a process that runs. Commands must not be given concurrently.
type Process struct {
	PID     int
	Dir     string // its directory for files, as the process sees it
	Library string // path of its copy of the agent library, as the process sees it
	Socket  string // path of its socket, as the process sees it

	t       testing.TB
	command *exec.Cmd
	stdin   io.WriteCloser
	stderr  output
	replies chan event    // answers to commands, in order
	ended   chan struct{} // closed when output ended and the process was reaped
	killed  bool          // by Kill: it need not exit with 0

	mu   sync.Mutex
	seen []event // what happened without a command
}

// output collects what a process writes while others may read it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

type event struct {
	Event string
	PID   int
	Reply bool
	Error string
	line  []byte
}

// run starts the command and waits for its ready event, which the process sends when it has
// initialized.
func run(t testing.TB, command *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, command: command, replies: make(chan event, 1), ended: make(chan struct{})}
	stdin, err := command.StdinPipe()
	assert.NilError(t, err)
	stdout, err := command.StdoutPipe()
	assert.NilError(t, err)
	p.stdin = stdin
	command.Stderr = &p.stderr
	assert.NilError(t, command.Start(), "starting the demo process")
	p.PID = command.Process.Pid
	t.Cleanup(p.cleanup)
	go p.collect(stdout)
	p.await("ready", 1, nil)
	return p
}

// collect distributes what the process prints until it ends.
func (p *Process) collect(stdout io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, maxEventBytes)
	for lines.Scan() {
		e := event{line: bytes.Clone(lines.Bytes())}
		if err := json.Unmarshal(e.line, &e); err != nil {
			e = event{Event: "nonsense", line: e.line}
		}
		if e.Reply {
			p.replies <- e
			continue
		}
		p.mu.Lock()
		p.seen = append(p.seen, e)
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, stdout) // a line too long: the process must be able to go on writing
	_ = p.command.Wait()               // cleanup examines the state
}

// Ended reports whether the process is gone.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *Process) cleanup() {
	p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(deadline):
		p.t.Errorf("the demo process did not end with its standard input")
		_ = p.command.Process.Kill() // the test has failed already
		<-p.ended
	}
	if state := p.command.ProcessState; !p.killed && !state.Success() {
		p.t.Errorf("the demo process ended badly: %v\n%s", state, &p.stderr)
	}
}

// happened returns the nth event of this name, counted from 1.
func (p *Process) happened(name string, n int) (event, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.seen {
		if e.Event == name {
			if n--; n == 0 {
				return e, true
			}
		}
	}
	return event{}, false
}

// forget forgets the events so far: later ones are of the program that the process executes next.
func (p *Process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
}

// await waits for the nth event of this name and decodes it into out.
func (p *Process) await(name string, n int, out any) {
	p.t.Helper()
	var found event
	testenv.Poll(p.t, deadline, fmt.Sprintf("event %q number %d of the demo process", name, n), func() bool {
		ended := p.Ended() // before looking: nothing comes afterwards
		e, ok := p.happened(name, n)
		if !ok && ended {
			p.t.Fatalf("the demo process ended without event %q number %d: %v\n%s",
				name, n, p.command.ProcessState, &p.stderr)
		}
		found = e
		return ok
	})
	p.decode(found, out)
}

func (p *Process) decode(e event, out any) {
	p.t.Helper()
	if out == nil {
		return
	}
	assert.NilError(p.t, json.Unmarshal(e.line, out), "decoding event %s", e.line)
}

// Command sends one command line and decodes the reply into out, unless that is nil. An error is
// what the process replied, or that it ended.
func (p *Process) Command(out any, words ...string) error {
	p.t.Helper()
	line := strings.Join(words, " ")
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		return fmt.Errorf("giving the command %q: %w", line, err)
	}
	var reply event
	select {
	case reply = <-p.replies:
	case <-p.ended:
		select {
		case reply = <-p.replies: // the last one before its end
		default:
			return fmt.Errorf("command %q: %w", line, errEnded)
		}
	case <-time.After(deadline):
		return fmt.Errorf("command %q: %w", line, errNoAnswer)
	}
	if reply.Event == "error" {
		return fmt.Errorf("command %q: %s", line, reply.Error)
	}
	p.decode(reply, out)
	return nil
}

var (
	errEnded    = errors.New("the demo process ended")
	errNoAnswer = errors.New("no answer")
)

// must is Command for commands that cannot fail.
func (p *Process) must(out any, words ...string) {
	p.t.Helper()
	if err := p.Command(out, words...); err != nil {
		p.t.Fatalf("%v\n%s", err, &p.stderr)
	}
}

// Kill ends the process with SIGKILL and returns when it has been reaped.
func (p *Process) Kill() {
	p.t.Helper()
	p.killed = true
	assert.NilError(p.t, p.command.Process.Kill(), "killing the demo process, which wrote: %s", &p.stderr)
	<-p.ended
}
