package demo

import (
	"debug/elf"
	"path/filepath"
	"slices"

	"correlator/profile"
)

// programName is the name of the program's file in Process.Dir.
const programName = "demo"

// Function is where the code of a function of the demo program lies, in ELF addresses.
type Function struct{ Start, End uint64 }

// In reports whether a frame is in the function.
func (f Function) In(frames []profile.Frame) bool {
	return slices.ContainsFunc(frames, func(frame profile.Frame) bool {
		return frame.Kind() == profile.NativeFrame && filepath.Base(frame.File.Path) == programName &&
			f.Start <= frame.Address && frame.Address < f.End
	})
}

// Functions returns the functions of the process's program by name. Among them are the kinds of
// transactions, and "housekeeping", which threads run between two transactions.
func (p *Process) Functions() map[string]Function {
	p.t.Helper()
	program, err := elf.Open(p.HostPath(filepath.Join(p.Dir, programName)))
	if err != nil {
		p.t.Fatal(err)
	}
	defer program.Close()
	symbols, err := program.Symbols()
	if err != nil {
		p.t.Fatal(err)
	}
	found := make(map[string]Function)
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			found[s.Name] = Function{s.Value, s.Value + s.Size}
		}
	}
	return found
}
