// Package client writes messages as the OpenCensus clients of PHP do, for tests and benchmarks.
package client

import (
	"encoding/binary"
	"math"
	"time"

	"correlator/opencensus/wire"
)

// Client is a PHP process. Its methods append the next message to dst.
type Client struct {
	PID       uint32
	ThreadID  uint64
	Sequence  uint64           // of the last message
	Extension bool             // sequence numbers do not begin anew with each request
	Padded    bool             // StartTime is a binary32, as of a 32-bit platform
	Now       func() time.Time // nil: time.Now
	payload   []byte
}

// Message appends a message of any type, with any payload.
func (c *Client) Message(dst []byte, t wire.Type, payload []byte) []byte {
	c.Sequence++
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	dst = AppendHeader(dst, wire.Header{
		Type: t, Sequence: c.Sequence, PID: c.PID, ThreadID: c.ThreadID, Sent: now(), Padded: c.Padded,
		Length: uint64(len(payload)),
	})
	return append(dst, payload...)
}

// ProcessInit appends what the extension sends first.
func (c *Client) ProcessInit(dst []byte, php, zend string) []byte {
	return c.message(dst, wire.ProcessInit, AppendInit(c.payload[:0], wire.Init{Version: 1, PHP: php, Zend: zend}))
}

// ProcessShutdown appends what the extension sends last.
func (c *Client) ProcessShutdown(dst []byte) []byte { return c.Message(dst, wire.ProcessShutdown, nil) }

// RequestInit begins a request.
func (c *Client) RequestInit(dst []byte, php, zend string) []byte {
	if !c.Extension {
		c.Sequence = 0
	}
	return c.message(dst, wire.RequestInit, AppendInit(c.payload[:0], wire.Init{Version: 1, PHP: php, Zend: zend}))
}

// RequestShutdown ends a request. The userland client sends the trace export after it.
func (c *Client) RequestShutdown(dst []byte) []byte { return c.Message(dst, wire.RequestShutdown, nil) }

// TraceExport appends spans as JSON.
func (c *Client) TraceExport(dst []byte, json string) []byte {
	return c.message(dst, wire.TraceExport, append(c.payload[:0], json...))
}

// CreateMeasure appends a MeasureCreate.
func (c *Client) CreateMeasure(dst []byte, m wire.Measure) []byte {
	return c.message(dst, wire.MeasureCreate, AppendMeasure(c.payload[:0], m))
}

// SetReportingPeriod appends a ReportingPeriod.
func (c *Client) SetReportingPeriod(dst []byte, seconds float64) []byte {
	return c.message(dst, wire.ReportingPeriod, AppendPeriod(c.payload[:0], seconds))
}

// RegisterViews appends a ViewRegister.
func (c *Client) RegisterViews(dst []byte, views ...wire.View) []byte {
	return c.message(dst, wire.ViewRegister, AppendViews(c.payload[:0], views))
}

// UnregisterViews appends a ViewUnregister.
func (c *Client) UnregisterViews(dst []byte, names ...string) []byte {
	return c.message(dst, wire.ViewUnregister, AppendNames(c.payload[:0], names))
}

// Record appends a StatsRecord.
func (c *Client) Record(dst []byte, r *wire.Record) []byte {
	return c.message(dst, wire.StatsRecord, AppendRecord(c.payload[:0], r))
}

// message appends a message with a payload that was built in c.payload, whose memory it keeps.
func (c *Client) message(dst []byte, t wire.Type, payload []byte) []byte {
	c.payload = payload
	return c.Message(dst, t, payload)
}

// AppendHeader appends a header with any values.
func AppendHeader(dst []byte, h wire.Header) []byte {
	dst = append(dst, 0, 0, 0, 0, byte(h.Type))
	dst = binary.AppendUvarint(dst, h.Sequence)
	dst = binary.AppendUvarint(dst, uint64(h.PID))
	dst = binary.AppendUvarint(dst, h.ThreadID)
	seconds := float64(h.Sent.UnixMicro()) / 1e6
	if h.Padded {
		dst = append(dst, 0, 0)
		dst = binary.BigEndian.AppendUint32(dst, math.Float32bits(float32(seconds)))
		dst = append(dst, 0, 0)
	} else {
		dst = appendFloat(dst, seconds)
	}
	return binary.AppendUvarint(dst, h.Length)
}

// AppendInit appends the payload of ProcessInit and RequestInit.
func AppendInit(dst []byte, init wire.Init) []byte {
	dst = append(dst, init.Version)
	dst = appendString(dst, init.PHP)
	return appendString(dst, init.Zend)
}

// AppendMeasure appends the payload of MeasureCreate.
func AppendMeasure(dst []byte, m wire.Measure) []byte {
	dst = append(dst, byte(m.Type))
	dst = appendString(dst, m.Name)
	dst = appendString(dst, m.Description)
	return appendString(dst, m.Unit)
}

// AppendPeriod appends the payload of ReportingPeriod.
func AppendPeriod(dst []byte, seconds float64) []byte { return appendFloat(dst, seconds) }

// AppendViews appends the payload of ViewRegister.
func AppendViews(dst []byte, views []wire.View) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(views)))
	for _, v := range views {
		dst = appendString(dst, v.Name)
		dst = appendString(dst, v.Description)
		dst = AppendNames(dst, v.TagKeys)
		dst = appendString(dst, v.Measure)
		dst = binary.AppendUvarint(dst, uint64(v.Aggregation))
		if v.Aggregation == wire.Distribution {
			dst = binary.AppendUvarint(dst, uint64(len(v.Boundaries)))
			for _, boundary := range v.Boundaries {
				dst = appendFloat(dst, boundary)
			}
		}
	}
	return dst
}

// AppendNames appends the payload of ViewUnregister.
func AppendNames(dst []byte, names []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(names)))
	for _, name := range names {
		dst = appendString(dst, name)
	}
	return dst
}

// AppendRecord appends the payload of StatsRecord. Integers from 1<<63 on are what PHP has as
// negative ones: the clients write one byte of them.
func AppendRecord(dst []byte, r *wire.Record) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(r.Measurements)))
	for _, m := range r.Measurements {
		dst = appendString(dst, m.Measure)
		dst = append(dst, byte(m.Type))
		switch {
		case m.Type == wire.Int && m.Int > math.MaxInt64:
			dst = append(dst, byte(m.Int))
		case m.Type == wire.Int:
			dst = binary.AppendUvarint(dst, m.Int)
		case m.Type == wire.Float:
			dst = appendFloat(dst, m.Float)
		}
	}
	dst = appendKeyValues(dst, r.Tags)
	return appendKeyValues(dst, r.Attachments)
}

func appendKeyValues(dst []byte, pairs []wire.KeyValue) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(pairs)))
	for _, kv := range pairs {
		dst = appendString(dst, kv.Key)
		dst = appendString(dst, kv.Value)
	}
	return dst
}

func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendFloat(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(v))
}
