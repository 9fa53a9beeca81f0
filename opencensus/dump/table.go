package dump

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/host/textcut"
	"correlator/opencensus/wire"
)

// maxContent is how many bytes of a message's content a row is made from: the 256 columns that the
// table shows of it are no more.
const maxContent = 1 << 10

// content is the payload of a message as JSON, empty if it has none.
func content(m wire.Message) string {
	payload, err := decode(m)
	switch {
	case err != nil:
		return "(malformed: " + err.Error() + ")"
	case payload == nil:
		return ""
	case payload == spans(0) && len(m.Payload) == 0:
		return "empty: the client could not encode the spans"
	}
	var b bytes.Buffer
	appendJSON(&b, toJSON(payload))
	return textcut.At(strings.TrimSuffix(b.String(), "\n"), maxContent)
}

// rows prints a table. Each flush writes a table of its own, so cells are padded to usual widths
// for the columns to stay where they are.
type rows struct {
	table    *terminal.Table
	columns  []terminal.Column
	pending  bool
	messages int
	losses   []int // by reason
}

func newRows() *rows {
	columns := []terminal.Column{
		{Title: "    OFFSET", Right: true},
		{Title: "TYPE"},
		{Title: "   SEQ", Right: true},
		{Title: "    PID", Right: true},
		{Title: "THREAD", Right: true, Spare: 1},
		{Title: "SENT", Spare: 2},
		{Title: " LENGTH", Right: true},
		{Title: "CONTENT", Shrink: true},
	}
	return &rows{table: terminal.NewTable(columns...), columns: columns, losses: make([]int, wire.NoHeader+1)}
}

func (t *rows) message(m wire.Message) {
	t.messages++
	t.row(m.Offset, m.Header, content(m))
}

func (t *rows) loss(loss wire.Loss) {
	t.losses[loss.Reason]++
	t.row(loss.Offset, loss.Header, "("+describe(loss)+")")
}

func (t *rows) row(offset uint64, h wire.Header, content string) {
	const none = "-"
	cells := []string{
		fmt.Sprintf("%10d", offset), fmt.Sprintf("%-21s", none), fmt.Sprintf("%6s", none), fmt.Sprintf("%7s", none),
		fmt.Sprintf("%6s", none), fmt.Sprintf("%-27s", none), fmt.Sprintf("%7s", none), content,
	}
	if h.Type != 0 {
		cells[1] = fmt.Sprintf("%-21v", h.Type)
	}
	if h.Sequence > 0 { // the header is complete
		cells[2] = fmt.Sprintf("%6d", h.Sequence)
		cells[3] = fmt.Sprintf("%7d", h.PID)
		cells[4] = fmt.Sprintf("%6x", h.ThreadID)
		cells[5] = fmt.Sprintf("%-27s", sent(h))
		cells[6] = fmt.Sprintf("%7d", h.Length)
	}
	t.table.Row(cells...)
	t.pending = true
}

// sent is the time of a header: a padded one is exact to 128 s.
func sent(h wire.Header) string {
	if h.Padded {
		return "~" + h.Sent.Format(time.DateOnly+"T15:04Z")
	}
	return h.Sent.Format("2006-01-02T15:04:05.000000Z")
}

func (t *rows) flush(w io.Writer) error {
	if !t.pending {
		return nil
	}
	err := t.table.Write(w)
	for i := range t.columns { // the head is written once
		t.columns[i].Title = ""
	}
	t.table, t.pending = terminal.NewTable(t.columns...), false
	return err
}

func (t *rows) end(w io.Writer) error {
	summary := []string{fmt.Sprintf("messages: %d", t.messages)}
	for reason, n := range t.losses {
		if n > 0 {
			summary = append(summary, fmt.Sprintf("%v: %d", wire.Reason(reason), n))
		}
	}
	_, err := fmt.Fprintln(w, strings.Join(summary, ", "))
	return err
}

// describe says what was lost, and why.
func describe(loss wire.Loss) string {
	switch loss.Reason {
	case wire.Malformed:
		return "malformed: " + loss.Err.Error()
	case wire.Truncated:
		return fmt.Sprintf("truncated after %d bytes, header included", loss.Bytes)
	case wire.Oversize:
		return fmt.Sprintf("too large, %d bytes skipped", loss.Bytes)
	case wire.NoMemory:
		return fmt.Sprintf("no memory, %d bytes skipped", loss.Bytes)
	case wire.UnknownType:
		return fmt.Sprintf("unknown type, %d bytes skipped", loss.Bytes)
	default:
		return fmt.Sprintf("no valid header, %d bytes skipped", loss.Bytes)
	}
}
