package throughput

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// roleEnv is set in the processes that a benchmark starts, to a role as JSON.
const roleEnv = "CORRELATOR_TEST_DOTS_ROLE"

// role is what such a process does.
type role struct {
	Name   string // a key of roles
	Broker string // endpoint
	Cached bool
	Count  int
}

var roles = map[string]func(role) error{
	"broker": runBroker, "publisher": runPublisher, "subscriber": runSubscriber, "filler": runFiller,
	"joiner": runJoiner, "echo": runEcho, "idle": runIdle, "mirror": runMirror, "bare": runBare,
}

func TestMain(m *testing.M) {
	text := os.Getenv(roleEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = roles[r.Name](r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, r.Name+":", err)
		os.Exit(1)
	}
}

// process is another process. It ends with its input, or with the benchmark.
type process struct {
	b      *testing.B
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
}

// start starts a process of this binary, behind a command that it is an argument of.
func start(b *testing.B, r role, before ...string) *process {
	b.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	command := append(before, os.Args[0])
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
	return startCommand(b, cmd)
}

func startCommand(b *testing.B, cmd *exec.Cmd) *process {
	b.Helper()
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p := &process{b, cmd, stdin, bufio.NewReader(stdout)}
	b.Cleanup(p.end)
	return p
}

// end has the process end, and waits for that.
func (p *process) end() {
	if p.cmd.ProcessState == nil {
		_ = p.stdin.Close()
		_ = p.cmd.Wait()
	}
}

// line returns the next line of its output.
func (p *process) line() string {
	p.b.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.b.Fatalf("%v printed nothing: %v", p.cmd.Args, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// number returns the number in the next line.
func (p *process) number() float64 {
	p.b.Helper()
	n, err := strconv.ParseFloat(p.line(), 64)
	if err != nil {
		p.b.Fatal(err)
	}
	return n
}

// resident returns the memory of the process in MB.
func (p *process) resident() float64 {
	p.b.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		p.b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kib), "kB")), 64)
			if err != nil {
				p.b.Fatal(err)
			}
			return n * 1024 / 1e6
		}
	}
	p.b.Fatal("no VmRSS")
	return 0
}

// untilEnd waits until the benchmark closes standard input.
func untilEnd() error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
