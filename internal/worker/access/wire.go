package access

import (
	"encoding/json"
	"errors"
	"fmt"

	"correlator/elfsym"
	"correlator/internal/worker"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/profile"
	"correlator/tlsdesc"
)

// The operations: the first byte of a request. The rest is a request in JSON.
const (
	opConnect        = 'c' // answered with connected, and the socket
	opIdentifySocket = 'i' // connected
	opPlace          = 'p' // procscan.Place
	opLibrary        = 'l' // elfsym.Library
	opFiles          = 'f' // []parsed, of the first mappings, at least one
	opThreadContexts = 't' // []variable, likewise
	opSlots          = 's' // slots
	opPagedOutSlot   = 'o' // slots, of one thread
	opEnvironment    = 'e' // environment
	opJavaAgent      = 'j' // *javaagent.Agent
	opGoProgram      = 'g' // elfsym.GoProgram
	opMemory         = 'm' // see memory.go
)

// The first byte of an answer.
const (
	answerOK    = 0 // the rest is what the operation returns
	answerError = 1 // the rest is a worker.Failure
)

// request is the body of every request but opMemory's; not every operation uses all fields.
type request struct {
	Process     procscan.ProcessID
	Path        []byte
	Credentials messaging.Credentials
	Mappings    []mapped

	Rule           tlsdesc.Rule
	ThreadPointers []uint64
}

// mapped is a procscan.Mapping as it travels.
type mapped struct {
	procscan.Mapping
	Path []byte // instead of the Mapping's
}

func newMapped(mappings ...procscan.Mapping) *request {
	r := &request{}
	for _, m := range mappings {
		path := []byte(m.Path)
		m.Path = ""
		r.Mappings = append(r.Mappings, mapped{m, path})
	}
	return r
}

func (m mapped) mapping() procscan.Mapping {
	m.Mapping.Path = string(m.Path)
	return m.Mapping
}

type connected struct{ Socket messaging.SocketID }

// parsed is a profile.FileResult as it travels.
type parsed struct {
	Key   elfsym.FileKey
	File  *elfsym.File
	View  profile.View
	Error *worker.Failure
}

// variable is a VariableResult as it travels.
type variable struct {
	Variable *elfsym.Variable
	Error    *worker.Failure
}

// errRequest: a worker was asked for something that it does not do.
var errRequest = errors.New("malformed request")

// errAnswer: a worker did not answer what it was asked.
var errAnswer = errors.New("unexpected answer of a worker")

// failures are the errors that callers tell apart.
var failures = &worker.Errors{Known: []error{
	procscan.ErrGone, procscan.ErrDenied, procscan.ErrNotRegular,
	messaging.ErrNoSocket, messaging.ErrNotSocket, messaging.ErrWrongType, messaging.ErrRefused,
	messaging.ErrPermission, messaging.ErrPath, messaging.ErrNoOpenat2, messaging.ErrCredentials,
	ErrMalformed, profile.ErrNotRead,
	elfsym.ErrClass, elfsym.ErrMachine, elfsym.ErrLimit, elfsym.ErrNoSymbols,
	memread.ErrGone, memread.ErrUnmapped, memread.ErrDenied, memread.ErrTorn, memread.ErrUpdating, memread.ErrVersion,
	tlsdesc.ErrChanged, tlsdesc.ErrMalformed, tlsdesc.ErrUnresolved, tlsdesc.ErrUnsupported,
}}

// encodeAnswer encodes the result of an operation.
func encodeAnswer(result any, err error) []byte {
	kind := byte(answerOK)
	if err != nil {
		kind, result = answerError, failures.Encode(err)
	}
	body, err := json.Marshal(result)
	if err != nil { // impossible for the types of this package
		return nil // the client does not take it for an answer
	}
	return append([]byte{kind}, body...)
}

// decodeAnswer decodes the result of an operation, or returns its error.
func decodeAnswer(message []byte, result any) error {
	switch {
	case len(message) > 0 && message[0] == answerOK:
		if err := json.Unmarshal(message[1:], result); err != nil {
			return fmt.Errorf("%w: %w", errAnswer, err)
		}
		return nil
	case len(message) > 0 && message[0] == answerError:
		var f worker.Failure
		if err := json.Unmarshal(message[1:], &f); err != nil {
			return fmt.Errorf("%w: %w", errAnswer, err)
		}
		return failures.Decode(&f)
	}
	return errAnswer
}
