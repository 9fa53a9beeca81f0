package procscan

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

var selections = map[string]selection{
	"library": agentLibrary, "files": executableFiles, "memory": executableMemory, "contexts": processContexts,
	"jvm": javaMachine, "whole files": fileMemory,
}

// both reads the mappings of a process from both sources.
func both(t *testing.T, pid int, what selection, limit int) (query, text []Mapping, queryErr, textErr error) {
	t.Helper()
	fd, err := openFD(filepath.Join("/proc", strconv.Itoa(pid), "maps"), unix.O_RDONLY)
	assert.NilError(t, err)
	defer unix.Close(fd)
	query, queryErr = queryOnly(fd, what, limit)
	text, textErr = new(mappingReader).read(fd, SourceText, what, limit)
	return query, text, queryErr, textErr
}

// queryOnly reads mappings by PROCMAP_QUERY alone.
func queryOnly(fd int, what selection, limit int) ([]Mapping, error) {
	list := mappingList{what: what, limit: limit}
	if err := new(mapsQuery).collect(fd, &list); err != nil {
		return list.found, err
	}
	return list.result()
}

// agree fails the test unless both sources return the same, for every selection and for limits that
// are reached. It returns all executable memory.
func agree(t *testing.T, pid int) []Mapping {
	t.Helper()
	var all []Mapping
	for name, what := range selections {
		for _, limit := range []int{0, 1, 3, what.limit()} {
			query, text, queryErr, textErr := both(t, pid, what, limit)
			assert.Check(t, slices.Equal(query, text) && queryErr == textErr,
				"%s, limit %d:\nquery %+v, %v\n text %+v, %v", name, limit, query, queryErr, text, textErr)
			if what == executableMemory {
				all = text
			}
		}
	}
	return all
}

// Mappings of every kind that has a name of its own are the same from both sources.
func TestSourcesAgree(t *testing.T) {
	needQuery(t)
	dir := t.TempDir()
	odd := filepath.Join(dir, "a b\n\n c\td (deleted)\\012ü[x]")
	assert.NilError(t, os.Mkdir(odd, 0o755))
	const rwx = unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC
	escaped := strings.ReplaceAll(odd, "\n", `\012`)
	p := child.StartHost(t, child.HostSpec{Maps: []child.MapSpec{
		{Path: filepath.Join(dir, realName)},
		{Path: filepath.Join(dir, "elastic-jvmti-linux-gone.so"), Unlink: true},
		{Path: filepath.Join(odd, realName), Unlink: true},
		{Path: filepath.Join(dir, "shared"), Flags: unix.MAP_SHARED, Prot: rwx, Times: 3},
		{Path: filepath.Join(dir, "data"), Prot: unix.PROT_READ},
		{Prot: rwx},
		{Prot: unix.PROT_EXEC, Flags: unix.MAP_SHARED},
		{Path: "memfd:jit"},
		{Path: "memfd:OTEL_CTX", Prot: unix.PROT_READ | unix.PROT_WRITE, Name: "OTEL_CTX"},
		{Path: "memfd:OTEL_CTX", Prot: unix.PROT_READ | unix.PROT_WRITE, Flags: unix.MAP_SHARED},
		{Path: "memfd:OTEL_CTX", Prot: unix.PROT_READ},
		{Path: "memfd:OTEL_CTX", Prot: rwx},
		{Prot: unix.PROT_READ | unix.PROT_WRITE, Name: "OTEL_CTX"},
		{Path: "memfd:two\nlines/elastic-jvmti-linux-x64.so"},
		{Path: "sysv:"},
		{Path: "heap:"},
	}})
	all := agree(t, p.PID)
	var names []string
	for _, m := range all {
		name := m.Path
		if m.Deleted {
			name += deletedSuffix
		}
		names = append(names, name)
	}
	for _, want := range []string{
		"", "[vdso]", "[heap]", "/dev/zero (deleted)", "/memfd:jit (deleted)", "/SYSV00000000 (deleted)",
		`/memfd:two\012lines/elastic-jvmti-linux-x64.so (deleted)`,
		filepath.Join(dir, realName), filepath.Join(dir, "elastic-jvmti-linux-gone.so (deleted)"),
		filepath.Join(escaped, realName) + " (deleted)", filepath.Join(dir, "shared"),
	} {
		assert.Check(t, slices.Contains(names, want), "no %q among %q", want, names)
	}
	assert.Check(t, !slices.Contains(names, filepath.Join(dir, "data")), "data among %q", names)
	libraries, _, _, _ := both(t, p.PID, agentLibrary, maxLibraries)
	assert.Check(t, len(libraries) == 4, "libraries %+v", libraries)
	agree(t, os.Getpid())
	agree(t, child.KernelThread(t))
}

func TestSourcesAgreeOnMany(t *testing.T) {
	needQuery(t)
	dir := t.TempDir()
	p := child.StartHost(t, child.HostSpec{Maps: []child.MapSpec{
		{Path: filepath.Join(dir, realName), Times: maxLibraries + 1},
		{Path: filepath.Join(dir, "other"), Times: maxExecutable},
		{Path: "memfd:OTEL_CTX", Prot: unix.PROT_READ | unix.PROT_WRITE, Times: maxContexts + 1},
		{Prot: unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC},
	}})
	agree(t, p.PID)
	fd, err := openFD(filepath.Join("/proc", strconv.Itoa(p.PID), "maps"), unix.O_RDONLY)
	assert.NilError(t, err)
	defer unix.Close(fd)
	list := mappingList{what: executableMemory, limit: maxExecutable}
	assert.NilError(t, new(mapsQuery).collectFirst(fd, &list, 3))
	found, err := list.result()
	assert.Check(t, errors.Is(err, ErrTooMany) && len(found) == 3, "by 3 queries: %d mappings, %v", len(found), err)
}

// Only the mapping whose name exceeds PATH_MAX is skipped, and the text includes it.
func TestQueryLongName(t *testing.T) {
	needQuery(t)
	dir := t.TempDir()
	var components []string
	for range unix.PathMax / 250 {
		components = append(components, strings.Repeat("d", 250))
	}
	p := child.StartHost(t, child.HostSpec{Maps: []child.MapSpec{
		{Path: filepath.Join(dir, "elastic-jvmti-linux-before.so")},
		{Path: realName, Below: append([]string{dir}, components...)},
		{Path: filepath.Join(dir, "elastic-jvmti-linux-after.so")},
	}})
	for name, what := range selections {
		if what == processContexts || what == javaMachine { // the file is none
			continue
		}
		query, text, queryErr, textErr := both(t, p.PID, what, what.limit())
		assert.Assert(t, queryErr == nil && textErr == nil, "%s: %v, %v", name, queryErr, textErr)
		short := slices.DeleteFunc(slices.Clone(text), func(m Mapping) bool { return len(m.Path) >= unix.PathMax })
		assert.Check(t, len(short) == len(text)-1 && slices.Equal(query, short),
			"%s:\nquery %+v\n text %+v", name, query, text)
	}
}

// A descriptor without the ioctl is read as text.
func TestQueryUnsupported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "maps")
	assert.NilError(t, os.WriteFile(path, captured(t, "musl.txt"), 0o644))
	fd, err := openFD(path, unix.O_RDONLY)
	assert.NilError(t, err)
	defer unix.Close(fd)
	if found, err := queryOnly(fd, agentLibrary, maxLibraries); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("query of a file on disk: %+v, %v", found, err)
	}
	found, err := new(mappingReader).read(fd, SourceQuery, agentLibrary, maxLibraries)
	assert.Check(t, err == nil && len(found) == 1, "got %+v, %v", found, err)
}

// A descriptor of maps that was opened before an exec returns no mappings.
func TestQueryAfterExec(t *testing.T) {
	forEachSource(t, func(t *testing.T, source Source) {
		p := startLibrary(t)
		fd, err := openFD(filepath.Join("/proc", strconv.Itoa(p.PID), "maps"), unix.O_RDONLY)
		assert.NilError(t, err)
		defer unix.Close(fd)
		p.Tell(t, "exec")
		testenv.Poll(t, child.Timeout, "the other program", func() bool {
			found, err := new(mappingReader).read(fd, source, executableMemory, maxExecutable)
			return err == nil && len(found) == 0
		})
	})
}

// The argument is laid out as in the kernel's header, on a little-endian machine.
func TestProcmapQueryLayout(t *testing.T) {
	assert.Check(t, ioctlProcmapQuery == 0xc0686611, "ioctl %#x", ioctlProcmapQuery)
	q := procmapQuery{
		size: 0x68, queryFlags: 0x0101, queryAddr: 0x0202, start: 0x0303, end: 0x0404, flags: 0x0505,
		pageSize: 0x0606, offset: 0x0707, inode: 0x0808, devMajor: 0x0909, devMinor: 0x0a0a,
		nameSize: 0x0b0b, buildIDSize: 0x0c0c, nameAddr: nil, buildIDAddr: 0x0e0e,
	}
	const want = "6800000000000000" + "0101000000000000" + "0202000000000000" + "0303000000000000" +
		"0404000000000000" + "0505000000000000" + "0606000000000000" + "0707000000000000" +
		"0808000000000000" + "09090000" + "0a0a0000" + "0b0b0000" + "0c0c0000" +
		"0000000000000000" + "0e0e000000000000"
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&q)), unsafe.Sizeof(q))
	got := hex.EncodeToString(raw)
	assert.Check(t, got == want, "got  %s\nwant %s", got, want)
	off := unsafe.Offsetof(q.nameAddr)
	assert.Check(t, off == 88, "vma_name_addr at %d", off)
}
