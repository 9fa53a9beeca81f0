package symbolizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"correlator/internal/names/symbols"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

// Requests and answers are one message each, in JSON. Paths and names are bytes of any kind, and
// travel as base64.

// The operations of a request.
const (
	opLearn = "learn" // Files and Code of a Process; answered with Learned
	opAsk   = "ask"   // Files and Code of a Process are to be named, any number of times; not answered
	opRead  = "read"  // read the names of all that was asked for; answered with names. Once
	opName  = "name"  // Files and Code of a Process are to be named now; answered with a liveAnswer
)

type request struct {
	Op      string
	Process int // a number that the client has given it; not for opName
	ID      procscan.ProcessID
	Since   time.Time // when it may have written its perf map, at the earliest
	Files   []file
	Code    []uint64 // addresses in no file

	// For opName.
	Image   procscan.Image
	PerfMap bool // its version is wanted
}

// file is a file of which a process has frames.
type file struct {
	ID    profile.FileID
	Path  []byte
	View  profile.View // of the process, as it was sampled; for opLearn
	Addrs []uint64     // to be named, in a request
}

// answer is one of those for a process.
type answer struct {
	Process int
	Learned bool // opLearn is done, and nothing else is in the answer

	// File is where Names are, with its path in the process, once; nil: they are in memory that is known to
	// be code, where an empty one is of addresses without a name.
	File  *file
	Names []nameOf

	End *end // nothing follows for the process
}

// nameOf is the name of addresses.
type nameOf struct {
	symbolName
	Addrs []uint64
}

// symbolName is a name as in a symbol table or a perf map, and what it is demangled, empty if it is
// not mangled.
type symbolName struct {
	Name      []byte
	Demangled []byte `json:",omitempty"`
}

func (n *symbolName) bytes() int { return len(n.Name) + len(n.Demangled) }

// end is how reading has ended.
type end struct {
	Unread, PerfMap *worker.Failure
}

const (
	// maxPathBytes is more than any path has in /proc/PID/maps, a page.
	maxPathBytes = 8 << 10

	// A request has at most so many files and addresses, an answer so many addresses and bytes of names:
	// in JSON, these take less than worker.MaxMessageBytes.
	maxRequestFiles = 4
	maxRequestAddrs = 2000
	maxAnswerAddrs  = 500
	maxAnswerBytes  = 32 << 10

	// maxErrorBytes bounds the text of an error.
	maxErrorBytes = 1 << 10
)

// failures are the errors that callers tell apart.
var failures = &worker.Errors{MaxBytes: maxErrorBytes, Known: []error{
	fs.ErrNotExist, fs.ErrPermission, symbols.ErrOwner, symbols.ErrOld, procscan.ErrFileSystem, procscan.ErrPseudoFile,
	procscan.ErrGone, symbols.ErrLines,
}}

// errAnswer: a worker did not answer what it was asked.
var errAnswer = errors.New("unexpected answer of a worker")

func decodeAnswer(message []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(message, &a); err != nil {
		return answer{}, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return a, nil
}
