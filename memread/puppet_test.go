package memread

import (
	"bufio"
	"correlator/internal/lab/testenv"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// A puppet is a child of the test binary that arranges its memory by commands, one per line, and
// prints one line for each:
//
//	map PAGES              maps zeroed pages between two that are not mapped; prints their address
//	unmap REGION OFF LEN   of the REGIONth map
//	protect REGION OFF LEN PROT
//	write REGION OFF HEX
//	rewrite REGION OFF MODE   rewrites the slot there without pause, see rewriter_test.go
//	exec                   executes the test binary again; regions are gone
//
// It prints ok when it begins, also after an exec.
const puppetVariable = "MEMREAD_TEST_PUPPET"

func TestMain(m *testing.M) {
	if os.Getenv(puppetVariable) != "" {
		bePuppet()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func bePuppet() {
	var regions [][]byte
	fmt.Println("ok")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var region, off, length, prot int
		var result any = "ok"
		var err error
		verb, args, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "map":
			var pages int
			fmt.Sscan(args, &pages)
			var memory []byte
			if memory, err = mapBetween(len(regions), pages*smallestPage); err == nil {
				regions = append(regions, memory)
				result = uintptr(unsafe.Pointer(&memory[0]))
			}
		case "unmap":
			fmt.Sscan(args, &region, &off, &length)
			err = unix.MunmapPtr(unsafe.Pointer(&regions[region][off]), uintptr(length))
		case "protect":
			fmt.Sscan(args, &region, &off, &length, &prot)
			err = unix.Mprotect(regions[region][off:off+length], prot)
		case "write":
			var text string
			fmt.Sscan(args, &region, &off, &text)
			var data []byte
			data, err = hex.DecodeString(text)
			copy(regions[region][off:], data)
		case "rewrite":
			var mode string
			fmt.Sscan(args, &region, &off, &mode)
			go rewrite(regions[region], off, mode)
		case "exec":
			err = unix.Exec("/proc/self/exe", os.Args, os.Environ())
		default:
			err = fmt.Errorf("unknown command %q", verb)
		}
		if err != nil {
			result = err
		}
		fmt.Println(result)
	}
}

// lowRegion is where the nth region of mapBetween lies: 64 GiB up and more, far below everything
// else. The kernel searches for free addresses from above and so never fills a gap down there, as
// it does with one of a single page between its own mappings.
func lowRegion(n int) unsafe.Pointer { return unsafe.Add(nil, (64+n)<<30) }

// mapBetween maps size zeroed bytes, the nth region of this process, between two pages that are not
// mapped.
func mapBetween(n, size int) ([]byte, error) {
	memory, err := unix.MmapPtr(-1, 0, lowRegion(n), uintptr(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(memory), size), nil
}

type puppet struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.Writer
	lines *bufio.Reader
}

func newPuppet(t testing.TB) *puppet {
	t.Helper()
	cmd := exec.Command(testenv.Again(t))
	cmd.Env = append(os.Environ(), puppetVariable+"=1")
	in, out := testenv.Start(t, cmd)
	p := &puppet{t: t, cmd: cmd, in: in, lines: bufio.NewReader(out)}
	t.Cleanup(p.kill)
	response := p.response()
	assert.Assert(t, response == "ok", "puppet began with %q", response)
	return p
}

func (p *puppet) pid() int { return p.cmd.Process.Pid }

// open returns a Process that reads the puppet, and is closed at the end of the test.
func (p *puppet) open() *Process {
	process := Open("/proc", p.pid())
	p.t.Cleanup(func() { process.Close() })
	return process
}

// do sends a command and returns the response.
func (p *puppet) do(format string, args ...any) string {
	p.t.Helper()
	_, err := fmt.Fprintf(p.in, format+"\n", args...)
	assert.NilError(p.t, err)
	return p.response()
}

func (p *puppet) response() string {
	p.t.Helper()
	response, err := p.lines.ReadString('\n')
	assert.Assert(p.t, err == nil, "waiting for the puppet: %v", err)
	return strings.TrimSpace(response)
}

func (p *puppet) must(format string, args ...any) {
	p.t.Helper()
	if response := p.do(format, args...); response != "ok" {
		p.t.Fatalf("puppet printed %q to %.40q", response, fmt.Sprintf(format, args...))
	}
}

func (p *puppet) mapPages(pages int) uint64 {
	p.t.Helper()
	response := p.do("map %d", pages)
	addr, err := strconv.ParseUint(response, 10, 64)
	assert.Assert(p.t, err == nil, "puppet printed %q to map", response)
	return addr
}

// mapDemo maps pages, of which the first begins with demoPointers and what they point to.
func (p *puppet) mapDemo(pages int) uint64 {
	p.t.Helper()
	base := p.mapPages(pages)
	p.write(0, 0, demoPointers(base))
	p.write(0, 0x100, demoSlot)
	p.write(0, 0x200, demoStorage)
	return base
}

func (p *puppet) write(region, off int, data []byte) {
	p.t.Helper()
	p.must("write %d %d %x", region, off, data)
}

// kill ends the puppet and reaps it. It may be called twice.
func (p *puppet) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// killUnreaped ends the puppet and returns when it is a zombie.
func (p *puppet) killUnreaped() {
	p.t.Helper()
	p.cmd.Process.Kill()
	assert.NilError(p.t, unix.Waitid(unix.P_PID, p.pid(), nil, unix.WEXITED|unix.WNOWAIT, nil))
}
