package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/procscan"
)

// fakeSilent is a search among JVMs that do not exist.
type fakeSilent struct {
	*SilentSearch

	jvms, unseen []procscan.ProcessID
	err          error          // of listing them
	failing      map[int]bool   // a look at them fails
	looks        map[int]int    // by pid
	turns        []int          // in which they were listed
	owners       map[int]string // by pid
}

func newFakeSilent(owners map[int]string) *fakeSilent {
	f := &fakeSilent{failing: make(map[int]bool), looks: make(map[int]int), owners: owners}
	for pid := range owners {
		f.jvms = append(f.jvms, procscan.ProcessID{PID: pid, StartTime: 1})
	}
	slices.SortFunc(f.jvms, func(a, b procscan.ProcessID) int { return a.PID - b.PID })
	f.SilentSearch = &SilentSearch{maxLooks: maxSilentLooks, max: maxSilent}
	f.list = func(turn int, _ []procscan.ProcessID) (jvms, unseen []procscan.ProcessID, err error) {
		f.turns = append(f.turns, turn)
		return f.jvms, f.unseen, f.err
	}
	f.look = func(id procscan.ProcessID) (View, bool, error) {
		f.looks[id.PID]++
		if f.failing[id.PID] {
			return View{}, false, errors.New("it failed")
		}
		return NewView(id), true, nil
	}
	f.owner = func(id procscan.ProcessID) worker.User { return worker.User(f.owners[id.PID]) }
	return f
}

// turn looks once, and returns the pids of those that are silent.
func (f *fakeSilent) turn(t *testing.T) (pids []int, missed int) {
	t.Helper()
	look, err := f.Look(t.Context())
	assert.Check(t, errors.Is(err, f.err), err)
	for _, view := range look.Views {
		pids = append(pids, view.PID)
	}
	return pids, look.Missed
}

// What could not be looked at in a turn stays as it was; what was, and is silent no more, goes.
func TestSilentSearchKeeps(t *testing.T) {
	f := newFakeSilent(map[int]string{1: "a", 2: "a", 3: "a", 4: "a"})
	ids := slices.Clone(f.jvms)
	pids, missed := f.turn(t)
	assert.Check(t, slices.Equal(pids, []int{1, 2, 3, 4}) && missed == 0, "%d, %d missed", pids, missed)
	f.jvms, f.unseen, f.err = ids[:2], ids[2:3], errors.New("it ended early")
	f.failing[2] = true
	pids, missed = f.turn(t)
	assert.Check(t, slices.Equal(pids, []int{1, 2, 3}) && missed == 1, "%d, %d missed", pids, missed)
	f.unseen = append(f.unseen, procscan.ProcessID{PID: 4, StartTime: 1}) // that was dropped
	pids, _ = f.turn(t)
	assert.Check(t, slices.Equal(pids, []int{1, 2, 3}), "%d", pids)
	assert.Check(t, slices.Equal(f.turns, []int{-1, 1, 2}), "turns %d", f.turns)
	f.err = nil
	look, err := f.Look(testenv.Ended())
	assert.Check(t, errors.Is(err, context.Canceled) && look.Views == nil, "%+v, %v", look, err)
}

// One user's JVMs take neither the looks nor the rows of others, and take turns themselves.
func TestSilentSearchOfManyUsers(t *testing.T) {
	owners := map[int]string{100: "b", 101: "b"}
	for pid := 1; pid <= 50; pid++ {
		owners[pid] = "a"
	}
	f := newFakeSilent(owners)
	f.maxLooks, f.max = 12, 8
	pids, missed := f.turn(t)
	assert.Check(t, slices.Equal(pids, []int{1, 2, 3, 4, 5, 6, 100, 101}) && missed == 44,
		"%d, %d missed", pids, missed)
	for range 4 { // ten of one user in each turn
		again, _ := f.turn(t)
		assert.Check(t, slices.Equal(again, pids), "%d", again)
	}
	for pid := range owners {
		want := 1
		if owners[pid] == "b" {
			want = 5
		}
		assert.Check(t, f.looks[pid] == want, "%d looks at %d", f.looks[pid], pid)
	}
	assert.Check(t, len(f.looked) == len(owners), "%d are remembered", len(f.looked))
}

// A JVM in a process not named java has a row after every look, and its owner is found.
func TestSilentSearchEmbedded(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	source, library := filepath.Join(dir, "library.c"), filepath.Join(dir, "libjvm.so")
	testenv.WriteFile(t, source, "int nothing;\n")
	build := exec.Command(testenv.NeedTool(t, "cc"), "-shared", "-o", library, source)
	output, err := build.CombinedOutput()
	assert.NilError(t, err, "\n%s", output)
	cmd := exec.Command(testenv.NeedTool(t, "cat"))
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "JAVA_TOOL_OPTIONS=-javaagent:/x/elastic-apm-agent-1.55.0.jar")
	stdin, stdout := testenv.Start(t, cmd)
	_, err = stdin.Write([]byte("x"))
	assert.NilError(t, err)
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // it is loaded
		t.Fatal(err)
	}
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(t, err)
	client, err := access.Open("/proc", new(worker.Counters))
	assert.NilError(t, err)
	defer client.Close()
	search := NewSilentSearch(scanner, client, "/proc", Filter{})
	for i := range 17 {
		look, err := search.Look(t.Context())
		assert.NilError(t, err)
		at := slices.IndexFunc(look.Views, func(v View) bool { return v.PID == cmd.Process.Pid })
		assert.Assert(t, at >= 0, "look %d: %+v", i, look)
		id := look.Views[at].ID
		owner := search.owner(id)
		assert.Check(t, owner == worker.User(strconv.Itoa(os.Getuid())) || len(owner) >= 12, "of %q", owner)
	}
}
