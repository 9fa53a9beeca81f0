package unwind

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// tried are the versions of runtimes, as the engine names them, of which programs with known stacks were run: see
// docs/stacks.md. Of another one, a function is named only if what is read of it is plausible.
var tried = map[string][]string{
	"PHP":    {"8.2", "8.4"},
	"Python": {"3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"},
	"V8": {
		"8.4", "8.6", "9.3", "9.4", "9.6", "10.2", "10.8", "11.3", "11.8", "12.4", "12.9", "13.6", "14.1", "14.6",
	},
}

// wasTried reports whether programs of a version were run ("V8 13.6.233").
func wasTried(version string) bool {
	name, number, _ := strings.Cut(version, " ")
	return slices.ContainsFunc(tried[name], func(known string) bool {
		return number == known || strings.HasPrefix(number, known+".")
	})
}

// refusal is why the functions of a runtime have no names, "" if it was not refused, when some files were mapped.
type refusal struct {
	reason string
	mapped uint64 // a hash of them
	path   string // of the runtime's file, "" if it could not be read
	isSaid bool   // the engine has said why
	// framePointers: the process is to be walked by them.
	framePointers bool
}

// refusals returns why functions of runtimes that a process has mapped have no names, and which version of a runtime
// was not tried: "" for neither. The engine only logs it, and takes the runtime for native code. An error says that
// the process is to be walked by frame pointers.
func (s *server) refusals(t *target, came *stored) (refused, unknown string, err error) {
	ready := make(map[*runtimeKind]bool)
	for _, kind := range came.runtimes {
		ready[kind] = true
	}
	for _, kind := range runtimeKinds {
		if !ready[kind] && kind != came.missing {
			refusal := s.refusal(t, kind)
			if refusal.reason != "" && refusal.framePointers {
				return "", "", errors.New(refusal.reason)
			}
			refused = join(refused, refusal.reason)
		}
	}
	for _, code := range t.codes {
		unknown = join(unknown, code.doubts())
	}
	return refused, unknown, nil
}

// doubts returns what is to be said of a version that was not tried, "" of others.
func (c *runtimeCode) doubts() string {
	if c.wasTried {
		return ""
	}
	return fmt.Sprintf("%v was not tried: its functions are named as far as what is read of them is plausible", c.data)
}

// refusalText returns why a kind of runtime is not unwound.
func refusalText(kind *runtimeKind, err error) string { return kind.name + ": " + failureText(err) }

// framePointersAfter reports whether a process in which a kind of runtime cannot be read is to be walked by frame
// pointers.
func (k *runtimeKind) framePointersAfter(err error) bool {
	return k.framePointers && !errors.Is(err, errOther)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// refusal returns why a kind of runtime is not unwound in a process that may have mapped it. The engine tries a file
// once, and only then says why.
func (s *server) refusal(t *target, kind *runtimeKind) refusal {
	known, mapped := t.refused[kind], s.hashMapped(t)
	if known.mapped == mapped {
		return known
	}
	now := refusal{mapped: mapped}
	code, err := findCode(t, kind, s.pages)
	switch {
	case errors.Is(err, errNotMapped):
	case err != nil:
		now.reason, now.framePointers = refusalText(kind, err), kind.framePointersAfter(err)
	default:
		now.framePointers = kind.framePointers
		now.path = code.path
		if line := s.log.first(code.path); line != "" {
			now.reason, now.isSaid = kind.name+": "+errNotAttached.Error()+" ("+line+")", true
		} else if known.isSaid && known.path == code.path {
			now.reason, now.isSaid = known.reason, true
		} else {
			now.reason = refusalText(kind, errNotAttached)
		}
	}
	t.refused[kind] = now
	return now
}

// hashMapped returns a hash of what a process has mapped, which is not 0.
func (s *server) hashMapped(t *target) uint64 {
	var h maphash.Hash
	h.SetSeed(s.pages.seed)
	for _, m := range t.mapped {
		maphash.WriteComparable(&h, m)
	}
	return h.Sum64() | 1
}
