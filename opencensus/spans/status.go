package spans

import "correlator/otlp/field"

// statusError is the only status of OTLP that is used (trace.proto); without a status it is unset.
const statusError = 2

// status appends the status. The client sends null or an empty object, as PHP's JSON leaves out
// what the status has; then an HTTP status code among the attributes decides.
//
//	code     status
//	0        unset
//	1 to 16  the canonical codes: error
//	>= 100   the status code of an HTTP response, which the client's request handler stores here
//	other    error
func (e *encoding) status(v value, kind spanKind, httpStatus int) {
	code, message := e.statusMembers(v)
	n, ok := integer(code)
	switch {
	case !ok:
		n, message = int64(httpStatus), nil
		fallthrough
	case n >= 100:
		if !(kind == server && n >= 500) && !(kind == client && n >= 400) {
			return
		}
	case n == 0:
		return
	}
	out, from := field.Begin(e.out, 15)
	if text := e.text(message); len(text) > 0 {
		out = field.Append(out, 2, text)
	}
	e.out = field.End(field.AppendVarint(out, 3, statusError), from)
}

// statusMembers returns the members of a status that are used.
func (e *encoding) statusMembers(v value) (code, message value) {
	if !v.hasContent() {
		return nil, nil
	}
	r := e.open(v)
	defer e.close()
	r.into(place{"code", &code}, place{"message", &message})
	return code, message
}
