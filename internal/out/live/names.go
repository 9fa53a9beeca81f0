package live

import (
	"fmt"
	"path"

	"correlator/profile"
)

// nameOf returns what a frame of a process is shown as.
func (l *Live) nameOf(resource *profile.Resource, f profile.Frame) (name string, known bool) {
	if f.Name() == "" {
		f = l.namer.Name(resource, f)
	}
	if name := f.Name(); name != "" {
		return name, true
	}
	if f.File != nil && f.File.Path != "" {
		return fmt.Sprintf("%s+%#x", path.Base(f.File.Path), f.Address), false
	}
	return fmt.Sprintf("%#x", f.Address), false
}
