// Kernels boots kernels of Debian's releases under QEMU, without KVM, and runs the tests that depend
// on the kernel in them, as root. It prints what ran as a table, and exits 1 unless everything
// passed or was skipped with a reason.
//
//	go run ./internal/lab/kernels [flags] [KERNEL...]
//
// QEMU, kernels and the programs of the guests are Debian's packages, which are downloaded and unpacked
// in the user's cache and not installed. A guest has all in its initramfs. This program is its first
// process, too: it runs the steps of a plan, one after the other, and reports on the console.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// page shows the table.
const page = "docs/kernels.md"

// bootTimeout is for all steps of a kernel: QEMU is killed then. Single steps have shorter ones.
const bootTimeout = 2 * time.Hour

type options struct {
	checkout string // the directory of go.mod
	cache    string // what is made of downloaded packages, for all checkouts
	dir      string // all else that is made
	suites   []suite
	update   bool // the results that are kept, and the page
	command  string
	files    string // a directory that the guest has, too; may be empty
}

func main() {
	if _, err := os.Stat(planFile); err == nil && os.Getpid() == 1 {
		runGuest()
	}
	quick := flag.Bool("quick", false, "run only the tests that take less than a minute")
	packages := flag.String("packages", "", "run the tests of these packages instead of those of the list")
	run := flag.String("run", "", "with -packages: run only the tests that match")
	update := flag.Bool("update", false, "keep results in "+resultsDir+", and write what all kernels did last to "+page)
	command := flag.String("command", "", "run this command of the shell instead of tests")
	files := flag.String("files", "", "a directory that the guest has as "+filesDir)
	flag.Parse()
	selected, err := selectKernels(flag.Args())
	if err == nil && *run != "" && *packages == "" {
		err = errors.New("-run needs -packages")
	}
	if err == nil && *update && (*packages != "" || *quick) {
		err = errors.New("-update needs the whole list of steps")
	}
	if err == nil && *command != "" && (*packages != "" || *quick || *update) {
		err = errors.New("-command is instead of tests")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(2)
	}
	o := options{suites: selectSuites(*quick, *packages, *run), update: *update, command: *command, files: *files}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	failed, err := o.runAll(interrupted, selected)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func (o *options) runAll(interrupted context.Context, selected []kernel) (failed bool, err error) {
	if o.checkout, err = os.Getwd(); err != nil {
		return false, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return false, err
	}
	o.cache = filepath.Join(cache, "correlator", "kernels")
	o.dir = filepath.Join(o.checkout, "testdata", "out", "kernels")
	results := filepath.Join(o.checkout, resultsDir)
	for _, dir := range []string{o.cache, o.dir, results} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return false, err
		}
	}
	// Images have the same names in every run.
	unlock, err := lock(filepath.Join(o.dir, "lock"), unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another run uses %s: %w", o.dir, err)
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	var all []result
	for _, k := range selected {
		if o.command != "" {
			if err := o.runCommand(interrupted, k); err != nil {
				return true, err
			}
			continue
		}
		commit, err := commitOf(o.checkout)
		if err != nil {
			return false, err
		}
		r := result{ID: k.id, Commit: commit}
		if err := o.runKernel(interrupted, k, &r); err != nil {
			r.Error = err.Error()
			fmt.Fprintf(os.Stderr, "%-11s %v\n", k.id, err)
		}
		if interrupted.Err() != nil {
			return false, context.Cause(interrupted)
		}
		if o.update && r.Release != "" {
			if err := r.keep(results, page); err != nil {
				return false, err
			}
		}
		failed = failed || r.failed()
		all = append(all, r)
	}
	if o.command == "" {
		fmt.Print(table(all))
	}
	return failed, nil
}

// commitOf returns the commit of a checkout, marked if another file is changed than those that keep results.
func commitOf(checkout string) (string, error) {
	commit, err := output(checkout, "git", "describe", "--always")
	if err != nil {
		return "", err
	}
	changed, err := output(checkout, "git", "status", "--porcelain", "--untracked-files=no", "--", ".",
		":!"+resultsDir, ":!"+page)
	if err != nil {
		return "", err
	}
	if commit = strings.TrimSpace(commit); changed != "" {
		commit += "-dirty"
	}
	return commit, nil
}

// runKernel boots a kernel. The error is about what it needs, or that the guest was not done or
// results are lost; what else goes wrong is in the result.
func (o *options) runKernel(interrupted context.Context, k kernel, r *result) error {
	fetched, err := o.fetch(k)
	if err != nil {
		return err
	}
	plan, packages := planOf(o.suites)
	initramfs, err := o.makeImage(k, fetched.userland, packages, plan)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.dir, k.id+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeoutCause(interrupted, bootTimeout, fmt.Errorf("%v are over", bootTimeout))
	defer cancel()
	began := time.Now()
	outputs := make(map[string]*bytes.Buffer)
	var parsing error
	cpus := []string{"-accel", "tcg,thread=multi", "-smp", "2"}
	err = boot(ctx, fetched.qemu, k, cpus, fetched.image, initramfs, log, func(e event) {
		progress(k, began, e)
		if err := r.handle(e, outputs); err != nil {
			parsing = err
		}
	})
	r.judge(plan)
	r.leaveOut(o.suites)
	if err != nil {
		return fmt.Errorf("%w; see %s", err, log.Name())
	}
	return parsing
}

// files are what a guest is booted with, in the cache.
type files struct {
	qemu     emulator
	image    string // of the kernel
	userland string // directory of the guest's programs
}

// fetch returns the files for a kernel. Only one process at a time fills the cache.
func (o *options) fetch(k kernel) (f files, err error) {
	unlock, err := lock(filepath.Join(o.cache, "lock"), 0)
	if err != nil {
		return f, err
	}
	defer unlock()
	if f.qemu, err = fetchEmulator(o.cache); err != nil {
		return f, fmt.Errorf("fetching QEMU: %w", err)
	}
	if f.image, err = fetchKernel(o.cache, k); err != nil {
		return f, err
	}
	if f.userland, err = makeUserland(o.cache, k.arch); err != nil {
		return f, fmt.Errorf("making the programs of the guest: %w", err)
	}
	return f, nil
}

// lock locks a file for this process. Without the flag unix.LOCK_NB it waits for another one that has.
func lock(path string, flags int) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|flags); err != nil {
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
