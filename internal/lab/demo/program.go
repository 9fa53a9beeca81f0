package demo

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// Run lets a program that is no test use this package: f gets a testing.TB whose failures and skips
// end f and become the error of Run, and whose cleanups run before Run returns. Of testing.TB it
// has Helper, Cleanup, TempDir, Log, Error, Fail, Fatal and Skip with their variants; everything else panics.
func Run(f func(t testing.TB)) error {
	p := &program{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer p.cleanup()
		f(p)
	}()
	<-done
	return p.err
}

type program struct {
	testing.TB // nil: it has the interface's private method
	cleanups   []func()
	err        error
}

func (p *program) cleanup() {
	for len(p.cleanups) > 0 {
		last := p.cleanups[len(p.cleanups)-1]
		p.cleanups = p.cleanups[:len(p.cleanups)-1]
		last()
	}
}

// failedAbove is the error of a failure without a message: assertions have logged theirs.
const failedAbove = "it has failed: see above"

func (p *program) fail(message string) { p.err = errors.Join(p.err, errors.New(message)) }

func (p *program) end(message string) {
	p.fail(message)
	runtime.Goexit()
}

// TempDir makes a directory that is removed when Run returns.
func (p *program) TempDir() string {
	dir, err := os.MkdirTemp("", "demo")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p *program) Helper()                           {}
func (p *program) Cleanup(f func())                  { p.cleanups = append(p.cleanups, f) }
func (p *program) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (p *program) Log(args ...any)                   { fmt.Fprintln(os.Stderr, args...) }
func (p *program) Fail()                             { p.fail(failedAbove) }
func (p *program) FailNow()                          { p.end(failedAbove) }
func (p *program) Errorf(format string, args ...any) { p.fail(fmt.Sprintf(format, args...)) }
func (p *program) Error(args ...any)                 { p.fail(fmt.Sprint(args...)) }
func (p *program) Fatalf(format string, args ...any) { p.end(fmt.Sprintf(format, args...)) }
func (p *program) Fatal(args ...any)                 { p.end(fmt.Sprint(args...)) }
func (p *program) Skipf(format string, args ...any)  { p.end(fmt.Sprintf(format, args...)) }
func (p *program) Skip(args ...any)                  { p.end(fmt.Sprint(args...)) }
