// Package ids reads ids of traces, transactions and spans as people and other tools have them, and finds
// them among those of samples. It is no part of profile: workers would wait for what it needs.
package ids

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// How many digits ids have in full: those of traces; those of transactions and spans.
const (
	TraceDigits = 32
	SpanDigits  = 16
)

// minIDDigits is the shortest beginning of an id: what is shorter begins too many.
const minIDDigits = 4

// idForms are texts with the id of a trace in them, in lower case. Most processes of ours read none.
var idForms = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$`),         // traceparent
		regexp.MustCompile(`^(?:.*;)?(?:root=)?[0-9a-f]-([0-9a-f]{8})-([0-9a-f]{24})(?:;.*)?$`),     // AWS X-Ray
		regexp.MustCompile(`^([0-9a-f]{32})-[0-9a-f]{16}(?:-[01d](?:-[0-9a-f]{16})?)?$`),            // B3
		regexp.MustCompile(`^([0-9a-f]{16})-[0-9a-f]{16}-[01d](?:-[0-9a-f]{16})?$`),                 // B3, 64 bits
		regexp.MustCompile(`^([0-9a-f]{1,32}):[0-9a-f]{1,16}:[0-9a-f]{1,16}:(?:0x)?[0-9a-f]{1,2}$`), // Jaeger
	}
})

// Parse reads an id as people and other tools have it: hexadecimal digits, with dashes, in upper
// case, with 0x, without leading zeros, or how one begins; a decimal number, also with a sign; and of a trace also a
// traceparent, an id of AWS X-Ray, or a header of B3 or Jaeger. most is the number of digits that it
// has in full. The result is what NewPattern takes.
func Parse(text string, most int) (string, error) {
	id := strings.ToLower(strings.TrimSpace(text))
	for _, form := range idForms() {
		if found := form.FindStringSubmatch(id); found != nil {
			id = strings.Join(found[1:], "")
			break
		}
	}
	// Programs without unsigned numbers have signed ones.
	if n, err := strconv.ParseInt(id, 10, 64); err == nil && n < 0 && len(id) > minIDDigits {
		id = strconv.FormatUint(uint64(n), 10)
	}
	id = strings.ReplaceAll(strings.TrimPrefix(id, "0x"), "-", "")
	if strings.Trim(id, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%q is not an id: hexadecimal digits, a decimal number, a traceparent or an X-Ray id", text)
	}
	if _, err := decimalID(id, most/2); len(id) < minIDDigits || len(id) > most && err != nil {
		return "", fmt.Errorf("%q is not an id: it has %d digits, not %d to %d", text, len(id), minIDDigits, most)
	}
	return id, nil
}

// decimalID returns a decimal number of at most so many bytes, without leading zeros.
func decimalID(digits string, most int) ([]byte, error) {
	if len(digits) > 39 { // 2¹²⁸ has as many
		return nil, errors.New("too many digits")
	}
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok || n.BitLen() > 8*most {
		return nil, errors.New("not a decimal number, or too large")
	}
	return n.Bytes(), nil
}

// Pattern is the digits of an id, or of how one begins.
type Pattern struct {
	digits string
	bytes  []byte
	half   bool // there is a digit more
	digit  byte // in the upper half

	// numbers are what the digits mean as a number, hexadecimal and decimal, without leading zeros:
	// ids of 64 bits are those of traces whose upper half is zero or not known to who has the id.
	numbers [][]byte
}

// NewPattern returns the pattern of digits that Parse has returned; of anything else it is one
// that no id matches.
func NewPattern(digits string) Pattern {
	p := Pattern{digits: digits}
	even, padded := digits, digits
	if p.half = len(digits)%2 == 1; p.half {
		even, padded = digits+"0", "0"+digits
	}
	if hexadecimal, err := hex.DecodeString(padded); err == nil {
		p.numbers = append(p.numbers, bytes.TrimLeft(hexadecimal, "\x00"))
	}
	if decimal, err := decimalID(digits, TraceDigits/2); err == nil {
		p.numbers = append(p.numbers, decimal)
	}
	all, err := hex.DecodeString(even)
	if err != nil {
		p.bytes = make([]byte, TraceDigits/2+1)
		return p
	}
	if p.half {
		p.digit, all = all[len(all)-1], all[:len(all)-1]
	}
	p.bytes = all
	return p
}

// Matches reports whether an id begins so, or is the one that is meant.
func (p *Pattern) Matches(id []byte) bool {
	begins := bytes.HasPrefix(id, p.bytes) && (!p.half || len(id) > len(p.bytes) && id[len(p.bytes)]&0xf0 == p.digit)
	return begins || p.Is(id)
}

// Is reports whether an id is the one that is meant, and not only begins so.
func (p *Pattern) Is(id []byte) bool {
	if len(p.bytes) == len(id) && !p.half && bytes.Equal(id, p.bytes) {
		return true
	}
	const half = SpanDigits / 2
	stored := bytes.TrimLeft(id, "\x00")
	for _, n := range p.numbers {
		if len(n) == 0 {
			continue
		}
		// What has the id may not know the upper half, in digits that are fewer, nor may what wrote the
		// context, which has zeros there.
		short := len(p.digits) != TraceDigits && len(n) <= half
		switch {
		case bytes.Equal(stored, n),
			len(id) == TraceDigits/2 && short && bytes.Equal(bytes.TrimLeft(id[half:], "\x00"), n),
			len(id) == TraceDigits/2 && len(stored) <= half && len(n) > half &&
				bytes.Equal(id[half:], n[len(n)-half:]):
			return true
		}
	}
	return false
}

// InFull returns the ids that can be meant, of 64 and of 128 bits.
func (p *Pattern) InFull() (all [][]byte) {
	numbers := p.numbers
	for _, n := range p.numbers {
		if len(n) > SpanDigits/2 { // of which a context may have the lower half
			numbers = append(slices.Clip(numbers), bytes.TrimLeft(n[len(n)-SpanDigits/2:], "\x00"))
		}
	}
	for _, n := range numbers {
		for _, size := range []int{SpanDigits / 2, TraceDigits / 2} {
			if len(n) > 0 && len(n) <= size {
				all = append(all, append(make([]byte, size-len(n)), n...))
			}
		}
	}
	return all
}
