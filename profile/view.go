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
func (a *AddressSpace) View(id FileID) View { return a.layout.Load().views[id] }

// viewsOf returns the views of the files of regions. They are asked for by whom all processes share, as often as there
// are frames, so that thousands of regions are not searched then.
func viewsOf(regions []region) map[FileID]View {
	views := make(map[FileID]View)
	for _, r := range regions {
		if r.file == nil {
			continue
		}
		if known, again := views[r.file.ID]; again && known != r.view {
			r.view = View{}
		}
		views[r.file.ID] = r.view
	}
	return views
}
