package tlsdesc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// buildThreads builds testdata/threads.c.
func buildThreads(t *testing.T, compiler string) string {
	t.Helper()
	return testenv.Compile(t, compiler, "testdata/threads.c", "-pthread", "-ldl")
}

// program is the program of testdata/threads.c.
type program struct {
	*target // the agent library loaded last at the start
	threads []truth
	stdin   io.Writer
	lines   *bufio.Scanner
}

// startThreads starts the program with libraries to load now and others to load later, and returns
// when its threads have said what is to be found.
func startThreads(t *testing.T, argv []string, environment string, now, later []string) *program {
	t.Helper()
	argv = slices.Concat(argv, now, []string{"--"}, later)
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = append(os.Environ(), environment)
	stdin, stdout := testenv.Start(t, command)
	p := &program{stdin: stdin, lines: bufio.NewScanner(stdout)}
	for p.lines.Scan() {
		var thread truth
		var base uint64
		line := p.lines.Text()
		if n, _ := fmt.Sscanf(line, "thread %s %x %x %x", &thread.name, &thread.threadPointer,
			&thread.variable, &thread.contents); n == 4 {
			p.threads = append(p.threads, thread)
		} else if n, _ := fmt.Sscanf(line, "loaded %x", &base); n == 1 && len(p.threads) > 0 {
			p.target = inspect(t, command.Process.Pid, now[len(now)-1], base)
			return p
		}
	}
	t.Fatalf("%v ended", argv)
	return nil
}

// loadMore has the program load the other libraries and touch their variables. The channel is
// closed when it has done so.
func (p *program) loadMore(t *testing.T) <-chan struct{} {
	t.Helper()
	_, err := io.WriteString(p.stdin, "\n")
	assert.NilError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.Check(t, p.lines.Scan() && p.lines.Text() == "more loaded", "the program prints %q", p.lines.Text())
	}()
	return done
}

// copies makes n files of a prebuilt library of this machine, so that each is one to the loader.
func copies(t *testing.T, fixture string, n int) (paths []string) {
	t.Helper()
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	library := testenv.ReadFile(t, demo.Fixture(t, machine+"-"+fixture))
	dir := t.TempDir()
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("lib%d.so", i))
		testenv.WriteFile(t, path, library)
		paths = append(paths, path)
	}
	return paths
}

// dynamicEnvironment keeps glibc from placing TLS statically.
const dynamicEnvironment = "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0"

// dynamicForms are the programs and libraries whose variables are found through DTVs.
var dynamicForms = []struct{ name, compiler, environment, fixture string }{
	{"glibc dynamic", "cc", dynamicEnvironment, "glibc-tlsdesc"},
	{"glibc dtpmod", "cc", "", "glibc-dtpmod"},
	{"musl dynamic", "musl-gcc", "", "musl-tlsdesc"},
	{"musl dtpmod", "musl-gcc", "", "musl-dtpmod"},
}

// A thread that is older than many libraries has a DTV without room for the last of them.
func TestShortDTV(t *testing.T) {
	const libraries = 40 // glibc keeps room for 14 more than there were when the thread began
	for _, test := range dynamicForms {
		t.Run(test.name, func(t *testing.T) {
			p := startThreads(t, []string{buildThreads(t, test.compiler)}, test.environment,
				copies(t, test.fixture, libraries), nil)
			rule := p.resolve(t)
			assert.Assert(t, rule.Module >= libraries, "%+v", rule)
			p.check(t, rule, p.threads)

			old := p.threads[0]
			dtv := p.word(t, old.threadPointer+uint64(rule.DTVOffset))
			capacity := p.word(t, dtv+uint64(rule.DTVCapacityOffset))
			short := capacity < rule.Module
			assert.Check(t, short == (rule.Libc == Glibc), "%s: room for %d, %+v", old.name, capacity, rule)
		})
	}
}

// While libraries are loaded and threads get other DTVs, what is found is right, or it is known
// that it may not be.
func TestWhileLibrariesAreLoaded(t *testing.T) {
	for _, test := range dynamicForms {
		t.Run(test.name, func(t *testing.T) {
			paths := copies(t, test.fixture, 200)
			p := startThreads(t, []string{buildThreads(t, test.compiler)}, test.environment, paths[:1], paths[1:])
			rule := p.resolve(t)
			rounds, changed := 0, 0
			for done := p.loadMore(t); done != nil; rounds++ {
				select {
				case <-done:
					done = nil // one more round
				default:
				}
				out, errs := p.variables(t, rule, p.threads)
				for i, thread := range p.threads {
					known := thread.variable != 0 || rule.Libc == Glibc // musl has one for all
					if errors.Is(errs[i], ErrChanged) {
						changed++
					} else if errs[i] != nil || known && out[i] != thread.variable {
						t.Fatalf("%s: %#x, not %#x, %v", thread.name, out[i], thread.variable, errs[i])
					}
				}
			}
			p.check(t, rule, p.threads)
			t.Logf("%d rounds, %d times a DTV was replaced", rounds, changed)
		})
	}
}

// The rules for aarch64, on a process of that machine: qemu keeps the program's memory at the
// addresses that the program knows.
func TestAArch64(t *testing.T) {
	if runtime.GOARCH == "arm64" {
		return // the other tests are of this machine
	}
	const root = "/usr/aarch64-linux-gnu"
	qemu := testenv.NeedTool(t, "qemu-aarch64-static")
	if _, err := os.Stat(root + "/lib/ld-linux-aarch64.so.1"); err != nil {
		testenv.Missing(t, "needs glibc for aarch64 in "+root+" (libc6-dev-arm64-cross)")
	}
	program := buildThreads(t, "aarch64-linux-gnu-gcc")

	for _, test := range []struct {
		fixture, environment string
		kind                 Kind
	}{
		{"tlsdesc", "", Static},
		{"tlsdesc", dynamicEnvironment, Dynamic},
		{"tlsdesc-local", dynamicEnvironment, Dynamic},
		{"tlsdesc-lld", dynamicEnvironment, Dynamic},
		{"tlsdesc-lld-local", "", Static},
		{"tlsdesc-64k", "", Static},
		{"dtpmod", "", DTPMod},
		{"dtpmod-local", "", DTPMod},
	} {
		t.Run(test.fixture+" "+test.kind.String(), func(t *testing.T) {
			argv := []string{qemu, "-L", root}
			if test.environment != "" {
				argv = append(argv, "-E", test.environment)
			}
			argv = append(argv, program)
			p := startThreads(t, argv, "", []string{demo.Fixture(t, "aarch64-glibc-"+test.fixture)}, nil)
			for _, thread := range p.threads {
				if thread.variable != 0 && p.word(t, thread.variable) != thread.contents {
					testenv.Missing(t, "needs a qemu-aarch64-static that maps the program's addresses one to one")
				}
			}
			rule := p.resolve(t)
			assert.Check(t, rule.Kind == test.kind && rule.Libc == Glibc, "%+v, not %v of glibc", rule, test.kind)
			p.check(t, rule, p.threads)
		})
	}
}
