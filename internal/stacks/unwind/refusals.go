package unwind

import (
	"errors"
	"fmt"
	"strings"
)

// tried are the versions of runtimes, as the engine names them, of which programs with known stacks were run: see
// docs/stacks.md. Of another one, a function is named only if what is read of it is plausible.
var tried = map[string][]string{
	"Python": {"3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"},
	"V8": {
		"8.4", "8.6", "9.3", "9.4", "9.6", "10.2", "10.8", "11.3", "11.8", "12.4", "12.9", "13.6", "14.1", "14.6",
	},
}

// wasTried reports whether programs of a version were run ("V8 13.6.233").
func wasTried(version string) bool {
	name, number, _ := strings.Cut(version, " ")
	for _, known := range tried[name] {
		if number == known || strings.HasPrefix(number, known+".") {
			return true
		}
	}
	return false
}

// refusal is why the functions of a runtime have no names, "" if it was not refused, when so many files were mapped.
type refusal struct {
	reason string
	mapped int
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
			reason := s.refusal(t, kind)
			if reason != "" && kind.framePointers {
				return "", "", errors.New(reason)
			}
			refused = join(refused, reason)
		}
	}
	for _, code := range t.codes {
		if !code.wasTried {
			unknown = join(unknown, fmt.Sprintf("%v was not tried: its functions are named as far as what is read of "+
				"them is plausible", code.data))
		}
	}
	return refused, unknown, nil
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// refusal returns why a kind of runtime is not unwound in a process that may have mapped it.
func (s *server) refusal(t *target, kind *runtimeKind) string {
	if known, ok := t.refused[kind]; ok && known.mapped == len(t.mapped) {
		return known.reason
	}
	reason := ""
	_, err := findCode(t, kind.loader, s.pages)
	switch {
	case errors.Is(err, errNotMapped):
	case err != nil:
		reason = kind.name + ": " + failureText(err)
	default:
		reason = kind.name + ": " + errNotAttached.Error()
		if line := s.log.last(); line != "" {
			reason += " (" + line + ")"
		}
	}
	t.refused[kind] = refusal{reason, len(t.mapped)}
	return reason
}
