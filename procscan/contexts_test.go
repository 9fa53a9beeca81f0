package procscan

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

const readWrite = unix.PROT_READ | unix.PROT_WRITE

// published is a mapping as an SDK makes it: private, and written.
func published() child.MapSpec {
	return child.MapSpec{Path: "memfd:OTEL_CTX", Prot: readWrite, Write: "OTEL_CTX", Name: "OTEL_CTX"}
}

// kernelNames reports whether this kernel can name memory.
func kernelNames(t *testing.T) bool {
	t.Helper()
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), readWrite, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	assert.NilError(t, err)
	defer unix.Munmap(page)
	err = child.NameMemory(page, "test")
	assert.Assert(t, err == nil || errors.Is(err, unix.EINVAL), err)
	return err == nil
}

func TestMatchContext(t *testing.T) {
	for name, want := range map[string]bool{
		"/memfd:OTEL_CTX (deleted)":         true,
		"/memfd:OTEL_CTX":                   true,
		"/memfd:OTEL_CTX_2 (deleted)":       true,
		"[anon_shmem:OTEL_CTX]":             true,
		"[anon:OTEL_CTX]":                   true,
		"":                                  false,
		"[anon:OTEL_CTX_2]":                 false,
		"[anon:OTEL_CT]":                    false,
		"[anon_shmem:otel_ctx]":             false,
		"[anon: OTEL_CTX]":                  false,
		"OTEL_CTX":                          false,
		"/memfd:OTEL_CT":                    false,
		"/tmp/memfd:OTEL_CTX":               false,
		"//memfd:OTEL_CTX":                  false,
		"/dev/shm/OTEL_CTX":                 false,
		"[stack]":                           false,
		"/memfd:otel_ctx (deleted)":         false,
		"/memfd:x/memfd:OTEL_CTX (deleted)": false,
		"/memfd:x[anon:OTEL_CTX] (deleted)": false,
		"[anon:x[anon:OTEL_CTX]":            false,
		"/memfd:\\012[anon_shmem:OTEL_CTX] (deleted)": false,
	} {
		got := matchContext([]byte(name))
		assert.Check(t, got == want, "%q: %v", name, got)
		const line = "7f1903980000-7f1903981000 rw-p 00000000 00:01 2051                       "
		got = processContexts.wants([]byte(line + name))
		assert.Check(t, got == want, "line with %q: %v", name, got)
	}
}

// All three names, as kernels show them that can name memory.
func TestContextLines(t *testing.T) {
	const text = "" +
		"10000000-10001000 rw-p 00000000 00:00 0                          [anon:OTEL_CTX]\n" +
		"10001000-10002000 r--p 00000000 00:00 0                          [anon:OTEL_CTX]\n" +
		"10002000-10003000 rw-p 00000000 00:00 0                          [anon:glibc: malloc]\n" +
		"20000000-20002000 rw-p 00000000 00:01 2051                       [anon_shmem:OTEL_CTX]\n" +
		"20002000-20003000 rwxp 00000000 00:01 2052                       [anon_shmem:OTEL_CTX]\n" +
		"30000000-30001000 rw-p 00001000 00:01 2053                       /memfd:OTEL_CTX (deleted)\n" +
		"30001000-30002000 -w-p 00000000 00:01 2054                       /memfd:OTEL_CTX2 (deleted)\n" +
		"40000000-40001000 r-xp 00000000 fe:00 7                          /a/" + realName + "\n" +
		"50000000-50001000 rw-p 00000000 fe:00 7                          /a/" + realName + "\n"
	r := newMapsReader(mapsBufferBytes)
	r.reset(strings.NewReader(text))
	lists := []mappingList{{what: agentLibrary, limit: maxLibraries}, {what: processContexts, limit: maxContexts}}
	assert.NilError(t, r.collect(lists))
	want := []Mapping{
		{0x10000000, 0x10001000, 0, 0, 0, "[anon:OTEL_CTX]", false},
		{0x20000000, 0x20002000, 0, unix.Mkdev(0, 1), 2051, "[anon_shmem:OTEL_CTX]", false},
		{0x30000000, 0x30001000, 0x1000, unix.Mkdev(0, 1), 2053, "/memfd:OTEL_CTX", true},
		{0x30001000, 0x30002000, 0, unix.Mkdev(0, 1), 2054, "/memfd:OTEL_CTX2", true},
	}
	got := lists[1].found
	assert.Check(t, slices.Equal(got, want) && !lists[1].full, "contexts %+v", got)
	got = lists[0].found
	assert.Check(t, len(got) == 1 && got[0].Start == 0x40000000, "libraries %+v", got)
}

// A list that is full does not keep the other from being filled, one that only asks ends it all.
func TestCollectLists(t *testing.T) {
	library := "1000-2000 r-xp 0 00:2a 7 /a/" + realName + "\n"
	context := "3000-4000 rw-p 0 00:01 8 /memfd:OTEL_CTX (deleted)\n"
	for _, c := range []struct {
		text                string
		limits              [2]int
		libraries, contexts int
		full                [2]bool
	}{
		{strings.Repeat(library, 3) + strings.Repeat(context, 3), [2]int{1, 2}, 1, 2, [2]bool{true, true}},
		{strings.Repeat(library, 3) + context, [2]int{1, 2}, 1, 1, [2]bool{true, false}},
		{strings.Repeat(context, 3) + library, [2]int{1, 2}, 1, 2, [2]bool{false, true}},
		{context + library, [2]int{0, 0}, 0, 0, [2]bool{false, true}},
		{library + context, [2]int{0, 0}, 0, 0, [2]bool{true, false}},
		{"", [2]int{0, 0}, 0, 0, [2]bool{}},
	} {
		r := newMapsReader(mapsBufferBytes)
		r.reset(strings.NewReader(c.text))
		lists := []mappingList{
			{what: agentLibrary, limit: c.limits[0]}, {what: processContexts, limit: c.limits[1]},
		}
		err := r.collect(lists)
		assert.Check(t, err == nil && len(lists[0].found) == c.libraries && len(lists[1].found) == c.contexts &&
			lists[0].full == c.full[0] && lists[1].full == c.full[1],
			"limits %v of %q: %+v, %v", c.limits, c.text, lists, err)
	}
}

func TestContexts(t *testing.T) { forEachSource(t, testContexts) }

func testContexts(t *testing.T, source Source) {
	names := kernelNames(t)
	path, deleted := "/memfd:OTEL_CTX", true
	if names {
		path, deleted = "[anon_shmem:OTEL_CTX]", false
	}
	anonymous := child.MapSpec{Prot: readWrite, Write: "OTEL_CTX", Name: "OTEL_CTX"}
	library := child.MapSpec{Path: filepath.Join(t.TempDir(), realName)}
	executable, readOnly := published(), published()
	executable.Prot |= unix.PROT_EXEC
	readOnly.Prot, readOnly.Write = unix.PROT_READ, ""
	many := published()
	many.Times = maxContexts + 1
	for _, c := range []struct {
		name                string
		maps                []child.MapSpec
		contexts, libraries int
	}{
		{"one", []child.MapSpec{published()}, 1, 0},
		{"with the library", []child.MapSpec{published(), library}, 1, 1},
		{"the library alone", []child.MapSpec{library}, 0, 1},
		{"more than are kept", []child.MapSpec{many, library}, maxContexts, 1},
		{"executable", []child.MapSpec{executable}, 0, 0},
		{"read-only", []child.MapSpec{readOnly}, 0, 0},
		{"executable, and one that is not", []child.MapSpec{executable, published()}, 1, 0},
		{"of another name", []child.MapSpec{{Path: "memfd:OTEL", Prot: readWrite, Name: "OTEL"}}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startHost(t, c.maps...)
			found, err := scannerOf(t, source).Process(p.PID)
			missing := errors.Is(err, ErrNotFound)
			assert.Assert(t, missing == (c.contexts+c.libraries == 0) && (err == nil || missing), err)
			if len(found.Contexts) != c.contexts || len(found.Libraries) != c.libraries ||
				found.Truncated != (c.name == "more than are kept") {
				t.Errorf("found %+v", found)
			}
			for i, m := range found.Contexts {
				assert.Check(t, m.Path == path && m.Deleted == deleted && m.Offset == 0 && m.Ino != 0 &&
					(i <= 0 || m.Start >= found.Contexts[i-1].End),
					"context %d: %+v", i, m)
			}
			h := openPID(t, p.PID)
			h.source = source
			got, err := h.ProcessContexts()
			assert.Check(t, slices.Equal(got, found.Contexts) && errors.Is(err, ErrNotFound) == (c.contexts == 0),
				"the handle has %+v, %v, the scanner %+v", got, err, found.Contexts)
		})
	}
	p := startHost(t, anonymous)
	found, err := scannerOf(t, source).Process(p.PID)
	if !names {
		assert.Check(t, errors.Is(err, ErrNotFound), "memory that cannot have a name: %+v, %v", found, err)
	} else if err != nil || len(found.Contexts) != 1 || found.Contexts[0].Path != "[anon:OTEL_CTX]" {
		t.Errorf("named memory: %+v, %v", found, err)
	}
}

// The context is gone after an exec and after it was unmapped.
func TestContextEnds(t *testing.T) {
	forEachSource(t, func(t *testing.T, source Source) {
		for _, command := range []string{"unmap", "exec"} {
			p := startHost(t, published())
			h := openPID(t, p.PID)
			h.source = source
			_, err := h.ProcessContexts()
			assert.NilError(t, err)
			p.Tell(t, command)
			testenv.Poll(t, child.Timeout, "no context after "+command, func() bool {
				_, err := h.ProcessContexts()
				return errors.Is(err, ErrNotFound)
			})
			p.Kill()
			_, err = h.ProcessContexts()
			assert.Check(t, errors.Is(err, ErrGone), "after its end: %v", err)
		}
	})
}

// The first sweep finds all contexts; later ones find again what was found, those of new processes
// at once, but for what is left to the next one because others started many too, and the others in turn.
func TestSweepContexts(t *testing.T) { forEachSource(t, testSweepContexts) }

func testSweepContexts(t *testing.T, source Source) {
	start := func() (pids []int) {
		for range 2 * contextSweeps {
			pids = append(pids, startHost(t, published()).PID)
		}
		return pids
	}
	s := scannerOf(t, source)
	expect := func(what string, all map[int]Found, pids []int) {
		t.Helper()
		for _, pid := range pids {
			if found, ok := all[pid]; !ok || len(found.Contexts) != 1 || found.ProcessID != identityOf(t, pid) {
				t.Errorf("%s: process %d was not found", what, pid)
			}
		}
	}
	first := start()
	expect("first sweep", sweep(t, s), first)
	fresh := start()
	testenv.Poll(t, child.Timeout, "the contexts of new processes are found", func() bool {
		isLeft := func(pid int) bool { _, listed := s.contexts.listed[pid]; return !listed }
		all := sweep(t, s)
		expect("later sweep", all, slices.DeleteFunc(slices.Concat(first, fresh), isLeft))
		return !slices.ContainsFunc(fresh, isLeft)
	})
	expect("last sweep", sweep(t, s), slices.Concat(first, fresh))

	if source == SourceQuery {
		for pid := range s.matched {
			delete(s.matched, pid) // as if they had published theirs only now
		}
	}
	all := make(map[int]Found)
	for range contextSweeps {
		now := sweep(t, s)
		for pid := range all {
			_, ok := now[pid]
			assert.Check(t, ok || !slices.Contains(first, pid), "process %d was found, and not by the next sweep", pid)
		}
		for pid, found := range now {
			all[pid] = found
		}
	}
	expect("all sweeps", all, slices.Concat(first, fresh))
}

// A sweep looks at a part of the processes that were there before, each in one of eight; at those
// that are new, up to an eighth; the others are left to the next one.
func TestContextTurns(t *testing.T) {
	pids := make([]int, 4000)
	for i := range pids {
		pids[i] = 1000 + 3*i
	}
	var turns contextTurns
	looked := func(plan contextPlan, pids []int) (n int) {
		for _, pid := range pids {
			if plan.include(pid) {
				n++
			}
		}
		return n
	}
	for range 2 { // the first did not complete
		if plan := turns.plan(SourceQuery, pids); looked(plan, pids) != len(pids) {
			t.Fatalf("%d looks in the first sweep", looked(plan, pids))
		}
	}
	turns.end(turns.plan(SourceQuery, pids))
	times := make(map[int]int)
	for range contextSweeps {
		plan := turns.plan(SourceQuery, pids)
		n := looked(plan, pids)
		assert.Check(t, n == len(pids)/contextSweeps, "%d looks in a sweep", n)
		for _, pid := range pids {
			if plan.include(pid) {
				times[pid]++
			}
		}
		turns.end(plan)
	}
	for _, pid := range pids {
		assert.Check(t, times[pid] == 1, "%d looks at process %d", times[pid], pid)
	}
	if plan := turns.plan(SourceText, pids); looked(plan, pids) != len(pids) {
		t.Errorf("%d looks in the text", looked(plan, pids))
	}

	many := slices.Clone(pids) // twice as many, all new
	for i := range pids {
		many = append(many, 100001+3*i)
	}
	fresh, seen := many[len(pids):], make(map[int]bool)
	for range 4 {
		plan := turns.plan(SourceQuery, many)
		n := looked(plan, many)
		assert.Check(t, n <= len(many)/contextSweeps*2, "%d looks with many new processes", n)
		for _, pid := range fresh {
			seen[pid] = seen[pid] || plan.include(pid)
		}
		turns.end(plan)
	}
	for _, pid := range fresh {
		assert.Check(t, seen[pid], "process %d, which is new, was not looked at by four sweeps", pid)
	}
	few := []int{1, 2, 4, 5, 6, 7, 9}
	if plan := turns.plan(SourceQuery, few); looked(plan, few) != len(few) {
		t.Errorf("%d looks at a few new processes", looked(plan, few))
	}
}

func TestLookForContexts(t *testing.T) { forEachSource(t, testLookForContexts) }

func testLookForContexts(t *testing.T, source Source) {
	one, library, gone := startHost(t, published()), startLibrary(t), child.StartSleep(t)
	gone.Kill()
	s := scannerOf(t, source)
	for pid, want := range map[int]bool{one.PID: true, library.PID: false, child.StartZombie(t): false} {
		found, err := s.LookForContext(pid)
		assert.Check(t, found == want && err == nil, "%v, %v, want %v", found, err, want)
	}
	found, err := s.LookForContext(gone.PID)
	assert.Check(t, !found && errors.Is(err, ErrGone), "gone: %v, %v", found, err)
	one.Tell(t, "unmap")
	found, err = s.LookForContext(one.PID)
	assert.Check(t, !found && err == nil, "unmapped: %v, %v", found, err)
}
