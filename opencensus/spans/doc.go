// Package spans encodes the trace exports of OpenCensus's PHP clients, which are JSON, as OTLP
// spans. What it says of clients was observed of opencensus-php 0.7.0 and its extension 0.3.0,
// which encode the same objects.
//
// # Reading
//
// The JSON is read once, by jsontext, which checks it and finds the raw values of a span's members.
// From them the fields of the span are appended to the request, without a message or a map in
// between: strings and numbers are decoded where they are used, and only attributes, events, links
// and a status are read again. Nothing is allocated for usual exports. As a request with invalid
// text is refused as a whole, invalid UTF-8, which is allowed in the JSON, and surrogates without
// their other half become U+FFFD.
//
// A payload comes from a client, who may be hostile. Time and memory are in proportion to its size,
// and the encoded spans have at most five times its size, usually a half. Of a payload that is not
// valid JSON, or is nested deeper than the 10,000 levels of the library, no span is used. Otherwise
// each span is on its own: one that has no valid ids is dropped, and everything else that is not as
// expected counts as missing, except that numbers and booleans are taken where text is expected. Of
// members with the same name the last counts.
//
// # Spans
//
//	OTLP                  client
//	trace_id, span_id     hexadecimal without leading zeros
//	parent_span_id        the same; what is invalid, as headers of requests may make it, is none
//	flags                 sampled, and whether the parent is in another process, if that is known
//	name                  text; "unknown" if it is empty
//	kind                  the same names; others are internal
//	times                 dates in any time zone; those of spans that were not ended: see times
//	attributes            the same, of any types
//	code.stacktrace       the stack trace at the start of the span, as text
//	events, links         empty objects, of which the number is known: dropped counts
//	status                an empty object: the HTTP status code decides
//
// Attributes are unique: of two with the same key the last counts. They are left out, and counted,
// without a key, beyond 1024 of a list, nested deeper than 64 levels of the payload, and with a
// number larger than a float64 can be.
package spans
