package symbolizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbols"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

func TestMain(m *testing.M) {
	worker.Main(Kind, LiveKind)
	os.Exit(m.Run())
}

// start starts a program, and returns it and a large function of it, which is called checkout.
func start(t *testing.T) (id procscan.ProcessID, program File, addr uint64) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "program.c")
	testenv.WriteFile(t, source, `#include <unistd.h>
		static __attribute__((noinline, used)) void checkout(void) { __asm__ volatile(".skip 8192, 0x90"); }
		int main(void) { char c; return write(1, "x", 1) != 1 || read(0, &c, 1) != 0; }`)
	path := testenv.Compile(t, "cc", source)
	id, program = startFile(t, path)
	return id, program, testenv.Symbols(t, path)["checkout"]
}

// startFile starts a program that writes a byte when it is in place.
func startFile(t *testing.T, path string) (id procscan.ProcessID, program File) {
	t.Helper()
	return startCommand(t, exec.Command(path), path)
}

// startCommand starts a program in a way of its own, which has the file at a path.
func startCommand(t *testing.T, cmd *exec.Cmd, path string) (id procscan.ProcessID, program File) {
	t.Helper()
	_, stdout := testenv.Start(t, cmd)
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // it is in place
		t.Fatal(err)
	}
	stat := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	id.PID = cmd.Process.Pid
	_, err := fmt.Sscan(fields[22-3], &id.StartTime)
	assert.NilError(t, err)
	content := testenv.ReadFile(t, path)
	parsed, err := elfsym.ParseFile(bytes.NewReader(content), int64(len(content)))
	assert.NilError(t, err)
	return id, File{ID: parsed.HTLHash, Path: path}
}

func openClient(t *testing.T) *Client {
	t.Helper()
	c, err := Open("/proc")
	assert.NilError(t, err)
	t.Cleanup(c.Close)
	return c
}

func openProcess(t *testing.T, c *Client, id procscan.ProcessID, uid uint32) *Process {
	t.Helper()
	p, err := c.Process(id, time.Time{}, uid)
	assert.NilError(t, err)
	return p
}

// Addresses and names that take many messages in either direction are all named.
func TestManyNames(t *testing.T) {
	id, program, addr := start(t)
	p := openProcess(t, openClient(t), id, 0)
	wanted := Wanted{Files: map[File][]uint64{program: nil}, Code: []uint64{1, 2}}
	for i := range uint64(3 * maxRequestAddrs) {
		wanted.Files[program] = append(wanted.Files[program], addr+i)
	}
	for i := range byte(3 * maxRequestFiles) { // that are not there
		wanted.Files[File{ID: profile.FileID{i}, Path: strings.Repeat("\xff", 2*maxPathBytes)}] = []uint64{1}
	}
	p.Learn([]File{program}, wanted.Code)
	result := p.user.client.Read(t.Context(), map[*Process]Wanted{p: wanted})[p]
	assert.NilError(t, result.Err)
	names := result.Names
	assert.Check(t, names.Native[program.ID][addr] == "checkout" && names.Paths[program.ID] == program.Path &&
		len(names.Paths) == 1,
		"%q, paths %v", names.Native[program.ID][addr], names.Paths)
	for _, addr := range wanted.Files[program] {
		assert.Assert(t, names.Native[program.ID][addr] == "checkout", "%#x has no name", addr)
	}
	assert.Check(t, len(names.Code) == 0 && errors.Is(names.PerfMap, fs.ErrNotExist) && names.Unread == nil,
		"%+v", names)
}

// Names that are as long as any, of more addresses than one answer has, all come.
func TestLongNames(t *testing.T) {
	id, _, _ := start(t)
	path := fmt.Sprintf("/tmp/perf-%d.map", id.PID)
	t.Cleanup(func() { os.Remove(path) })
	want := make(map[uint64]string)
	var text strings.Builder
	for i := range uint64(maxAnswerAddrs) {
		addr := 0x10000 + 16*i
		want[addr] = fmt.Sprint(i, strings.Repeat("x", 4000))
		fmt.Fprintf(&text, "%x 10 %s\n", addr, want[addr])
	}
	testenv.WriteFile(t, path, text.String())
	p := openProcess(t, openClient(t), id, 0)
	wanted := Wanted{Code: slices.Sorted(maps.Keys(want))}
	p.Learn(nil, wanted.Code)
	result := p.user.client.Read(t.Context(), map[*Process]Wanted{p: wanted})[p]
	assert.Check(t, result.Err == nil && result.Names.PerfMap == nil, "%v, %v", result.Err, result.Names.PerfMap)
	for addr, name := range want {
		assert.Assert(t, result.Names.Code[addr] == name, "%#x is %q", addr, result.Names.Code[addr])
	}
}

// What a process sees that had ended before its files were opened has the names that another one has that sees the
// same, and no others.
func TestNamesOfTheEnded(t *testing.T) {
	id, program, addr := start(t)
	c := openClient(t)
	handle, err := procscan.OpenProcess("/proc", id)
	assert.NilError(t, err)
	defer handle.Close()
	rights, err := handle.Credentials()
	assert.NilError(t, err)
	place, err := handle.Place()
	assert.NilError(t, err)
	file, err := os.Open(program.Path)
	assert.NilError(t, err)
	defer file.Close()
	key, err := elfsym.Identify(file)
	assert.NilError(t, err)
	same := program
	same.View = profile.NewView(key, program.Path, place, rights)
	key.Ino++
	other := program
	other.View = profile.NewView(key, program.Path, place, rights)
	alive := openProcess(t, c, id, 0)
	alive.Learn([]File{program}, nil)
	wanted := map[*Process]Wanted{alive: {Files: map[File][]uint64{program: {addr}}}}
	names := make(map[*Process]string)
	for file, name := range map[File]string{same: "checkout", other: "", program: ""} {
		ended := openProcess(t, c, procscan.ProcessID{PID: id.PID, StartTime: id.StartTime + 1}, 0)
		ended.Learn([]File{file}, nil)
		wanted[ended], names[ended] = Wanted{Files: map[File][]uint64{program: {addr}}}, name
	}
	for p, result := range c.Read(t.Context(), wanted) {
		got := result.Names.Native[program.ID][addr]
		assert.Check(t, result.Err == nil && (p == alive || got == names[p]), "%q, %v", got, result.Err)
	}
}

// Each user has a worker of its own, up to a limit. When one ends, its processes get no names, and
// those of others do.
func TestUsers(t *testing.T) {
	id, program, addr := start(t)
	c := openClient(t)
	wanted := make(map[*Process]Wanted)
	for uid := range uint32(maxUsers) {
		wanted[openProcess(t, c, id, uid)] = Wanted{Files: map[File][]uint64{program: {addr}}}
	}
	_, err := c.Process(procscan.ProcessID{PID: 1}, time.Time{}, maxUsers)
	assert.Check(t, errors.Is(err, ErrUsers), "one user more: %v", err)
	one := openProcess(t, c, id, 1)
	wanted[one] = Wanted{Files: map[File][]uint64{program: {addr}}}
	assert.NilError(t, syscall.Kill(one.user.worker.PID(), syscall.SIGKILL))
	<-one.user.failed
	for p, result := range c.Read(t.Context(), wanted) {
		switch {
		case p.user != one.user && (result.Err != nil || result.Names.Native[program.ID][addr] != "checkout"):
			t.Errorf("%q, %v", result.Names.Native[program.ID][addr], result.Err)
		case p.user == one.user && !errors.Is(result.Err, worker.ErrEnded):
			t.Errorf("%v of a worker that has ended", result.Err)
		}
	}
	c.Close()
	one.Learn([]File{program}, nil) // does not wait
	_, err = c.Process(procscan.ProcessID{PID: 1}, time.Time{}, 0)
	assert.Check(t, errors.Is(err, errClosed), "after the end: %v", err)
}

// A process whose names take too much memory has none, with the reason, and takes none of another one's, also of
// files that both map; and so with more files than are opened.
func TestBudgetOfAnother(t *testing.T) {
	id, program, addr := start(t)
	s := newServer("/proc", nil)
	asked := []file{{ID: program.ID, Path: program.path(), Addrs: []uint64{addr}}}
	s.addrs[program.ID] = asked[0].Addrs
	var processes []*process
	for i := range 5 {
		processes = append(processes, s.process(&request{Process: i, ID: id}))
	}
	full, other, ofUser, ofMany, further := processes[0], processes[1], processes[2], processes[3], processes[4]
	full.budget = symbols.NewBudget(0)
	for _, test := range []struct {
		process *process
		want    string
		err     error
		before  func()
	}{
		{full, "", errFull, nil}, {other, "checkout", nil, nil}, {full, "", errFull, nil},
		{ofUser, "", errFull, func() { clear(s.files); s.budget = symbols.NewBudget(0) }},
		{ofMany, "", errOpens, func() { s.budget, s.opens = symbols.NewBudget(maxUserBytes), 0 }},
		{further, "", errSources, func() { clear(s.files); s.opens, s.sources = maxOpens, 0 }},
	} {
		if test.before != nil {
			test.before()
		}
		test.process.asked = asked
		n := s.readProcess(test.process)
		got, err := n.name(program.ID, addr), test.process.unnamed(n, program.ID)
		assert.Check(t, got == test.want && errors.Is(err, test.err), "%q, %v, want %+v", got, err, test)
	}
}

// newUser returns a user without a worker, with a process.
func newUser() *user {
	c := &Client{users: make(map[uint32]*user), room: maxNamesBytes}
	u := &user{client: c, failed: make(chan struct{})}
	u.start.Do(func() {})
	c.users[0] = u
	if _, err := c.Process(procscan.ProcessID{PID: 1}, time.Time{}, 0); err != nil {
		panic(err)
	}
	return u
}

func encode(t testing.TB, a answer) []byte {
	t.Helper()
	message, err := json.Marshal(a)
	assert.NilError(t, err)
	return message
}

// What a worker answers is not trusted.
func TestHostileAnswers(t *testing.T) {
	for what, a := range map[string]answer{
		"no such process":  {Process: 1},
		"negative process": {Process: -1},
		"learned twice":    {Learned: true},
	} {
		u := newUser()
		if what == "learned twice" {
			assert.Check(t, u.take(encode(t, a)))
		}
		err := u.take(encode(t, a))
		assert.Check(t, errors.Is(err, errAnswer), "%s: %v", what, err)
	}
	u := newUser()
	assert.Check(t, errors.Join(u.take(encode(t, answer{End: &end{}}))))
	err := u.take(encode(t, answer{End: &end{}}))
	assert.Check(t, errors.Is(err, errAnswer), "after the end: %v", err)
	err = u.take([]byte("["))
	assert.Check(t, errors.Is(err, errAnswer), err)
}

// Answers without end take no more memory than a process has, or all have.
func TestEndlessAnswers(t *testing.T) {
	testEndlessAnswers(t, func(u *user) *int { return &u.processes[0].room })
	testEndlessAnswers(t, func(u *user) *int { return &u.client.room })
}

func testEndlessAnswers(t *testing.T, roomOf func(*user) *int) {
	const room, nameBytes = 1 << 20, 64 << 10
	u := newUser()
	p := u.processes[0]
	*roomOf(u) = room
	for i := range uint64(2 * room / nameBytes) {
		name := symbolName{Name: bytes.Repeat([]byte{'a'}, nameBytes)}
		assert.NilError(t, u.take(encode(t, answer{Names: []nameOf{{name, []uint64{i}}}})))
	}
	if n := len(p.names.Code); n == 0 || n >= room/nameBytes || *roomOf(u) < 0 {
		t.Errorf("%d names, %d bytes are left", n, *roomOf(u))
	}
	assert.NilError(t, u.take(encode(t, answer{End: &end{}})))
	if result := p.result(testenv.Ended()); result.Err != nil || !errors.Is(result.Names.Unread, errFull) {
		t.Errorf("%v, %v", result.Err, result.Names.Unread)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(encode(f, answer{Learned: true}))
	f.Add(encode(f, answer{File: &file{ID: profile.FileID{1}, Path: []byte("/a")},
		Names: []nameOf{{symbolName{[]byte("b"), []byte("c")}, []uint64{1, 2}}}}))
	f.Add(encode(f, answer{End: &end{PerfMap: failures.Encode(fs.ErrNotExist)}}))
	f.Fuzz(func(_ *testing.T, message []byte) {
		u := newUser()
		for range 2 {
			_ = u.take(message)
		}
	})
}

// Errors arrive as what they were.
func TestFailure(t *testing.T) {
	want := fmt.Errorf("%s: %w", strings.Repeat("long", maxErrorBytes), symbols.ErrOld)
	got := failures.Decode(failures.Encode(want))
	if !errors.Is(got, symbols.ErrOld) || errors.Is(got, fs.ErrNotExist) || len(got.Error()) != maxErrorBytes {
		t.Error(got)
	}
	assert.Check(t, errors.Is(failures.Decode(failures.Encode(&fs.PathError{Err: unix.EIO})), unix.EIO))
	assert.Check(t, failures.Decode(failures.Encode(nil)), "no error is one")
	assert.Check(t, failures.Decode(&worker.Failure{Is: []int{-1, 1 << 30}}) != nil, "an error is none")
	none, failed, unread := &process{}, &process{failed: unix.EIO}, &process{failed: unix.EIO, unread: unix.EIO}
	assert.Check(t, none.missing() == NotMapped && failed.missing() == Unreadable && unread.missing() == FileSystem)
}
