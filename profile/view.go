package profile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"correlator/elfsym"
	"correlator/procscan"
)

// View is all that decides which names a process's file has: a hash of which file that is, of the path at which it is
// mapped, and of the mounts, the root directory and the rights with which debug files are looked for. Zero: not known,
// and that of no other process.
type View [2]uint64

// NewView returns how a process sees a file that it has mapped at a path.
func NewView(file elfsym.FileKey, path string, place procscan.Place, rights procscan.Credentials) View {
	hash := sha256.Sum256(fmt.Appendf(nil, "%v %v %v %s", file, place, rights, path))
	return View{binary.NativeEndian.Uint64(hash[:]), binary.NativeEndian.Uint64(hash[8:])}
}

// View returns how the process sees the file with an id that it has mapped, as of when that was found; zero if that is
// not known, or of two such files.
func (a *AddressSpace) View(id FileID) (v View) {
	for _, r := range a.layout.Load().regions {
		switch {
		case r.file == nil || r.file.ID != id || r.view == v:
		case v != View{}:
			return View{}
		default:
			v = r.view
		}
	}
	return v
}
