package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
)

// Many processes of a user hang workers. How many is bounded, shown by status and a metric, and no
// other user's process waits for one; those of the same user that do not hang are served, too, in
// the end.
func TestManyHungProcesses(t *testing.T) {
	needSampler(t)
	const many = 16 // twice what one user may have hang
	fs := fusefs.Mount(t, fusefs.UserNamespace)
	fs.Overlay("/mnt", "")
	placement := demo.Placement{UID: fusefs.UID, GID: fusefs.GID, By: fs.By}
	files := demo.NewFilesAt(t, demo.Glibc, placement)
	hung := make(map[int]bool)
	fs.Hang(fusefs.Lookup, "/hung-*")
	for n := range many {
		p := demo.Start(t, demo.Options{Idle: 1, Files: files})
		p.Hostile("socket-path", fmt.Sprintf("/mnt/hung-%d/agent.socket", n))
		hung[p.PID] = true
	}
	at := newAddresses(t)
	a := startAgent(t, nil, at.flags()...)
	fs.AnswerFirst()
	fs.Taken("of the agent", func(fusefs.Request) bool { return true })

	other := demo.Start(t, demo.Options{Placement: demo.Placement{UID: 2000, GID: 2000}})
	at.works(t, a, other)
	socket := filepath.Join(at.dir, "admin")
	testenv.Poll(t, deadline, "a reason for each process that hangs", func() bool {
		n := 0
		for _, p := range statusAt(t, socket).Processes {
			if hung[p.PID] && p.State == process.StateError && p.Reason != "" {
				n++
			}
		}
		return n == many
	})
	var workers int
	testenv.Poll(t, deadline, "workers that hang", func() bool {
		workers = statusAt(t, socket).Workers.Hung
		return workers > 0
	})
	assert.Check(t, workers < many, "%d processes hang %d workers, %d requests wait", many, workers, len(fs.Requests()))
	later := demo.Start(t, demo.Options{Placement: demo.Placement{UID: 2001, GID: 2001}})
	at.works(t, a, other, later)
	var counted string
	var waiting []fusefs.Request
	defer func() { t.Logf("the metric is %s, %d requests wait: %v", counted, len(waiting), waiting) }()
	testenv.Poll(t, deadline, "as many hung workers in the metric as requests that wait", func() bool {
		counted, waiting = at.metric(t, "correlator_workers_hung"), fs.Requests()
		return counted == strconv.Itoa(len(waiting))
	})
	assert.Check(t, len(waiting) < many, "%d processes hang %d workers", many, len(waiting))
	a.kill(syscall.SIGTERM)
}

// metric returns the value of a metric without labels, in text, empty if there is none.
func (l addresses) metric(t *testing.T, name string) string {
	t.Helper()
	answer, err := http.Get("http://" + l.metrics + "/metrics")
	assert.NilError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	assert.NilError(t, err)
	found := regexp.MustCompile("(?m)^" + name + " (.*)$").FindSubmatch(text)
	if found == nil {
		return ""
	}
	return string(found[1])
}
