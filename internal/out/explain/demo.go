package explain

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed" // the recording
	"encoding/json"

	"correlator/internal/out/keep"
)

// RECORDING=internal/out/explain/demo.json.gz make demo writes another one, of the end of that run.
//
//go:embed demo.json.gz
var recorded []byte

// Demo is a source that has what an agent answered once of a transaction, when the project's demo ran: it needs no
// agent, and no rights.
type Demo struct{}

// Samples returns that answer, to whatever is asked.
func (Demo) Samples(context.Context, keep.Query) (*keep.Answer, error) {
	content, err := gzip.NewReader(bytes.NewReader(recorded))
	if err != nil {
		return nil, err
	}
	answer := new(keep.Answer)
	return answer, json.NewDecoder(content).Decode(answer)
}
