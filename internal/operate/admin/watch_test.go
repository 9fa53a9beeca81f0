package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/host/terminal"
	"correlator/internal/lab/testenv"
)

// Without a terminal one status follows the other, until the end.
func TestWatchPlain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	serve(t, path, &source{status: example()})
	ctx, cancel := context.WithCancel(t.Context())
	written := &counting{enough: 3, cancel: cancel}
	assert.Check(t, Watch(ctx, written, NewClient(path), time.Millisecond))
	if n := strings.Count(written.String(), "3 processes: 1 registered"); n < 3 ||
		strings.Contains(written.String(), "\x1b") {
		t.Errorf("%d times in\n%s", n, written.String())
	}
}

// counting ends a watch when enough was written.
type counting struct {
	strings.Builder
	enough int
	cancel func()
}

func (c *counting) Write(text []byte) (int, error) {
	if c.enough--; c.enough == 0 {
		c.cancel()
	}
	return c.Builder.Write(text)
}

// On a terminal the status is redrawn in place, whatever the size of the terminal and the width of
// the texts: nothing wraps or moves up, columns are aligned, every process is shown or counted.
func TestWatchOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	path := filepath.Join(t.TempDir(), "admin.sock")
	status := example()
	for i := range 50 {
		p := status.Processes[0]
		p.PID = 5000 + i
		p.ServiceName = []string{"決済サービス", "결제", "shop"}[i%3]
		status.Processes = append(status.Processes, p)
	}
	serve(t, path, &source{status: status})
	for _, size := range []struct{ columns, rows int }{{80, 24}, {160, 70}, {120, 5}, {30, 24}, {61, 14}, {8, 3},
		{1, 1}} {
		t.Run(fmt.Sprintf("%dx%d", size.columns, size.rows), func(t *testing.T) {
			e := drawn(t, path, size.columns, size.rows)
			if size.rows < 14 {
				return
			}
			checkProcesses(t, e, len(status.Processes))
			if row, _ := e.find("53 processes"); row < size.rows-4 && size.rows < 60 {
				t.Errorf("totals in row %d of %q", row, e.lines())
			}
			if row, _ := e.find("last error of 4711"); row < 0 {
				t.Errorf("no error in %q", e.lines())
			}
		})
	}
}

// drawn returns a terminal on which the status was drawn twice, and checks that nothing wrapped or
// moved up and that the second drawing changed nothing below the first lines.
func drawn(t *testing.T, path string, columns, rows int) *emulator {
	t.Helper()
	e := newEmulator(t, columns, rows)
	master, screen := testenv.Terminal(t, uint16(columns), uint16(rows))
	first, last := frames(t, master, screen, path)
	e.write(first)
	was := e.lines()
	e.write(last)
	assert.Check(t, e.cursorHidden && e.wraps <= 0 && e.scrolled <= 0,
		"hidden %v, %d lines wrapped, %d rows moved up", e.cursorHidden, e.wraps, e.scrolled)
	now := e.lines()
	assert.Check(t, strings.Join(was[min(2, len(was)):], "\n") == strings.Join(now[min(2, len(now)):], "\n"),
		"drawn twice:\n%q\n%q", was, now)
	return e
}

func checkProcesses(t *testing.T, e *emulator, processes int) {
	t.Helper()
	title, service := e.find("SERVICE")
	_, state := e.find("STATE")
	if title < 0 {
		t.Fatalf("no table in %q", e.lines())
	}
	rows := 0
	for _, cells := range e.cells[title+1:] {
		text, more := strings.CutPrefix(string(cells), "… and ")
		if more {
			left, err := strconv.Atoi(strings.Fields(text)[0])
			want := fmt.Sprintf("%d more processes", left)
			assert.Check(t, err == nil && strings.TrimSpace(text) == want, "%q, want %q", text, want)
			rows += left
			break
		}
		if strings.TrimSpace(text) == "" {
			break
		}
		rows++
		for _, column := range []int{service, state} {
			assert.Check(t, column <= 0 || cells[column-1] == ' ' && cells[column] != ' ' && cells[column] != 0,
				"no cell begins in column %d of %q", column, string(cells))
		}
	}
	if rows != processes {
		t.Errorf("%d processes shown and counted, want %d, in %q", rows, processes, e.lines())
	}
}

// frames watches until the status was written three times, and returns what was written before the
// second time and from then on. At the end the cursor must be shown.
func frames(t *testing.T, master io.Reader, screen io.Writer, path string) (first, last string) {
	t.Helper()
	const home, end = "\x1b[H", "\r\n\x1b[?25h"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Watch(ctx, screen, NewClient(path), time.Millisecond) }()
	var seen strings.Builder
	for buf := make([]byte, 4096); !strings.HasSuffix(seen.String(), end); {
		n, err := master.Read(buf)
		assert.NilError(t, err)
		seen.Write(buf[:n])
		if strings.Count(seen.String(), home) > 2 {
			cancel()
		}
	}
	err := <-ended
	assert.Check(t, err)
	assert.Check(t, !strings.Contains(seen.String(), "trying again"),
		"its own end is reported as an error of the agent")
	text := strings.TrimSuffix(seen.String(), end)
	second := strings.Index(text[strings.Index(text, home)+1:], home) + strings.Index(text, home) + 1
	return text[:second], text[second:]
}

// There are no rates in the first status, nor in the first one after an agent was away.
func TestFirstRates(t *testing.T) {
	var written strings.Builder
	view := tables{screen: terminal.OpenScreen(&written)}
	one, two, three := example(), example(), example()
	two.At, three.At = one.At.Add(time.Second), one.At.Add(2*time.Second)
	shown := func(last *Status, trouble error, want string) {
		t.Helper()
		written.Reset()
		if err := view.show(last, trouble); err != nil || !strings.Contains(written.String(), want) {
			t.Errorf("%v, no %q in %s", err, want, written.String())
		}
	}
	const unknown = "per second: - samples, - sent\n"
	shown(&one, nil, unknown)
	shown(&one, nil, unknown) // another size
	shown(&two, nil, "per second: 0.0 samples, 0.0 sent\n")
	shown(&two, nil, "per second: 0.0 samples, 0.0 sent\n")
	shown(&two, errNoAgent, unknown+"trying again: no agent answers\n")
	shown(&three, nil, "per second: 0.0 samples, 0.0 sent\n")
}

// JSON and tables continue after a restart of the agent.
func TestWatchAcrossRestart(t *testing.T) {
	for name, watch := range map[string]func(context.Context, io.Writer, *Client, func(error)) error{
		"json": func(ctx context.Context, w io.Writer, client *Client, trouble func(error)) error {
			return WatchJSON(ctx, w, client, time.Millisecond, trouble)
		},
		"table": func(ctx context.Context, w io.Writer, client *Client, _ func(error)) error {
			return Watch(ctx, w, client, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "admin.sock")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			said := make(chan string)
			say := func(text string) {
				select {
				case said <- text:
				case <-ctx.Done():
				}
			}
			heard := func(word string) {
				t.Helper()
				for deadline := time.After(time.Minute); ; {
					select {
					case text := <-said:
						if strings.Contains(text, word) {
							return
						}
					case <-deadline:
						t.Fatalf("never %q", word)
					}
				}
			}
			ended := make(chan error, 1)
			start := func(host string) (stop func()) {
				server, err := Open(path)
				assert.NilError(t, err)
				status := example()
				status.Processes[0].ServiceName = host
				served := make(chan error, 1)
				go func() { served <- server.Serve(&source{status: status}, nil, nil) }()
				return func() {
					assert.Check(t, errors.Join(server.Close(), <-served))
				}
			}
			stop := start("before")
			go func() {
				ended <- watch(ctx, sayer(say), NewClient(path), func(err error) { say("trouble: " + err.Error()) })
			}()
			heard("before")
			stop()
			if name == "json" {
				heard("trouble: ") // once: it may be that of a request that was under way
			} else {
				heard(errNoAgent.Error())
			}
			stop = start("after")
			heard("after")
			cancel()
			err := <-ended
			assert.Check(t, err)
			stop()
		})
	}
}

type sayer func(string)

func (s sayer) Write(text []byte) (int, error) {
	s(string(text))
	return len(text), nil
}

// While no agent answers there is no JSON, and one error.
func TestJSONWhileNoAgentAnswers(t *testing.T) {
	var written strings.Builder
	var troubles []error
	view := objects{encoder: json.NewEncoder(&written), trouble: func(err error) { troubles = append(troubles, err) }}
	status := example()
	for _, trouble := range []error{nil, errNoAgent, errNoAgent, nil, nil, errNoAgent} {
		assert.Check(t, view.show(&status, trouble))
	}
	if lines := strings.Count(written.String(), "\n"); lines != 3 || len(troubles) != 2 {
		t.Errorf("%d lines, errors %v", lines, troubles)
	}
}

func TestWatchWithoutAgent(t *testing.T) {
	err := Watch(t.Context(), &strings.Builder{}, NewClient(filepath.Join(t.TempDir(), "none")), time.Hour)
	assert.Check(t, errors.Is(err, errNoAgent), err)
}
