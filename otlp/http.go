package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	colmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	colprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	coltrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"correlator/internal/host/textcut"
)

const (
	// protobufType is the media type of requests and responses.
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
	// maxErrorBody is how much of the body of a failure is read: a Status, or a page of a proxy.
	maxErrorBody = 64 << 10
	// maxHTTPHeaders is the largest header of a response that is read.
	maxHTTPHeaders = 64 << 10
	// idleConn is how long an idle connection is kept, as net/http's default transport keeps it.
	idleConn = 90 * time.Second
)

// httpTransport sends requests by HTTP, with protobuf (OTLP 1.11.0, "OTLP/HTTP"). It uses
// http.Transport without http.Client: redirects are not followed, since data and credentials are
// for the configured receiver alone, and there are no cookies.
type httpTransport struct {
	http    *http.Transport
	urls    [NumSignals]*url.URL
	signals []Signal
	headers [NumSignals]http.Header // of every request; nobody modifies them
	secrets *strings.Replacer
	timeout time.Duration
	gzip    *compressor // nil: none

	via       proxySetting
	anonymous bool // TLS without a client's certificate
}

// openHTTP is openTransport for OTLP/HTTP.
func openHTTP(
	d *Destination, where endpoint, via proxySetting, version string, gzip *compressor,
) (*httpTransport, error) {
	t := &httpTransport{secrets: d.Headers.secrets(), timeout: d.Timeout, via: via}
	header := make(http.Header)
	for k, v := range d.Headers {
		header.Set(k, v)
	}
	header.Set("Content-Type", protobufType)
	header.Set("User-Agent", userAgent(version))
	if d.Compression == Gzip {
		t.gzip = gzip
		header.Set("Content-Encoding", gzipName)
	}
	for s := range NumSignals {
		t.headers[s] = header
		if s == Profiles {
			t.headers[s] = header.Clone()
			t.headers[s].Set(ProfilesVersionKey, ProfilesVersion)
		}
		t.urls[s] = where.url(s, d.ExactURL)
		if d.Takes(s) {
			t.signals = append(t.signals, s)
		}
	}

	var config *tls.Config
	if where.tls {
		var err error
		if config, err = tlsConfig(d); err != nil {
			return nil, err
		}
		t.anonymous = d.ClientCertificate == ""
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true) // where TLS negotiates it
	t.http = &http.Transport{
		Proxy:                  http.ProxyURL(via.url),
		DialContext:            where.dialHTTP(d),
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    d.Timeout,
		DisableCompression:     true, // of responses: of OTLP they are a few bytes, and Caller bounds its own
		MaxIdleConnsPerHost:    d.Concurrency,
		MaxConnsPerHost:        d.Concurrency,
		IdleConnTimeout:        idleConn,
		MaxResponseHeaderBytes: maxHTTPHeaders,
		Protocols:              &protocols,
		// A connection to nowhere: HTTP/1.1 closes it when a request times out, HTTP/2 does not.
		HTTP2: &http.HTTP2Config{SendPingTimeout: d.Timeout, PingTimeout: d.Timeout},
	}
	return t, nil
}

// dialHTTP returns how connections are made.
func (e endpoint) dialHTTP(d *Destination) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		switch dialer := (&net.Dialer{Timeout: d.Timeout}); {
		case d.dial != nil:
			return d.dial(ctx, addr)
		case e.unix:
			return dialer.DialContext(ctx, "unix", e.host)
		default:
			return dialer.DialContext(ctx, network, addr)
		}
	}
}

func (t *httpTransport) close() { t.http.CloseIdleConnections() }

// tryConnect sends a request without data for each signal, each with the timeout. If nobody answers
// the first, it sends no more.
func (t *httpTransport) tryConnect(ctx context.Context) error {
	c, failed := t.newCall(ctx), new(SignalsError)
	var refused []string
	for _, s := range t.signals {
		b := NewBatch(s, nil, 0, time.Now())
		b.retain()
		r := c.export(b, false)
		if r.code == codes.OK && r.partial.rejected == 0 {
			failed.Partly = true
			continue
		}
		if r.code == codes.OK {
			r.message = fmt.Sprintf("%d items rejected, of none: %s", r.partial.rejected, r.partial.message)
		}
		failed.Signals = append(failed.Signals, s)
		text := fmt.Sprintf("sending a request without %v to %s: %s", s, t.urls[s], r.message)
		if r.code == codes.Unavailable && r.doubtful && t.anonymous {
			// With TLS 1.3 a client has sent its request when the server refuses its certificate, and
			// net/http may say "broken pipe".
			text += " (does the receiver require a client certificate?)"
		}
		refused = append(refused, text)
		if r.unanswered && !failed.Partly {
			break
		}
	}
	if len(refused) == 0 {
		return nil
	}
	failed.text = strings.Join(refused, "; ")
	return failed
}

// httpCall keeps what every request needs.
type httpCall struct {
	transport *httpTransport
	ctx       context.Context // calls connected
	connected bool            // the last request had a connection to be sent on
	result    result          // of the last request
}

func (t *httpTransport) newCall(ctx context.Context) call {
	c := &httpCall{transport: t}
	c.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected = true }, // called by RoundTrip itself
	})
	return c
}

func (c *httpCall) export(b *Batch, probe bool) *result {
	t, start := c.transport, time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, t.timeout)
	defer cancel()
	if probe {
		t.http.CloseIdleConnections() // they may lead nowhere
	}
	body := b.request
	if t.gzip != nil {
		body = b.compressed(t.gzip)
	}
	request := &http.Request{
		Method: http.MethodPost, URL: t.urls[b.signal], Header: t.headers[b.signal],
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		// For a connection that turns out to be closed before anything is written.
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}
	if len(body) == 0 {
		request.Body, request.GetBody = http.NoBody, nil // net/http takes 0 bytes for an unknown number
	}
	c.connected = false
	r := &c.result
	*r = result{}
	response, err := t.http.RoundTrip(request.WithContext(ctx))
	if err != nil {
		r.unanswered = true
		r.failed(ctx, err, c.connected)
	} else {
		r.readHTTP(ctx, response, b.signal, t.secrets)
		response.Body.Close()
	}
	r.took = time.Since(start)
	r.message = clip(t.secrets.Replace(r.message))
	if r.code != codes.OK {
		r.message += t.via.through()
	}
	r.partial.message = clip(t.secrets.Replace(r.partial.message))
	return r
}

// failed makes a result of an error that came instead of a response, or in the midst of one.
// connected: the request may have arrived.
func (r *result) failed(ctx context.Context, err error, connected bool) {
	r.code, r.message, r.doubtful = codes.Unavailable, err.Error(), connected
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.code = codes.DeadlineExceeded
	case ctx.Err() != nil:
		r.code = codes.Canceled
	}
}

// maxExcerpt is how much of an answer that is no response of OTLP is shown: enough to tell whose it
// is.
const maxExcerpt = 200

// readHTTP makes a result of a response. Delivered is what a receiver says that it has: a success
// whose body decodes as the response of the signal. That of a sign-in page or of another service
// does not. It is not sent again: whoever gives such answers may have it.
func (r *result) readHTTP(ctx context.Context, response *http.Response, s Signal, secrets *strings.Replacer) {
	contentType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode/100 != 2 {
		r.readFailure(response, contentType)
		return
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil:
		r.failed(ctx, fmt.Errorf("reading the response: %w", err), true)
	case len(body) > maxResponse:
		r.code, r.final, r.malformed = codes.ResourceExhausted, true, true
		r.message = fmt.Sprintf("the response is larger than %d bytes", maxResponse)
	default:
		var ok bool
		r.partial, ok = decodeHTTP(body, contentType, s)
		// JSON is no answer to a request with protobuf, but some receivers give it.
		r.malformed = !ok || contentType == jsonType
		excerpt := func() string {
			text := textcut.At(secrets.Replace(string(body[:min(len(body), maxErrorBody)])), maxExcerpt)
			return fmt.Sprintf("HTTP %d %s: %+q", response.StatusCode, http.StatusText(response.StatusCode), text)
		}
		switch {
		case !ok:
			r.code, r.message, r.partial = codes.Unknown, "no response of OTLP: "+excerpt(), partialSuccess{}
		case r.partial.rejected != 0 && (r.malformed || r.partial.message == ""):
			r.partial.message = excerpt()
		}
	}
}

// decodeHTTP reads the body of a success. One that is empty is a response without fields; no receiver rejects less than
// nothing.
func decodeHTTP(body []byte, contentType string, s Signal) (p partialSuccess, ok bool) {
	switch contentType {
	case protobufType, "application/protobuf", "application/octet-stream", "":
	case jsonType:
		var err error
		if body, err = fromJSON(body, s); err != nil {
			return p, false
		}
	default:
		return p, false
	}
	p, ok = decodeResponse(body)
	return p, ok && p.rejected >= 0
}

var errNoResponse = errors.New("none of the fields of a response")

// fromJSON returns a response in the encoding of protobuf. Fields of later versions are skipped, but an
// object that has others alone is not a response.
func fromJSON(body []byte, s Signal) ([]byte, error) {
	response := [NumSignals]proto.Message{
		Traces:   (*coltrace.ExportTraceServiceResponse)(nil),
		Metrics:  (*colmetrics.ExportMetricsServiceResponse)(nil),
		Profiles: (*colprofiles.ExportProfilesServiceResponse)(nil),
	}[s].ProtoReflect().New().Interface()
	if len(body) == 0 {
		return nil, nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, response); err != nil {
		return nil, err
	}
	rejected := [NumSignals][]string{
		Traces:   {"rejectedSpans", "rejected_spans"},
		Metrics:  {"rejectedDataPoints", "rejected_data_points"},
		Profiles: {"rejectedProfiles", "rejected_profiles"},
	}[s]
	partial, err := knownOf(body, "partialSuccess", "partial_success")
	if err == nil && partial != nil {
		_, err = knownOf(partial, append(rejected, "errorMessage", "error_message")...)
	}
	if err != nil {
		return nil, err
	}
	return proto.Marshal(response)
}

// knownOf returns the value of one of these keys of an object, nil of an empty one, or of null.
func knownOf(object []byte, keys ...string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil || len(fields) == 0 {
		return nil, err
	}
	for _, key := range keys {
		if value, is := fields[key]; is {
			return value, nil
		}
	}
	return nil, errNoResponse
}

// readFailure makes a result of a response that is not 2xx. What it means is in its status code
// alone, not in the Status that is its body.
func (r *result) readFailure(response *http.Response, contentType string) {
	code := response.StatusCode
	r.code = httpCode(code)
	r.final = code == http.StatusRequestEntityTooLarge // retry-resource-exhausted does not mean that
	r.message = strings.TrimSpace(fmt.Sprintf("HTTP %d %s", code, http.StatusText(code)))
	if code/100 == 3 {
		r.message += ": redirects are not followed"
	}
	if text := r.failureText(response.Body, contentType); text != "" {
		r.message += ": " + text
	}
	after := response.Header.Get("Retry-After")
	if statusCodes[r.code].verdict != verdictRetry || after == "" {
		return
	}
	now, err := http.ParseTime(response.Header.Get("Date")) // of the receiver's clock, as the other
	if err != nil {
		now = time.Now()
	}
	delay, ok := parseRetryAfter(after, now)
	r.malformed = r.malformed || !ok
	if delay >= 0 {
		r.retryInfo, r.delay = true, delay
	}
}

// failureText returns what the body of a failure says: the message of a Status, or text, which
// proxies write. What is broken off counts as far as it goes.
func (r *result) failureText(from io.Reader, contentType string) string {
	body, _ := io.ReadAll(io.LimitReader(from, maxErrorBody))
	switch contentType {
	case protobufType:
		var s status.Status
		r.malformed = proto.Unmarshal(body, &s) != nil
		return s.GetMessage()
	case "text/plain", jsonType:
		return strings.TrimSpace(string(body))
	default: // a page
		return ""
	}
}

// httpCode returns the code that means to a client, and to an operator, what a status code of
// HTTP other than 2xx means. 429, 502, 503 and 504 are those to retry after (OTLP 1.11.0,
// "Retryable Response Codes").
func httpCode(status int) codes.Code {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return codes.Unavailable
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented: // an unknown path
		return codes.Unimplemented
	case http.StatusRequestEntityTooLarge:
		return codes.ResourceExhausted
	}
	if status/100 == 5 {
		return codes.Internal
	}
	return codes.Unknown
}

// parseRetryAfter returns the delay of a Retry-After: seconds, or a date (RFC 9110, 10.2.3). It is
// negative if it is to be ignored; ok is false if it is out of range or neither.
func parseRetryAfter(value string, now time.Time) (delay time.Duration, ok bool) {
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 32)
		if err != nil || seconds > uint64(maxDelay/time.Second) {
			return maxDelay, false
		}
		return time.Duration(seconds) * time.Second, true
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return -1, false
	}
	delay = max(date.Sub(now), 0)
	return min(delay, maxDelay), delay <= maxDelay
}
