package otlp

import (
	"context"
	"net"
)

// maxResponse is the largest response that is read, also after decompression. Most are empty.
const maxResponse = 4 << 20

// transport sends requests to one destination, by one protocol. It has no queue and does not retry.
type transport interface {
	// newCall returns a call whose requests are cancelled with ctx.
	newCall(ctx context.Context) call
	// tryConnect returns why requests would not reach the destination.
	tryConnect(ctx context.Context) error
	close()
}

// call sends batches over a transport, one at a time.
type call interface {
	// export sends a batch once and waits for the response, at most for the timeout. A probe comes
	// after a failure: it does not wait for what the protocol's implementation thinks of the
	// connection. The result is valid until the next call.
	export(b *Batch, probe bool) *result
}

// dialer makes connections; nil is the protocol's own.
type dialer func(ctx context.Context, target string) (net.Conn, error)

// openTransport prepares a connection, which is made when the first request needs it. Certificates,
// and the variables that the protocols' implementations read, are read now. d must be valid.
func openTransport(d *Destination, version string, gzip *compressor) (transport, error) {
	where, err := d.parseEndpoint()
	if err != nil {
		return nil, err
	}
	via, err := where.proxy(d.Protocol)
	if err != nil {
		return nil, err
	}
	if err := checkResolver(); err != nil {
		return nil, err
	}
	if d.Protocol == HTTPProtobuf {
		return openHTTP(d, where, via, version, gzip)
	}
	return openGRPC(d, where, via, version, gzip)
}

// TryOpen returns why an exporter could not be opened for a destination: files, or variables that
// the protocol's implementation reads. It makes no connection.
func TryOpen(d Destination, version string) error {
	if err := d.Validate(); err != nil {
		return err
	}
	t, err := openTransport(&d, version, &compressor{})
	if err == nil {
		t.close()
	}
	return err
}

func userAgent(version string) string {
	return "correlator/" + version + " OTel-OTLP-Exporter-Go/" + version
}

// TryConnect makes a connection to a destination as an exporter would, with its TLS, and closes it.
// By HTTP it sends a request without data for each signal of the destination, which receivers
// accept (OTLP 1.11.0, "Full Success"), and returns *SignalsError if one is not accepted. By gRPC it
// sends none.
func TryConnect(ctx context.Context, d Destination, version string) error {
	if err := d.Validate(); err != nil {
		return err
	}
	t, err := openTransport(&d, version, &compressor{})
	if err != nil {
		return err
	}
	defer t.close()
	return t.tryConnect(ctx)
}

// SignalsError is which signals a destination does not accept.
type SignalsError struct {
	Signals []Signal
	Partly  bool // it accepts others
	text    string
}

func (e *SignalsError) Error() string { return e.text }
