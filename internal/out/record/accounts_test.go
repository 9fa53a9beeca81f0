package record

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/profile"
)

// Of a process without contexts, each thread has one exact account, of all of the recording: its states add up to
// how long it was seen, also if it waits all the time, and it has its name. Waits have stacks and no ids.
func TestRecordingAccounts(t *testing.T) {
	script := filepath.Join(t.TempDir(), "looper")
	testenv.WriteProgram(t, script, []byte("#!/bin/sh\n[ $1 ] && read line\nwhile :; do sleep 0.02; done\n"), 0o700)
	looping, idle := exec.Command(script), exec.Command(script, "idle")
	_, err := idle.StdinPipe()
	assert.NilError(t, err)
	for _, p := range []*exec.Cmd{looping, idle} {
		assert.NilError(t, p.Start())
		defer func() { assert.Check(t, p.Process.Kill()); _ = p.Wait() }()
	}
	stat := fmt.Sprintf("/proc/%d/stat", idle.Process.Pid)
	testenv.Poll(t, deadline, "a shell that waits", func() bool {
		return bytes.Contains(testenv.ReadFile(t, stat), []byte(") S "))
	})
	before := time.Now()
	filter := commands(t, "looper")
	filter.All = true
	r := record(t, Options{Accounts: true, Filter: filter})
	r.poll("waits", func(p Progress) bool {
		r.aggregate.mu.Lock()
		defer r.aggregate.mu.Unlock()
		for key := range r.aggregate.waits {
			if key.Process.PID == looping.Process.Pid {
				return !p.Start.IsZero()
			}
		}
		return false
	})
	r.stop()
	<-r.ended
	if r.err != nil {
		testenv.Missing(t, r.err.Error())
	}
	accounts := make(map[int]ThreadAccount)
	for _, a := range r.recording.Accounts {
		sum := time.Duration(0)
		for _, of := range a.Times {
			sum += of.Sum
		}
		assert.Check(t, sum == a.Observed && a.Times[profile.Unknown].Count == 0 && a.First.After(before) &&
			!a.Last.Before(a.First), "%+v", a)
		accounts[a.TID] = a
	}
	of, waited := accounts[looping.Process.Pid], accounts[idle.Process.Pid]
	assert.Check(t, of.Thread == "looper" && of.Times[profile.Other].Sum > 0 && of.Times[profile.OnCPU].Sum > 0, "%+v", of)
	assert.Check(t, waited.Thread == "looper" && waited.Times[profile.Pipe].Sum == waited.Observed &&
		waited.Observed > 0 && waited.Process.PID == idle.Process.Pid, "%+v", waited)
	for key := range r.recording.Waits {
		assert.Check(t, !key.HasTrace() && len(r.recording.Stacks[key.Stack]) > 0, "%+v", key)
	}
	assert.Check(t, r.recording.LostAccounts == 0, "%d", r.recording.LostAccounts)
}

// The account of a thread has its last name, which samples and accounts have in any order.
func TestAccountsNamed(t *testing.T) {
	a := newAggregate()
	a.accounts = make(map[thread]*ThreadAccount)
	p := &Process{PID: 1}
	at := time.Now()
	a.begin(at)
	account := func(tid int, name string, last time.Duration) {
		a.account(p, &profile.Account{TID: tid, Thread: name, First: at, Last: at.Add(last)})
	}
	sample := func(tid int, name string, after time.Duration) {
		a.add(p, &profile.Sample{TID: tid, Thread: name, Stack: stackOf(profile.StackTraceID{4}, 4), Count: 1,
			At: at.Add(after)})
	}
	account(1, "creator", time.Second)
	account(1, "first", 2*time.Second)
	account(1, "", 3*time.Second)
	sample(2, "second", 2*time.Second)
	account(2, "creator", time.Second)
	sample(3, "creator", time.Second)
	account(3, "third", 2*time.Second)
	var r Recording
	a.close(&r)
	assert.Assert(t, len(r.Accounts) == 3, "%+v", r.Accounts)
	for i, name := range []string{"first", "second", "third"} {
		assert.Check(t, r.Accounts[i].Thread == name, "%+v", r.Accounts[i])
	}
}

// The account of a thread that finds no room is counted.
func TestAccountsBounded(t *testing.T) {
	a := newAggregate()
	a.accounts = make(map[thread]*ThreadAccount)
	p := &Process{PID: 1}
	at := time.Now()
	const threads = maxKeys/partOfWaits + 1
	for tid := range threads {
		a.account(p, &profile.Account{TID: tid, First: at, Last: at.Add(time.Second)})
	}
	var r Recording
	a.close(&r)
	assert.Check(t, len(r.Accounts) > 0 && len(r.Accounts) < threads &&
		uint64(len(r.Accounts))+r.LostAccounts == threads, "%d, %d", len(r.Accounts), r.LostAccounts)
	assert.Check(t, r.Accounts[0].Observed == time.Second, "%+v", r.Accounts[0])
}
