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
	encoding.RegisterCompressor(&passingCompressor{Compressor: encoding.GetCompressor(gzipName)})
}

// gzipMagic begins every gzip file. No Export request or response can begin so: it would be field 3
// with wire type 7, which does not exist.
var gzipMagic = []byte{0x1f, 0x8b}

// passingCompressor passes on what is gzip already, so that a batch is compressed once and not for
// every attempt. It compresses everything else (responses of a server in this process), and
// decompresses as grpc does.
type passingCompressor struct {
	encoding.Compressor
	pool sync.Pool // of *gzip.Writer
}

func (c *passingCompressor) Compress(w io.Writer) (io.WriteCloser, error) {
	return &passingWriter{pool: &c.pool, w: w}, nil
}

// passingWriter decides with the first two bytes.
type passingWriter struct {
	pool *sync.Pool
	w    io.Writer
	head []byte // while there are less than two
	gz   *gzip.Writer
	set  bool
}

func (w *passingWriter) Write(b []byte) (int, error) {
	n := len(b)
	if !w.set {
		if len(w.head) > 0 {
			b = append(w.head, b...)
		}
		if len(b) < len(gzipMagic) {
			w.head = bytes.Clone(b)
			return n, nil
		}
		w.decide(b)
	}
	var err error
	if w.gz != nil {
		_, err = w.gz.Write(b)
	} else {
		_, err = w.w.Write(b)
	}
	return n, err
}

func (w *passingWriter) decide(b []byte) {
	w.set = true
	if bytes.HasPrefix(b, gzipMagic) {
		return
	}
	gz, ok := w.pool.Get().(*gzip.Writer)
	if !ok {
		gz, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
	}
	gz.Reset(w.w)
	w.gz = gz
}

func (w *passingWriter) Close() error {
	if !w.set {
		w.decide(w.head)
		if _, err := w.gz.Write(w.head); err != nil {
			return err
		}
	}
	if w.gz == nil {
		return nil
	}
	err := w.gz.Close()
	w.pool.Put(w.gz)
	w.gz = nil
	return err
}

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
