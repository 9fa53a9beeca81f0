package try

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/terminal"
	"correlator/internal/operate/config"
	"correlator/internal/out/explain"
	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/internal/out/waits"
	"correlator/internal/stacks/sampling"
	"correlator/profile"
)

// Options say how to try.
type Options struct {
	Shop     []string // a command that has Shop run in a process of its own
	File     string   // where the page goes
	ProcRoot string
}

const (
	samplesPerSecond = 97

	// patience is how long the shop may take at most, so that all takes less than 15 s. It takes 2.5 s where its CPU is
	// not busy with others.
	patience = 11 * time.Second
)

// ErrNotHere: what try needs is not allowed, or not there.
var ErrNotHere = errors.New("processes cannot be looked at")

// Run starts a shop, records what its threads do, and writes that: their account, beside what the thread that serves
// orders has measured itself, to stdout, and then a page to a file. The shop has ended when it returns.
func Run(ctx context.Context, stdout, stderr io.Writer, options Options) error {
	s, err := start(ctx, options.Shop)
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("starting the shop: %w", err)
	}
	defer s.end() //nolint:errcheck // it has served, or an error was told
	var measured *Measured
	var served error
	// By frame pointers, which Go has: an engine may take longer to begin than all the rest.
	recording, notes, err := report.Take(ctx, stderr, record.Options{
		Duration: patience, PID: s.process.Pid, SamplesPerSecond: samplesPerSecond, Accounts: true, Moments: true,
		Labels:   config.DefaultLabelKeys().Keys(),
		Unwinder: sampling.FramePointers, ProcRoot: options.ProcRoot,
		While: func(ctx context.Context) { measured, served = s.serve(ctx) },
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrPermission) || errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w: %w", ErrNotHere, err)
	case err != nil:
		return err
	case served != nil:
		return fmt.Errorf("the shop: %w", served)
	case measured == nil:
		return fmt.Errorf("the shop has not served an order in %v: its CPU is too busy", patience)
	}
	keepThreads(recording, measured.Threads)
	fmt.Fprintf(stdout, story, measured.Orders, orders)
	if err := show(stdout, stderr, recording, notes, explain.Table, ""); err != nil {
		return err
	}
	fmt.Fprint(stdout, "\n")
	for _, line := range compare(recording, measured) {
		fmt.Fprintln(stdout, line)
	}
	fmt.Fprint(stdout, "\n")
	if err := show(stdout, stderr, recording, notes, report.HTML, options.File); err != nil {
		return err
	}
	fmt.Fprint(stdout, next)
	return nil
}

func show(stdout, stderr io.Writer, r *record.Recording, notes []string, format report.Format, file string) error {
	return explain.WriteProcesses(stdout, stderr, r, notes, explain.ProcessOptions{Format: format, File: file,
		Brief: true})
}

const (
	story = `A shop on one CPU has served %d of %d orders. Its thread "checkout" polls for an order, computes a price, waits
for a lock that another order holds ("checkout-2"), asks the "bank" by a socket, sleeps, and packs while "report"
wants the same CPU. Each order is a trace, by labels of its goroutine.

`
	next = `
Of a process of yours:  correlator explain --pid N
The agent, by traces:   correlator run --keep 10m, then correlator explain --slowest 10
`
)

// keepThreads leaves threads out that are not listed: those of Go's runtime, which sleep.
func keepThreads(r *record.Recording, tids []int) {
	others := func(tid int) bool { return !slices.Contains(tids, tid) }
	r.Accounts = slices.DeleteFunc(r.Accounts, func(a record.ThreadAccount) bool { return others(a.TID) })
	maps.DeleteFunc(r.Samples, func(k record.Key, _ uint64) bool { return others(k.TID) })
	maps.DeleteFunc(r.Moments, func(k record.WaitKey, _ []keep.Moment) bool { return others(k.TID) })
	maps.DeleteFunc(r.Waits, func(k record.WaitKey, _ profile.StateTimes) bool { return others(k.TID) })
}

// compare returns a table of what the thread that serves orders did, by its own clocks and by its account.
func compare(r *record.Recording, m *Measured) []string {
	var times profile.Times
	for i := range r.Accounts {
		if r.Accounts[i].TID == m.TID {
			times.Add(&r.Accounts[i].Times)
		}
	}
	t := terminal.NewTable(terminal.Column{Title: "CHECKOUT"}, terminal.Column{Title: "BY ITS OWN CLOCKS", Right: true},
		terminal.Column{Title: "BY THE CORRELATOR", Right: true})
	for _, row := range []struct {
		what string
		own  time.Duration
		ours time.Duration
	}{
		{"on a CPU", m.CPU, times[profile.OnCPU].Sum},
		{"waiting for a CPU", m.Wait, times[profile.Runnable].Sum + times[profile.Throttled].Sum},
		{"lock", m.Lock, times[profile.Futex].Sum},
		{"network", m.Net, times[profile.Net].Sum},
		{"sleep", m.Nap, times[profile.Sleep].Sum},
	} {
		t.Row(row.what, waits.Exactly(row.own), waits.Exactly(row.ours))
	}
	traces, samples := make(map[[16]byte]bool), uint64(0)
	for key, n := range r.Samples {
		if key.HasTrace() && key.TID == m.TID {
			traces[key.TraceID] = true
			samples += n
		}
	}
	t.Row(fmt.Sprintf("CPU samples of %d traces", len(traces)), waits.Exactly(m.CPU),
		waits.Exactly(time.Duration(samples)*r.Period()))
	return t.Lines(0)
}

type shopProcess struct {
	process *os.Process
	conn    *os.File // its input and output
	output  *bufio.Reader
}

// start starts a shop, and waits until it is ready. The context ends it, too, until then.
func start(ctx context.Context, command []string) (*shopProcess, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	conn, its := os.NewFile(uintptr(ends[0]), ""), os.NewFile(uintptr(ends[1]), "")
	process, err := os.StartProcess(command[0], command, &os.ProcAttr{Env: append(os.Environ(), ShopEnv),
		Files: []*os.File{its, its, os.Stderr}})
	its.Close() //nolint:errcheck // nothing was written to it
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = process.Kill() })
	defer stop()
	s := &shopProcess{process: process, conn: conn, output: bufio.NewReader(conn)}
	if _, err := s.output.ReadString('\n'); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// serve has the shop serve its orders. The context ends the shop, too; nil is returned then.
func (s *shopProcess) serve(ctx context.Context) (*Measured, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.process.Kill() })
	defer stop()
	if _, err := s.conn.WriteString("serve\n"); err != nil {
		return nil, err
	}
	line, err := s.output.ReadBytes('\n')
	if ctx.Err() != nil {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	m := new(Measured)
	return m, json.Unmarshal(line, m)
}

func (s *shopProcess) end() error {
	s.conn.Close() //nolint:errcheck // that is how it is told to end
	state, err := s.process.Wait()
	if err == nil && !state.Success() {
		return errors.New(state.String())
	}
	return err
}
