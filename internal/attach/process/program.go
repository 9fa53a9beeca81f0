package process

import (
	"path"
	"time"

	"correlator/internal/worker/access"
)

// environmentPause is how long after an environment could not be read it is tried again.
const environmentPause = 30 * time.Second

// program is what the program that runs says of the process, besides what it publishes.
type program struct {
	executable  string // path of its file; empty: it has none
	environment access.Environment
	unread      bool // the environment was not read
	tried       time.Time
	fresh       bool // something was read since the service was last made of it
}

// forget has it read again.
func (p *program) forget() { p.unread, p.tried = true, time.Time{} }

// readProgram reads what is not known yet. What cannot be read says nothing; it is tried again if that
// tells nothing either.
func (t *Target) readProgram() {
	p := &t.program
	if !p.unread || time.Since(p.tried) < environmentPause {
		return
	}
	executable := t.executable()
	for range 3 { // another program may replace it meanwhile
		p.executable = executable
		environment, err := t.access.Environment()
		p.environment, p.unread, p.tried, p.fresh = environment, access.TellsNothing(err), time.Now(), true
		if executable = t.executable(); executable == p.executable {
			return
		}
	}
	p.executable, p.environment, p.unread = "", access.Environment{}, true // it is not known whose that was
}

// executable returns the path of the file of the program that runs now; empty: it has none.
func (t *Target) executable() string {
	if executable, err := t.handle.Executable(); err == nil && path.IsAbs(executable) {
		return executable
	}
	return ""
}

// name returns the name of the program's file; empty: it has none.
func (p *program) name() string {
	if p.executable == "" {
		return ""
	}
	return path.Base(p.executable)
}

// Executable returns the path of the program's file, as it was when the process was probed after its
// last Load; empty: it has none.
func (t *Target) Executable() string { return t.program.executable }
