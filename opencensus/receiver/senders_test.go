package receiver

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/spans"
	"correlator/opencensus/wire"
)

// Gaps are what is missing between two numbers of the same process.
func TestGaps(t *testing.T) {
	const a, b = 10, 11
	type seen struct {
		kind     wire.Type
		pid      uint32
		sequence uint64
		gap      uint64
	}
	for name, headers := range map[string][]seen{
		"none":                     {{3, a, 1, 0}, {44, a, 2, 0}, {44, a, 3, 0}},
		"one":                      {{3, a, 1, 0}, {44, a, 3, 1}, {44, a, 4, 0}},
		"first seen":               {{44, a, 7, 6}, {44, a, 9, 1}},
		"a new request":            {{3, a, 1, 0}, {44, a, 2, 0}, {3, a, 1, 0}, {44, a, 2, 0}},
		"a request of one message": {{3, a, 1, 0}, {3, a, 1, 0}, {3, a, 1, 0}},
		"a request whose init was lost": {
			{3, a, 1, 0}, {44, a, 2, 0}, {44, a, 3, 0}, {44, a, 2, 1}, {44, a, 4, 1}},
		"losses on both sides of a new request": {{3, a, 1, 0}, {4, a, 5, 3}, {4, a, 3, 2}},
		"the same number again":                 {{3, a, 1, 0}, {4, a, 5, 3}, {4, a, 5, 4}},
		"below 1":                               {{3, a, 1, 0}, {4, a, 0, 0}, {4, a, 1, 0}},
		"forked": {
			{3, a, 1, 0}, {44, a, 2, 0}, {44, b, 3, 0}, {44, a, 3, 0}, {44, b, 5, 1}, {44, a, 5, 1}},
		"the extension": {{1, a, 1, 0}, {3, a, 2, 0}, {3, a, 10, 7}, {3, a, 11, 0}},
		"after the last int": {
			{44, a, math.MaxInt32, 0}, {44, a, 1<<64 - 1<<31, 0}, {44, a, 1<<64 - 1<<31 + 2, 1}},
		"the largest gap": {{44, a, 1, 0}, {44, a, 2 + maxGap, maxGap}, {44, a, 4 + maxGap, 1}},
		"no gap but a start": {
			{44, a, 1, 0}, {44, a, 3 + maxGap, 0}, {44, a, 5 + maxGap, 1}, {44, a, 1 << 31, 0}},
		"the last number": {{44, a, math.MaxUint64, 0}, {44, a, 1, 0}, {44, a, 3, 1}},
	} {
		var s senders
		for i, h := range headers {
			p, gap := s.see(&wire.Header{Type: h.kind, PID: h.pid, Sequence: h.sequence})
			if gap != h.gap || p.pid != h.pid {
				t.Errorf("%s: message %d of %d: gap %d, want %d of %d", name, i, p.pid, gap, h.gap, h.pid)
			}
		}
	}
}

// No more than a number of processes is kept: those that sent last.
func TestManyProcesses(t *testing.T) {
	var s senders
	for pid := range uint32(1000) {
		s.see(&wire.Header{PID: 1, Sequence: uint64(pid) + 1})
		_, gap := s.see(&wire.Header{PID: pid + 2, Sequence: 5})
		assert.Assert(t, gap == 0, "gap %d of a new process", gap)
	}
	assert.Check(t, len(s.processes) == maxProcesses, "%d processes are kept", len(s.processes))
	for _, c := range []struct {
		pid uint32
		gap uint64
	}{{1, 999}, {1001, 1994}, {1000 - maxProcesses, 0}} {
		_, gap := s.see(&wire.Header{PID: c.pid, Sequence: 2000})
		assert.Check(t, gap == c.gap, "process %d: gap %d, want %d", c.pid, gap, c.gap)
	}
}

// Processes without a version of their own take the last one of the connection.
func TestVersions(t *testing.T) {
	s := senders{}
	see := func(pid uint32) *process {
		p, _ := s.see(&wire.Header{PID: pid})
		return p
	}
	want := func(pid uint32, version string) {
		t.Helper()
		got := see(pid).from.php
		assert.Check(t, got == version, "process %d has %q, want %q", pid, got, version)
	}
	want(1, "")
	before := see(1).from
	s.setPHP(see(1), "8.2.35")
	assert.Check(t, before.php == "", "what has been received has changed")
	want(1, "8.2.35")
	want(2, "8.2.35")
	s.setPHP(see(3), "8.3.1")
	want(1, "8.2.35")
	want(3, "8.3.1")
	want(4, "8.3.1")
	s.setPHP(see(1), strings.Repeat("8", maxVersionBytes+1))
	want(1, "")
	assert.Check(t, see(3).from == func() *sender { s.setPHP(see(3), "8.3.1"); return see(3).from }(),
		"the same version takes memory")
}

// A number that a client has of itself is one of its own pid namespace.
func TestProcess(t *testing.T) {
	outside := peer{pid: 4242, own: 4242, containerID: "c", executableName: "php"}
	inside := peer{pid: 4242, own: 17, containerID: "c", executableName: "php"}
	for name, c := range map[string]struct {
		peer peer
		pid  uint32
		want int
	}{
		"the peer":                    {outside, 4242, 4242},
		"a child":                     {outside, 4243, 0},
		"the peer in a container":     {inside, 17, 4242},
		"a child in a container":      {inside, 18, 0},
		"another's number":            {inside, 4242, 0},
		"a peer of which is known":    {peer{pid: 1, own: 1}, math.MaxUint32, 0},
		"a peer that has gone before": {peer{uid: 33, connected: 4242}, 4242, 4242},
		"a child of that":             {peer{uid: 33, connected: 4242}, 4243, 0},
		"a peer outside":              {peer{uid: 33}, 4242, 0},
	} {
		want := spans.Process{PID: c.want, ContainerID: c.peer.containerID, ExecutableName: c.peer.executableName}
		got := c.peer.process(c.pid)
		assert.Check(t, got == want, "%s: %+v, want %+v", name, got, want)
	}
}

func TestExecutableName(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/sbin/php-fpm8.2": "php-fpm8.2", "/memfd:php": "memfd:php", "": "", "/": "", "php": "php",
		"/opt/\xff": "\uFFFD", "/" + strings.Repeat("x", 4096): "",
	} {
		got := executableName(path)
		assert.Check(t, got == want, "%q: %q, want %q", path, got, want)
	}
}

func TestNames(t *testing.T) {
	all := make(map[string]bool)
	for d := range NumDrops {
		all[d.String()] = true
	}
	for r := range NumRefusals {
		all["refused "+r.String()] = true
	}
	if len(all) != int(NumDrops)+int(NumRefusals) || all[""] || all["unknown"] || fmt.Sprint(NumDrops) != "unknown" {
		t.Errorf("names: %v", all)
	}
}
