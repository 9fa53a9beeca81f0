package otlp

import (
	"bytes"
	"compress/gzip"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
)

const gzipName = grpcgzip.Name

// grpc has one registry of compressors per process, which may only be changed by init functions.
// The import of its own gzip makes ours the later one, which counts.
func init() {
	_ = grpcgzip.SetLevel(gzip.BestSpeed) // a valid level
	encoding.RegisterCompressor(passingCompressor{encoding.GetCompressor(gzipName)})
}

// gzipMagic begins every gzip file. No Export request or response can begin so: it would be field 3
// with wire type 7, which does not exist.
var gzipMagic = []byte{0x1f, 0x8b}

// passingCompressor passes on what is gzip already, so that a batch is compressed once and not for
// every attempt. It compresses everything else (responses of a server in this process), and
// decompresses as grpc does.
type passingCompressor struct{ encoding.Compressor }

func (c passingCompressor) Compress(w io.Writer) (io.WriteCloser, error) {
	return &passingWriter{below: c.Compressor, w: w}, nil
}

// passingWriter decides with the first bytes, which are there when it is closed at the latest.
type passingWriter struct {
	below encoding.Compressor
	w     io.Writer
	head  []byte         // at most as many as gzipMagic has
	to    io.WriteCloser // nil until that is known
}

func (w *passingWriter) Write(b []byte) (int, error) {
	n := len(b)
	if w.to == nil {
		missing := min(len(gzipMagic)-len(w.head), n)
		w.head, b = append(w.head, b[:missing]...), b[missing:]
		if len(w.head) < len(gzipMagic) {
			return n, nil
		} else if err := w.begin(); err != nil {
			return 0, err
		}
	}
	_, err := w.to.Write(b)
	return n, err
}

func (w *passingWriter) begin() (err error) {
	if bytes.HasPrefix(w.head, gzipMagic) {
		w.to = passed{w.w}
	} else if w.to, err = w.below.Compress(w.w); err != nil {
		return err
	}
	_, err = w.to.Write(w.head)
	return err
}

func (w *passingWriter) Close() error {
	if w.to == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	return w.to.Close()
}

// passed is a writer with nothing to close.
type passed struct{ io.Writer }

func (passed) Close() error { return nil }

// compressor compresses one batch at a time: the state of a writer is about 1 MB, and a batch is
// compressed only once.
type compressor struct {
	mu  sync.Mutex
	w   *gzip.Writer
	out bytes.Buffer
}

// maxScratch is the largest output buffer that is kept: enough for a batch of the usual size.
const maxScratch = 256 << 10

func (c *compressor) compress(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Reset()
	if c.w == nil {
		// Level 1: the others cost several times the CPU for a few percent. The level is valid.
		c.w, _ = gzip.NewWriterLevel(&c.out, gzip.BestSpeed)
	} else {
		c.w.Reset(&c.out)
	}
	// Writing to memory cannot fail.
	_, _ = c.w.Write(b)
	c.w.Close()
	gz := bytes.Clone(c.out.Bytes())
	if c.out.Cap() > maxScratch {
		c.out = bytes.Buffer{}
	}
	return gz
}
