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

// grpc takes compressors from a registry of the process, and only while it is initialized. Importing its
// own gzip makes sure that ours comes later, which is the one that counts.
func init() {
	encoding.RegisterCompressor(&passingCompressor{Compressor: encoding.GetCompressor(gzipName)})
}

// gzipMagic begins every gzip file. No Export request or response can begin so: it would be field 3 with
// wire type 7, which there is not.
var gzipMagic = []byte{0x1f, 0x8b}

// passingCompressor passes on what is gzip already, so that a batch is compressed once and not for every
// attempt. It compresses everything else (answers of a server in this process), and decompresses as grpc does.
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
