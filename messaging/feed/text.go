package feed

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// parseRecord reads a record that is written as a line of text,
//
//	PID TID STACK-TRACE-ID [COUNT [TRACE-ID TRANSACTION-ID]]
//
// with the stack-trace-id as 32 hex digits or as 22 characters of base64-url, its printed form, and
// the other ids likewise. COUNT is 1 when it is not given. The sample counts as taken now.
func parseRecord(line string) (r Record, err error) {
	fields := strings.Fields(line)
	switch len(fields) {
	case 3:
		fields = append(fields, "1")
	case 4, 6:
	default:
		return r, fmt.Errorf("%d fields, want PID TID STACK-TRACE-ID [COUNT [TRACE-ID TRANSACTION-ID]]", len(fields))
	}
	pid, err := parseNumber("pid", fields[0], 31)
	if err != nil {
		return r, err
	}
	tid, err := parseNumber("tid", fields[1], 31)
	if err != nil {
		return r, err
	}
	count, err := parseNumber("count", fields[3], 16)
	if err != nil {
		return r, err
	}
	r = Record{PID: uint32(pid), TID: uint32(tid), Count: uint16(count), HasContext: len(fields) == 6}
	if err := parseID(r.StackTraceID[:], "stack-trace-id", fields[2]); err != nil || !r.HasContext {
		return r, err
	}
	if err := parseID(r.TraceID[:], "trace-id", fields[4]); err != nil {
		return r, err
	}
	return r, parseID(r.TransactionID[:], "transaction-id", fields[5])
}

func parseNumber(name, text string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s %q is not a number from 1 to %d", name, text, 1<<bits-1)
	}
	return n, nil
}

// parseID decodes hex digits, or base64-url without padding, that give exactly id's bytes.
func parseID(id []byte, name, text string) error {
	decoded, err := hex.DecodeString(text)
	if err != nil || len(decoded) != len(id) {
		decoded, err = base64.RawURLEncoding.DecodeString(text)
	}
	if err != nil || len(decoded) != len(id) {
		return fmt.Errorf("%s %q is not %d bytes in hex or base64-url", name, text, len(id))
	}
	copy(id, decoded)
	return nil
}
