package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"correlator/internal/host/textcut"
)

// Caller asks what listens at a URL something else than to take data, as an exporter would send it that: with headers,
// TLS and proxies, and without following redirects. It is safe for concurrent use.
type Caller struct {
	http *httpTransport
	base *url.URL
}

// OpenCaller returns a Caller, which makes no connection yet. The timeout is that of one request.
func OpenCaller(endpoint string, headers Headers, timeout time.Duration, version string) (*Caller, error) {
	d := NewDestination(endpoint)
	d.Protocol, d.Compression, d.Headers, d.Timeout = HTTPProtobuf, None, headers, timeout
	if err := d.Validate(); err != nil {
		return nil, err
	}
	t, err := openTransport(&d, version, nil)
	if err != nil {
		return nil, err
	}
	where, err := d.parseEndpoint()
	return &Caller{t.(*httpTransport), where.url(Profiles, true)}, err
}

// Close closes the connections.
func (c *Caller) Close() { c.http.close() }

// Post sends a request to a path below the URL, and returns the body of its answer, of at most so many bytes. An error
// says where it was sent, and how an answer begins that is none. Of a secret it has nothing.
func (c *Caller) Post(ctx context.Context, path, contentType string, body []byte, most int64) ([]byte, error) {
	to := c.base.JoinPath(path)
	answer, err := c.post(ctx, to, contentType, body, most)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %s%s", to, clip(c.http.secrets.Replace(err.Error())), c.http.via.through())
	}
	return answer, nil
}

func (c *Caller) post(ctx context.Context, to *url.URL, contentType string, body []byte, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.http.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = c.http.headers[Metrics].Clone()
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.http.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // what was read of it counts
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
		return nil, fmt.Errorf("HTTP %d %s: %+q", response.StatusCode, http.StatusText(response.StatusCode),
			textcut.At(c.http.secrets.Replace(string(text)), maxExcerpt))
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", err)
	case int64(len(answer)) > most:
		return nil, fmt.Errorf("the answer is larger than %d bytes", most)
	}
	return answer, nil
}
