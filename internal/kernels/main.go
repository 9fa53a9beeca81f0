// Kernels boots kernels of Debian's releases under QEMU, without KVM, and runs the tests that depend
// on the kernel in them, as root. It prints what ran as a table, and exits 1 unless everything
// passed or was skipped with a reason.
//
//	go run ./internal/kernels [flags] [KERNEL...]
//
// Kernels and the programs of the guests are Debian's packages, which are downloaded and unpacked
// in the user's cache and not installed. A guest has all in its initramfs. This program is its first
// process, too: it runs the steps of a plan, one after the other, and reports on the console.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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
	whole    bool // all tests of the suites: the results are kept for the page
}

func main() {
	if os.Getpid() == 1 {
		runGuest()
	}
	quick := flag.Bool("quick", false, "run only the tests that take less than a minute")
	packages := flag.String("packages", "", "run the tests of these packages instead of those of the list")
	run := flag.String("run", "", "with -packages: run only the tests that match")
	update := flag.Bool("update", false, "write the last results of all kernels to "+page)
	flag.Parse()
	o := options{suites: selectSuites(*quick, *packages, *run), whole: *run == ""}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	failed, err := o.runAll(interrupted, flag.Args(), *update)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func (o *options) runAll(interrupted context.Context, ids []string, update bool) (failed bool, err error) {
	if o.checkout, err = os.Getwd(); err != nil {
		return false, err
	}
	o.dir = filepath.Join(o.checkout, "testdata", "out", "kernels")
	cache, err := os.UserCacheDir()
	if err != nil {
		return false, err
	}
	o.cache = filepath.Join(cache, "correlator", "kernels")
	selected, err := selectKernels(ids)
	if err != nil {
		return false, err
	}
	results := filepath.Join(o.dir, "results")
	if err := os.MkdirAll(results, 0o755); err != nil {
		return false, err
	}
	var all []result
	for _, k := range selected {
		r, err := o.runKernel(interrupted, k)
		if err != nil {
			return false, fmt.Errorf("%s: %w", k.id, err)
		}
		if o.whole {
			if err := r.keep(results); err != nil {
				return false, err
			}
		}
		failed = failed || r.failed()
		all = append(all, r)
	}
	fmt.Print(table(all))
	if update {
		if all, err = loadResults(results); err != nil {
			return failed, err
		}
		err = updatePage(page, table(all))
	}
	return failed, err
}

// runKernel boots a kernel. The error is about what it needs; what goes wrong in the guest is in the
// result.
func (o *options) runKernel(interrupted context.Context, k kernel) (r result, err error) {
	r.ID = k.id
	image, err := fetchKernel(o.cache, k)
	if err != nil {
		return r, err
	}
	plan, packages := planOf(o.suites)
	initramfs, err := o.makeImage(k, packages, plan)
	if err != nil {
		return r, err
	}
	log, err := os.Create(filepath.Join(o.dir, k.id+".log"))
	if err != nil {
		return r, err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeoutCause(interrupted, bootTimeout, fmt.Errorf("%v are over", bootTimeout))
	defer cancel()
	began := time.Now()
	outputs := make(map[string]*bytes.Buffer)
	var parsing error
	err = boot(ctx, k, image, initramfs, log, func(e event) {
		progress(k, began, e)
		if err := r.handle(e, outputs); err != nil {
			parsing = err
		}
	})
	if interrupted.Err() != nil {
		return r, context.Cause(interrupted)
	}
	r.Seconds = time.Since(began).Seconds()
	r.leaveOut(o.suites)
	if err != nil {
		r.Error = err.Error()
		fmt.Fprintf(os.Stderr, "%-11s %v; see %s\n", k.id, err, log.Name())
	}
	return r, parsing
}
