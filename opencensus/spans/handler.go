package spans

import "bytes"

// addOfHandler looks at an attribute of a span that the client's request handler adds to the root
// span, as text, and reports whether it has added it by other names:
//
//	client            OpenTelemetry's conventions
//	http.host         server.address, without port
//	http.method       http.request.method
//	http.path         url.path, url.query
//	http.port         server.port, an integer
//	http.status_code  http.response.status_code, an integer
//	http.user_agent   user_agent.original
//
// What is not a text of the expected form keeps its name.
func (e *encoding) addOfHandler(l *attributeList, key []byte, v value) bool {
	if len(key) < len("http.x") || string(key[:5]) != "http." {
		return false
	}
	if string(key) == "http.status_code" {
		l.httpStatus = smallDecimal(e.text(v))
	}
	if !e.options.TranslateAttributes {
		return false
	}
	text := e.text(v)
	switch string(key) {
	case "http.status_code":
		return e.addSmall(l, "http.response.status_code", text)
	case "http.port":
		return e.addSmall(l, "server.port", text)
	}
	if !v.isString() {
		return false
	}
	switch string(key) {
	case "http.host":
		addText(e, l, "server.address", withoutPort(text))
	case "http.method":
		addText(e, l, "http.request.method", text)
	case "http.path":
		path, query, _ := bytes.Cut(text, []byte("?"))
		addText(e, l, "url.path", path)
		if len(query) > 0 {
			addText(e, l, "url.query", query)
		}
	case "http.user_agent":
		addText(e, l, "user_agent.original", text)
	default:
		return false
	}
	return true
}

func (e *encoding) addSmall(l *attributeList, key string, text []byte) bool {
	n := smallDecimal(text)
	if n > 0 {
		e.addInt(l, key, int64(n))
	}
	return n > 0
}

// smallDecimal returns a decimal number of up to five digits, 0 for other text.
func smallDecimal(text []byte) int {
	n, ok := integer(value(text))
	if !ok || len(text) > 5 || n < 0 {
		return 0
	}
	return int(n)
}

// withoutPort returns the host of a Host header (RFC 9110): host, host:port, [IPv6] or [IPv6]:port.
func withoutPort(host []byte) []byte {
	if len(host) > 0 && host[0] == '[' {
		if end := bytes.IndexByte(host, ']'); end > 0 {
			return host[1:end]
		}
	}
	if colon := bytes.IndexByte(host, ':'); colon >= 0 && smallDecimal(host[colon+1:]) > 0 {
		return host[:colon]
	}
	return host
}
