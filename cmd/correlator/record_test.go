package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/config"
)

func functionsOf(p *pprof.Profile, transactionID string) map[string]bool {
	found := make(map[string]bool)
	for _, sample := range p.Sample {
		if !slices.Equal(sample.Label["transaction_id"], []string{transactionID}) {
			continue
		}
		for _, location := range sample.Location {
			for _, line := range location.Line {
				found[line.Function.Name] = true
			}
		}
	}
	return found
}

func readProfile(t *testing.T, path string) *pprof.Profile {
	t.Helper()
	content, err := os.ReadFile(path)
	assert.NilError(t, err)
	return parseProfile(t, content)
}

func parseProfile(t *testing.T, content []byte) *pprof.Profile {
	t.Helper()
	p, err := pprof.ParseData(content)
	if err == nil {
		err = p.CheckValid()
	}
	assert.NilError(t, err)
	return p
}

// recordUntil runs record, with a command as startAgent, for longer and longer until what it wrote is enough: on a
// busy machine a process may get little CPU time in a second.
func recordUntil(t *testing.T, by []string, enough func(stdout, stderr string) bool, flags ...string) {
	t.Helper()
	for length := time.Second; ; length *= 2 {
		argv := slices.Concat(by, []string{installed(t), "record", "-d", length.String()}, flags)
		cmd := exec.Command(argv[0], argv[1:]...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		nothing := strings.Contains(stderr.String(), "nothing was sampled")
		assert.Assert(t, err == nil || nothing, "%v: %v\n%s", flags, err, &stderr)
		if err == nil && enough(stdout.String(), stderr.String()) {
			return
		}
		assert.Assert(t, length < deadline, "%v: not enough in %v\n%s%s", flags, length, &stdout, &stderr)
	}
}

// The functions of a transaction, by name, are under its id, and nothing else is.
func TestRecord(t *testing.T) {
	t.Parallel()
	needSampler(t)
	p := demo.Start(t, demo.Options{Manual: true, Busy: 3, Service: "shop\x1b[31m"})
	other := demo.Start(t, demo.Options{Manual: true, Busy: 1, Service: "other"})
	other.Begin(1)
	begun := []demo.Context{p.Begin(1), p.Begin(2), p.Begin(3)} // one of each kind
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	var stderr string
	recordUntil(t, nil, func(stdout, written string) bool {
		assert.Check(t, stdout == "", "standard output %q", stdout)
		stderr = written
		recorded, all := readProfile(t, path), true
		for _, c := range begun {
			found := functionsOf(recorded, c.TransactionID.String())
			for kind, function := range map[string]string{"checkout": "price_basket", "search": "score_results",
				"browse": "list_folder"} {
				assert.Check(t, !found[kind] || kind == c.Kind, "the functions of a %s are %v", c.Kind, found)
				all = all && (kind != c.Kind || found[kind] && found[function])
			}
		}
		return all
	}, "--service", `shop.*`, "-o", path, "--rate", "997", "--unwinder", "frame-pointers")
	for _, sample := range readProfile(t, path).Sample {
		service := sample.Label["service"]
		assert.Assert(t, len(service) == 1 && service[0] == `shop\x1b[31m`, "sample of service %q", service)
	}
	assert.Check(t, !strings.Contains(stderr, "\x1b"), "standard error %q", stderr)
	for _, want := range []string{"recording for ", `shop\x1b[31m`, "% of native",
		begun[0].TransactionID.String(), begun[0].TraceID.String(), "go tool pprof -http=: " + path} {
		assert.Check(t, strings.Contains(stderr, want), "no %q in\n%s", want, stderr)
	}
}

// Processes that publish nothing are recorded when they are named, and no others.
func TestRecordAny(t *testing.T) {
	t.Parallel()
	needSampler(t)
	start := func(service string) *demo.Process {
		return demo.Start(t, demo.Options{Hold: true, Busy: 1,
			Placement: demo.Placement{Env: []string{"OTEL_SERVICE_NAME=" + service}}})
	}
	p := start("recorded")
	start("other")
	for _, flags := range [][]string{
		{"--pid", strconv.Itoa(p.PID)}, {"--all", "--service", "recorded"}, {"--comm", "de.o", "--service", "recorded"},
	} {
		recordUntil(t, nil, func(stdout, stderr string) bool {
			for line := range strings.Lines(stdout) {
				assert.Check(t, strings.HasPrefix(line, "recorded;"), "%v: %s", flags, line)
			}
			assert.Check(t, stdout != "" && strings.Contains(stderr, "0.0% in 0 transactions"), "%v\n%s", flags, stderr)
			return true
		}, append(flags, "-o", "-", "--format", "folded")...)
	}
}

// The ids of containers may be cut off, as container engines print them.
func TestRecordContainers(t *testing.T) {
	full := strings.Repeat("0123456789abcdef", 4)
	for container, want := range map[string]bool{full: true, full[:12]: true, full[:8] + ".*": true, full[1:13]: false,
		full[:7]: false, "/docker/.*": false} {
		options := recordOptions{chosen: chosen{Containers: config.Patterns{container}}}
		filter := options.filter()
		assert.Check(t, filter.All && filter.OnlyContainers[0].MatchString(full) == want, container)
	}
	assert.Check(t, !newRecordOptions().filter().All)
}

// Java code has names once the JVM has written a perf map.
func TestRecordJVM(t *testing.T) {
	t.Parallel()
	needSampler(t)
	jcmd := testenv.NeedTool(t, "jcmd")
	p := demo.StartJVM(t, demo.JVMOptions{Threads: 1, Busy: true, FramePointers: true, Service: "java"})
	begun := p.Begin(1)
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	perfMap := fmt.Sprintf("/tmp/perf-%d.map", p.PID)
	t.Cleanup(func() { os.Remove(perfMap) })
	flags := []string{"--pid", strconv.Itoa(p.PID), "-o", path, "--rate", "997", "--unwinder", "frame-pointers"}
	recordUntil(t, nil, func(_, stderr string) bool { // when it has run compiled code
		return strings.Contains(stderr, "code in memory of java ("+strconv.Itoa(p.PID)+") has no names")
	}, flags...)
	output, err := exec.Command(jcmd, strconv.Itoa(p.PID), "Compiler.perfmap").CombinedOutput()
	assert.NilError(t, err, "\n%s", output)
	recordUntil(t, nil, func(string, string) bool {
		found := functionsOf(readProfile(t, path), begun.TransactionID.String())
		return slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(name string) bool {
			return strings.Contains(name, `Demo$Worker.burn`)
		})
	}, flags...)
}

// The first Ctrl-C ends a recording early. The profile may be written to a pipe.
func TestRecordUntilInterrupted(t *testing.T) {
	t.Parallel()
	needSampler(t)
	p := demo.Start(t, demo.Options{Manual: true, Busy: 1})
	p.Begin(1)
	terminal, stderr := openTerminal(t, 60)
	cmd := exec.Command(installed(t), "record", "-d", "1h", "--pid", strconv.Itoa(p.PID), "-o", "-",
		"--unwinder", "frame-pointers")
	cmd.Env = append(os.Environ(), "TERM=xterm")
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	stderr.Close()
	sampled := regexp.MustCompile(`\r\x1b\[Krecording \d+s of 1h0m0s: [1-9]\d* samples, 100% in`)
	testenv.Poll(t, deadline, "samples on the status line",
		func() bool { return sampled.MatchString(terminal.String()) })
	assert.NilError(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, terminal.String())
	}
	assert.Check(t, len(parseProfile(t, stdout.Bytes()).Sample) != 0, "no samples in the profile")
	testenv.Poll(t, deadline, "the summary", func() bool { return strings.Contains(terminal.String(), "KiB to -") })
	shown := terminal.String()
	for line := range strings.SplitSeq(shown, "\r\x1b[K") {
		if status, _, _ := strings.Cut(line, "\r\n"); strings.HasPrefix(status, "recording") &&
			utf8.RuneCountInString(status) >= 60 {
			t.Errorf("status line of %d columns: %q", utf8.RuneCountInString(status), status)
		}
	}
}

// A profile is not written to a terminal, and nothing is recorded then.
func TestRecordToTerminal(t *testing.T) {
	terminal, tty := openTerminal(t, 80)
	cmd := exec.Command(installed(t), "record", "-o", "-")
	cmd.Stdout = tty
	err := cmd.Run()
	tty.Close()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("%v\n%s", err, terminal.String())
	}
}

// Without a process to sample no file is written.
func TestRecordNothing(t *testing.T) {
	needSampler(t)
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	cmd := exec.Command(installed(t), "record", "-d", "100ms", "--service", "there is no such service", "-o", path)
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(output), `too short to look at all processes`) {
		t.Errorf("%v\n%s", err, output)
	}
	_, err = os.Stat(path)
	assert.Check(t, err != nil, "a profile was written")
	// more than there can be
	cmd = exec.Command(installed(t), "record", "-d", "100ms", "--pid", "1073741824", "-o", path)
	output, err = cmd.CombinedOutput()
	assert.Check(t, cmd.ProcessState.ExitCode() == 1 && strings.Contains(string(output),
		"recording process 1073741824"), "%v\n%s", err, output)
}

// openTerminal returns a terminal with so many columns, and the side that programs write to.
func openTerminal(t *testing.T, columns uint16) (*shown, *os.File) {
	t.Helper()
	master, tty := testenv.Terminal(t, columns, 24)
	s := &shown{}
	go io.Copy(s, master)
	return s, tty
}

// shown is the output on a terminal. It is safe for concurrent use.
type shown struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *shown) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *shown) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
