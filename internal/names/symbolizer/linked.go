package symbolizer

import (
	"errors"
	"os"
	"sync"

	"correlator/elfsym"
	"correlator/internal/names/symbols"
)

const (
	// keptVerdicts is of how many debug files a worker remembers whether their links are right: 100 bytes each.
	keptVerdicts = 4096

	// linkedBytes is how much is read for checksums of debug files for one request of a Live: a second of work. What is
	// beyond has to wait for the next request, which finds what is known by then.
	linkedBytes = 1 << 30
)

// errLater: for this request, too much has been read to find out whether a debug file is the right one.
var errLater = errors.New("too many large debug files")

// linked is a debug file with a checksum that a link says it has.
type linked struct {
	file elfsym.FileKey
	crc  uint32
}

// verdicts are on debug files that were read for their checksums: whether they are those that the links mean. Each is
// read once while a worker lives, unless it has changed.
type verdicts struct {
	mu    sync.Mutex
	right map[linked]bool
}

// allowance is how many bytes may still be read for checksums.
type allowance struct {
	mu   sync.Mutex
	left int64
}

func (a *allowance) take(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes > a.left {
		return false
	}
	a.left -= bytes
	return true
}

// check returns an error unless a debug file is the one that a link names: that of symbols.CheckLinked, or errLater.
func (v *verdicts) check(file *os.File, key elfsym.FileKey, link elfsym.DebugLink, a *allowance) error {
	id := linked{key, link.CRC}
	v.mu.Lock()
	right, known := v.right[id]
	v.mu.Unlock()
	switch {
	case right:
		return nil
	case known:
		return symbols.ErrLinked
	case !a.take(key.Size):
		return errLater
	}
	err := symbols.CheckLinked(file, link)
	if err != nil && !errors.Is(err, symbols.ErrLinked) {
		return err // which may pass
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.right) >= keptVerdicts {
		clear(v.right)
	}
	v.right[id] = err == nil
	return err
}
