package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"correlator/elfsym"
	"correlator/internal/worker"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/procscan/javaagent"
	"correlator/profile"
)

// workerMemoryBytes is what a worker may take: far more than parsing a file (a few MB) and a message
// do.
const workerMemoryBytes = 64 << 20

// Kind is the kind of worker that serves a Client. What it needs the capabilities for is the same
// as for the agent, see docs/security.md.
var Kind = worker.Kind{
	Name: "access",
	Capabilities: []int{
		unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SETUID, unix.CAP_SETGID,
	},
	Calls: append([]uint32{unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT},
		worker.CredentialCalls...),
	MemoryBytes: workerMemoryBytes,
	Single:      true,
	Serve:       serve,
}

func init() { worker.Early(Kind) }

// server is the worker's side.
type server struct {
	procRoot string
	files    *elfsym.Cache
	parsed   map[elfsym.FileKey]*elfsym.File
	requests []memread.Request // scratch space
}

// libraryEntries is how many libraries a worker remembers: those of the images and extractions that
// run at a time on an ordinary host.
const libraryEntries = 64

func serve(procRoot string, conn *worker.Conn) {
	files, err := elfsym.NewCache(libraryEntries)
	if err != nil {
		return
	}
	s := &server{procRoot: procRoot, files: files, parsed: make(map[elfsym.FileKey]*elfsym.File)}
	for {
		message, err := conn.Receive()
		if err != nil {
			return
		}
		answer, fd := s.answer(message)
		err = conn.Send(answer, fd)
		if fd >= 0 {
			unix.Close(fd)
		}
		if err != nil {
			return
		}
	}
}

// answer does what a request asks for. fd goes with the answer; -1: none does.
func (s *server) answer(message []byte) (answer []byte, fd int) {
	if len(message) > 0 && message[0] == opMemory {
		return s.readMemory(message[1:]), -1
	}
	result, fd, err := s.do(message)
	return encodeAnswer(result, err), fd
}

func (s *server) do(message []byte) (result any, fd int, err error) {
	var r request
	if len(message) == 0 {
		return nil, -1, errRequest
	}
	if err := json.Unmarshal(message[1:], &r); err != nil {
		return nil, -1, fmt.Errorf("%w: %w", errRequest, err)
	}
	handle, err := procscan.OpenProcess(s.procRoot, r.Process)
	if err != nil {
		return nil, -1, err
	}
	defer handle.Close()
	fd = -1
	switch message[0] {
	case opConnect:
		return s.connect(handle, &r)
	case opIdentifySocket:
		result, err = s.identifySocket(handle, &r)
	case opPlace:
		result, err = handle.Place()
	case opEnvironment:
		result, err = readEnvironment(handle)
	case opJavaAgent:
		result, err = javaagent.Find(handle)
	case opSlots, opPagedOutSlot:
		result, err = s.readSlots(&r, message[0] == opPagedOutSlot)
	case opLibrary:
		result, err = ofFile(handle, &r, s.files.Library)
	case opGoProgram:
		result, err = ofFile(handle, &r, s.files.GoProgram)
	case opFiles:
		place, errPlace := handle.Place()
		rights, errRights := handle.Credentials()
		result, err = answerForAll(&r, func(m procscan.Mapping) any {
			file := s.parseFile(handle, m)
			if file.File != nil && errPlace == nil && errRights == nil {
				file.View = profile.NewView(file.Key, m.Path, place, rights)
			}
			return file
		})
	case opThreadContexts:
		result, err = answerForAll(&r, func(m procscan.Mapping) any { return s.threadContext(handle, m) })
	default:
		err = fmt.Errorf("%w: operation %q", errRequest, message[0])
	}
	return result, fd, err
}

func (s *server) connect(handle *procscan.Handle, r *request) (any, int, error) {
	root, err := handle.OpenRoot()
	if err != nil {
		return nil, -1, fmt.Errorf("opening root: %w", err)
	}
	defer root.Close()
	socket, err := messaging.Dial(s.procRoot, root, string(r.Path), r.Credentials)
	if err != nil {
		return nil, -1, err
	}
	return connected{socket.Identity()}, socket.Release(), nil
}

func (s *server) identifySocket(handle *procscan.Handle, r *request) (any, error) {
	root, err := handle.OpenRoot()
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	defer root.Close()
	identity, err := messaging.Identify(root, string(r.Path))
	return connected{identity}, err
}

// ofFile answers with what a parser says of the file of a mapping.
func ofFile[T any](handle *procscan.Handle, r *request, parse func(*os.File) (T, error)) (any, error) {
	if len(r.Mappings) != 1 {
		return nil, errRequest
	}
	file, err := handle.OpenMapped(r.Mappings[0].mapping())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	parsed, err := parse(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return parsed, nil
}

const (
	// maxFilesBytes is when an answer about files has enough: each takes a few hundred bytes, 8 KB at
	// worst.
	maxFilesBytes = worker.MaxMessageBytes / 2
	// maxFilesTime is when it comes without the others: hundreds of files on a slow disk take longer
	// than timeout, a single one does not.
	maxFilesTime = timeout / 4
)

// answerForAll answers for the files of mappings, in their order: for one at least, for as many as
// fit in an answer and in maxFilesTime.
func answerForAll(r *request, answerFor func(procscan.Mapping) any) (any, error) {
	var answer []json.RawMessage
	began := time.Now()
	for bytes := 0; len(answer) < len(r.Mappings) && bytes < maxFilesBytes; {
		if len(answer) > 0 && time.Since(began) > maxFilesTime {
			break
		}
		encoded, err := json.Marshal(answerFor(r.Mappings[len(answer)].mapping()))
		if err != nil {
			return nil, err
		}
		answer = append(answer, encoded)
		bytes += len(encoded)
	}
	return answer, nil
}

// maxParsed is how many files a worker knows again: those of the processes of an ordinary host. Each takes some hundred
// bytes, 3 KB at worst.
const maxParsed = 256

func (s *server) parseFile(handle *procscan.Handle, m procscan.Mapping) parsed {
	if stat, err := handle.StatMapped(m); err == nil {
		key := elfsym.FileKey{
			Dev: stat.Dev, Ino: stat.Ino, Size: stat.Size, MtimeNs: stat.Mtim.Nano(), CtimeNs: stat.Ctim.Nano(),
		}
		if file := s.parsed[key]; file != nil {
			return parsed{Key: key, File: file}
		}
	}
	file, err := handle.OpenMapped(m)
	if err != nil {
		return parsed{Error: failures.Encode(err)}
	}
	defer file.Close()
	answer, err := parse(file, file)
	if err != nil {
		return parsed{Error: failures.Encode(fmt.Errorf("%w: %w", profile.ErrNotRead, err))}
	}
	if answer.File != nil {
		if len(s.parsed) == maxParsed {
			clear(s.parsed)
		}
		s.parsed[answer.Key] = answer.File
	}
	return answer
}

func (s *server) threadContext(handle *procscan.Handle, m procscan.Mapping) variable {
	file, err := handle.OpenMapped(m)
	if err != nil {
		return variable{Error: failures.Encode(err)}
	}
	defer file.Close()
	return s.threadContextOf(file)
}

func (s *server) threadContextOf(file *os.File) variable {
	found, err := s.files.ThreadContext(file)
	if err != nil && !errors.Is(err, elfsym.ErrNoSymbols) {
		err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return variable{found, failures.Encode(err)}
}

// parse parses a file, whose contents are apart for tests. Its File is nil when it is not an ELF file
// that this machine runs.
func parse(file *os.File, contents io.ReaderAt) (answer parsed, err error) {
	if answer.Key, err = elfsym.Identify(file); err != nil {
		return parsed{}, err
	}
	answer.File, err = elfsym.ParseFile(contents, answer.Key.Size)
	if err != nil && !elfsym.IsContentError(err) {
		return parsed{}, err
	}
	// What was read may be in part from before a change and in part from after, and so has no key.
	after, err := elfsym.Identify(file)
	if err == nil && after != answer.Key {
		err = errChanged
	}
	return answer, err
}

// ErrMalformed: a library was opened, and cannot be read or used.
var ErrMalformed = errors.New("library is unusable")

var errChanged = errors.New("file changed while it was read")
