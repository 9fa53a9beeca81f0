package throughput

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleEnv is set in the processes that a benchmark starts, to a role as JSON.
const roleEnv = "CORRELATOR_TEST_OTLP_ROLE"

// role is what such a process does: one field is set.
type role struct {
	Receiver *receiverConfig `json:",omitempty"`
	Client   *clientConfig   `json:",omitempty"`
	Passer   *passerConfig   `json:",omitempty"`
}

func TestMain(m *testing.M) {
	text := os.Getenv(roleEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var r role
	err := json.Unmarshal([]byte(text), &r)
	switch {
	case err != nil:
	case r.Receiver != nil:
		err = receive(*r.Receiver)
	case r.Passer != nil:
		err = pass(*r.Passer)
	default:
		err = runClient(*r.Client)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process is another process of this binary. It ends with the benchmark at the latest.
type process struct {
	b      *testing.B
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
}

func start(b *testing.B, r role) *process {
	b.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
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
	b.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return &process{b: b, cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout)}
}

// line is the next that the process prints.
func (p *process) line() string {
	p.b.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.b.Fatalf("a process of the benchmark has ended: %v", err)
	}
	return strings.TrimSpace(line)
}

// end lets the process end, which then prints its result.
func (p *process) end(result any) {
	p.b.Helper()
	p.stdin.Close()
	if err := json.Unmarshal([]byte(p.line()), result); err != nil {
		p.b.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.b.Fatal(err)
	}
}

// startReceiver starts a receiver and returns its address.
func startReceiver(b *testing.B, c receiverConfig) (p *process, address string) {
	b.Helper()
	p = start(b, role{Receiver: &c})
	return p, p.line()
}

// run lets a client work with a receiver of its own, both new.
func run(b *testing.B, to receiverConfig, c clientConfig) (clientResult, receiverResult) {
	b.Helper()
	receiver, address := startReceiver(b, to)
	c.Addresses = append([]string{address}, c.Addresses...)
	var sent clientResult
	var received receiverResult
	start(b, role{Client: &c}).end(&sent)
	receiver.end(&received)
	if sent.Lost > 0 {
		b.Errorf("%d of %d batches were lost", sent.Lost, sent.Lost+sent.Batches)
	}
	return sent, received
}

// usage is what this process has used so far.
type usage struct {
	at        time.Time
	cpu, user time.Duration
}

func used() (usage, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return usage{}, err
	}
	user := time.Duration(u.Utime.Nano())
	return usage{at: time.Now(), cpu: user + time.Duration(u.Stime.Nano()), user: user}, nil
}

// resident is the memory of this process, now and at most, in MB of 10⁶ bytes.
func resident() (now, most float64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		kB, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch key {
		case "VmRSS":
			now = kB * 1024 / 1e6
		case "VmHWM":
			most = kB * 1024 / 1e6
		}
	}
	return now, most, nil
}
