package worker

import (
	"cmp"
	"errors"

	"golang.org/x/sys/unix"
)

// Failure is an error as it travels from a worker: its text, and what errors.Is finds in it.
type Failure struct {
	Text  string
	Is    []int      // indexes of Errors.Known
	Errno unix.Errno // 0: none
}

// Errors are the errors of a kind of worker.
type Errors struct {
	Known    []error // that callers tell apart
	MaxBytes int     // of a text, of which the rest is left out; 0: it has a message's bound
}

// Encode returns nil for nil.
func (e *Errors) Encode(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Text: e.bound(err.Error())}
	for i, known := range e.Known {
		if errors.Is(err, known) {
			f.Is = append(f.Is, i)
		}
	}
	errors.As(err, &f.Errno)
	return f
}

// Decode returns nil for nil. A worker may have sent anything.
func (e *Errors) Decode(f *Failure) error {
	if f == nil {
		return nil
	}
	r := &remoteError{text: e.bound(f.Text)}
	for _, i := range f.Is[:min(len(f.Is), len(e.Known))] {
		if i >= 0 && i < len(e.Known) {
			r.causes = append(r.causes, e.Known[i])
		}
	}
	if f.Errno != 0 {
		r.causes = append(r.causes, f.Errno)
	}
	return r
}

func (e *Errors) bound(text string) string {
	return text[:min(len(text), cmp.Or(e.MaxBytes, len(text)))]
}

// remoteError is an error of a worker.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.causes }
