package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestThreadsSwitchByThemselves(t *testing.T) {
	p := Start(t, Options{Busy: 1, Idle: 1, Transaction: time.Millisecond, Gap: time.Millisecond})
	p.ReportWhen("transactions of both threads", func(r Report) bool {
		var ended [3]int
		for _, transaction := range r.Transactions {
			if transaction.EndNs > transaction.BeginNs {
				ended[transaction.Thread]++
			}
		}
		return ended[1] > 3 && ended[2] > 3
	})
	threads := p.StartThreads(2, "untouched")
	assert.Check(t, len(threads) == 5 && threads[4].Kind == "untouched" && threads[4].Name == "untouched-4",
		"threads %+v", threads)
	for _, thread := range threads {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", p.PID, thread.TID))
		assert.Check(t, err == nil && strings.TrimSpace(string(name)) == thread.Name,
			"thread %+v is called %q, %v", thread, name, err)
	}
	p.StopThreads()
	if threads := p.Threads(); len(threads) != 1 {
		t.Errorf("threads after stopping: %+v", threads)
	}
	report := p.Quit()
	kinds := map[string]bool{}
	var cpu time.Duration
	for _, transaction := range report.Transactions {
		assert.Check(t, transaction.TraceID.Whole() &&
			transaction.TransactionID == transaction.TraceID.TransactionID() && transaction.EndNs != 0,
			"transaction %+v", transaction)
		kinds[transaction.Kind] = true
		cpu += transaction.CPU
	}
	assert.Check(t, len(kinds) == 3 && cpu != 0 && report.CPUInGaps != 0 &&
		report.TransactionsBegun >= uint64(len(report.Transactions)),
		"kinds %v, CPU %v, report %+v", kinds, cpu, report)
	assert.Check(t, len(report.Transactions) != int(report.TransactionsBegun) || cpu == report.CPUInTransactions,
		"transactions had %v of CPU, in all %v", cpu, report.CPUInTransactions)
}

func TestRewriting(t *testing.T) {
	for _, rewriting := range []Rewriting{RewriteNew, RewriteCycle} {
		for _, swap := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,swap=%v", rewriting, swap), func(t *testing.T) {
				p := Start(t, Options{Busy: 1, Rewrite: rewriting, Swap: swap})
				thread := p.Threads()[1]
				slots, traces := map[uint64]bool{}, map[TraceID]bool{}
				testenv.Poll(t, deadline, "different contexts", func() bool {
					pointer := readWord(t, p.PID, thread.Variable)
					slots[pointer] = true
					traces[TraceID(readMemory(t, p.PID, pointer, 37)[5:21])] = true
					return len(traces) > 8 && len(slots) > 1 == swap
				})
				assert.Check(t, swap == (len(slots) == 2), "slots %v", slots)
				report := p.Quit()
				if kept := map[Rewriting]int{RewriteNew: 0,
					RewriteCycle: 64}[rewriting]; len(report.Transactions) != kept || report.Rewrites == 0 {
					t.Errorf("%d transactions kept, %d rewrites", len(report.Transactions), report.Rewrites)
				}
			})
		}
	}
}

func TestUnsampledTraceFlags(t *testing.T) {
	p := Start(t, Options{Unsampled: true})
	flags := readMemory(t, p.PID, p.Begin(0).Thread.Slot, 5)[4]
	assert.Check(t, flags == 0, "trace flags %d", flags)
}

func TestAutoFillsNoSlotBeforeTheRegistration(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{Auto: true, Busy: 1, Idle: 1, Transaction: time.Millisecond})
	assert.Check(t, p.Command(nil, "begin", "0") != nil, "began a transaction before the registration")
	for _, thread := range p.Threads() {
		assert.Check(t, thread.Variable == 0, "thread %+v", thread)
	}
	report := p.Report()
	assert.Check(t, report.TransactionsBegun == 0, "%d transactions", report.TransactionsBegun)
	send(t, connect(t, p), unhex(t, registration))
	p.ReportWhen("transactions after the registration", func(r Report) bool { return r.TransactionsBegun > 3 })
	p.Begin(0)
}

func TestNeverRead(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{NeverRead: true})
	raw, err := connect(t, p).SyscallConn()
	assert.NilError(t, err)
	message := []byte(unhex(t, registration))
	assert.NilError(t, raw.Control(func(fd uintptr) {
		for sent := 0; err == nil && sent < 10000; sent++ {
			err = unix.Send(int(fd), message, unix.MSG_DONTWAIT)
		}
	}))
	assert.Check(t, errors.Is(err, syscall.EAGAIN), "sending without end: %v", err)
	report := p.Quit()
	assert.Check(t, report.Messages == 0, "report %+v", report)
}

func TestPublishedLate(t *testing.T) {
	p := Start(t, Options{PublishAfter: time.Millisecond})
	if loaded, published := p.Loaded(), p.Published(); published.TimeNs < loaded.MappedNs+uint64(time.Millisecond) {
		t.Errorf("loaded %+v, published %+v", loaded, published)
	}
}

func TestHowItEnds(t *testing.T) {
	gone := func(t *testing.T, p *Process) {
		err := syscall.Kill(p.PID, 0)
		assert.Check(t, errors.Is(err, syscall.ESRCH), "the process is still there: %v", err)
	}
	t.Run("by itself", func(t *testing.T) {
		p := Start(t, Options{Busy: 1, Duration: time.Millisecond})
		report := p.Wait()
		assert.Check(t, report.TransactionsBegun != 0, "report %+v", report)
	})
	t.Run("terminated", func(t *testing.T) {
		p := Start(t, Options{Busy: 1})
		report := p.terminate()
		assert.Check(t, report.TransactionsBegun != 0, "report %+v", report)
		_, err := os.Lstat(p.Socket)
		assert.Check(t, errors.Is(err, os.ErrNotExist), "the socket: %v", err)
	})
	t.Run("killed", func(t *testing.T) {
		p := Start(t, Options{Busy: 1})
		p.Kill()
		gone(t, p)
		_, err := os.Lstat(p.Socket)
		assert.Check(t, err, "the socket")
		assert.Check(t, p.Command(nil, "threads") != nil, "a killed process ran a command")
	})
	t.Run("with its input", func(t *testing.T) {
		var p *Process
		t.Run("user", func(t *testing.T) { p = Start(t, Options{}) })
		gone(t, p)
		_, err := os.Lstat(p.Dir)
		assert.Check(t, errors.Is(err, os.ErrNotExist), "its directory: %v", err)
	})
}

func TestPlacement(t *testing.T) {
	testenv.NeedRoot(t)
	const uid, gid = 12345, 12346
	for _, flavor := range Flavors() {
		t.Run(flavor.String(), func(t *testing.T) {
			p := Start(t, Options{Flavor: flavor, Placement: Placement{PrivateTmp: true, UID: uid, GID: gid,
				Env: []string{"PLACE=here"}}})
			assert.Check(t, p.Dir == "/tmp" && filepath.Dir(p.Library) == "/tmp" && filepath.Dir(p.Socket) == "/tmp",
				"process %+v", p)
			_, err := os.Lstat(p.Library)
			assert.Check(t, errors.Is(err, os.ErrNotExist), "the library is seen outside: %v", err)
			var status unix.Stat_t
			if err := unix.Stat(p.HostPath(p.Library), &status); err != nil || status.Uid != uid ||
				status.Mode&0o777 != 0o600 {
				t.Errorf("the library: %v, %+v", err, status)
			}
			if err := unix.Stat(fmt.Sprintf("/proc/%d", p.PID), &status); err != nil || status.Uid != uid ||
				status.Gid != gid {
				t.Errorf("the process: %v, %+v", err, status)
			}
			environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
			assert.Check(t, err == nil && bytes.Contains(environment, []byte("\x00PLACE=here\x00")),
				"environment %q, %v", environment, err)
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
			assert.Check(t, err == nil && bytes.Contains(maps, []byte(p.Library)),
				"the library is not mapped: %s, %v", maps, err)
		})
	}
}

func TestAnotherUserInTheCommonTmp(t *testing.T) {
	testenv.NeedRoot(t)
	p := Start(t, Options{Placement: Placement{UID: 12345, GID: 12346}})
	for _, path := range []string{p.Library, p.Socket} {
		var status unix.Stat_t
		if err := unix.Stat(path, &status); err != nil || status.Uid != 12345 || status.Gid != 12346 {
			t.Errorf("%s: %v, %+v", path, err, status)
		}
	}
	p.Begin(0)
}

func TestWrongUse(t *testing.T) {
	Glibc.need(t)
	program := filepath.Join(Build(t, "demo-glibc"), "demo-glibc")
	for _, arguments := range [][]string{{"--no-such-option"}, {"--threads", "x"}, {"--rewrite", "always"}, {"more"}} {
		output, err := exec.Command(program, arguments...).CombinedOutput()
		var exit *exec.ExitError
		assert.Check(t, errors.As(err, &exit) && exit.ExitCode() == 2 && strings.Contains(string(output), "usage:"),
			"%v: %v, %s", arguments, err, output)
	}
	output, err := exec.Command(program, "--help").Output()
	assert.Check(t, err == nil && strings.Contains(string(output), "--never-read"), "--help: %v, %s", err, output)
}

func TestPrebuiltLibrariesRun(t *testing.T) {
	if machine := unameMachine(t); machine != "x86_64" {
		testenv.Missing(t, "the prebuilt libraries that run are for x86-64, this is "+machine)
	}
	for name, flavor := range map[string]Flavor{
		"x86_64-glibc-tlsdesc":            Glibc,
		"x86_64-glibc-tlsdesc-local":      Glibc,
		"x86_64-glibc-tlsdesc-lld":        GlibcDynamic,
		"x86_64-glibc-tlsdesc-lld-local":  GlibcDynamic,
		"x86_64-glibc-tlsdesc-nosections": GlibcDynamic,
		"x86_64-glibc-tlsdesc-sysvhash":   Glibc,
		"x86_64-glibc-dtpmod":             GlibcDTPMod,
		"x86_64-glibc-dtpmod-local":       GlibcDTPMod,
		"x86_64-glibc-dtpmod-lld-local":   GlibcDTPMod,
		"x86_64-glibc-dtpmod-nosections":  GlibcDTPMod,
		"x86_64-glibc-initialexec":        Glibc,
		"x86_64-musl-tlsdesc":             Musl,
		"x86_64-musl-dtpmod":              Musl,
	} {
		t.Run(name, func(t *testing.T) {
			p := Start(t, Options{Flavor: flavor, Library: Fixture(t, name), Idle: 1, Manual: true})
			threads := []Thread{p.Begin(0).Thread, p.Begin(1).Thread}
			for _, thread := range threads {
				slot := readWord(t, p.PID, thread.Variable)
				assert.Check(t, slot == thread.Slot, "the variable holds %#x, not %#x", slot, thread.Slot)
			}
			assert.Check(t, static(threads) == (flavor == Glibc), "static is %v, threads %+v", flavor != Glibc, threads)
		})
	}
	for _, name := range []string{"x86_64-glibc-older", "x86_64-glibc-storageonly", "x86_64-glibc-tlsonly"} {
		t.Run(name, func(t *testing.T) {
			p := Start(t, Options{Library: Fixture(t, name), Manual: true})
			err := p.Command(nil, "publish")
			assert.Check(t, (err == nil) == (name == "x86_64-glibc-storageonly"), "publishing: %v", err)
			err = p.Command(nil, "begin", "0")
			assert.Check(t, (err == nil) == (name == "x86_64-glibc-tlsonly"), "beginning: %v", err)
		})
	}
}

func unameMachine(t *testing.T) string {
	t.Helper()
	var name unix.Utsname
	assert.NilError(t, unix.Uname(&name))
	return unix.ByteSliceToString(name.Machine[:])
}

func TestRun(t *testing.T) {
	assert.Check(t, Run(func(t testing.TB) {
		p := Start(t, Options{})
		t.Cleanup(func() {
			assert.Check(t, !p.Ended(), "ended before its cleanup")
		})
	}))
	reached := false
	err := Run(func(t testing.TB) {
		Start(t, Options{Service: "x"}).Begin(77)
		reached = true
	})
	assert.Check(t, err != nil && !reached && strings.Contains(err.Error(), "no such thread"),
		"a program with an error: %v", err)
	err = Run(func(t testing.TB) {
		assert.Check(t, false)
		assert.NilError(t, os.ErrExist)
		reached = true
	})
	assert.Check(t, err != nil && !reached, "a program with an assertion that fails: %v", err)
}
