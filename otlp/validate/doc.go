// Package validate checks encoded OTLP requests and removes what is invalid.
//
// Requests are never decoded into messages: they are checked in their encoded form, by a schema
// derived from the descriptors of the official messages, and what is valid keeps its bytes. So a
// request takes the memory of its bytes, and not fifty times as much, as a list of empty messages
// would; and fields that are newer than this program are passed on. The order of the checks is
//
//	the protobuf encoding, UTF-8 included    the request cannot be decoded: an Error
//	the envelopes: resource and scope        all their items are rejected
//	each item: span, data point, profile     it is rejected, the others are kept
//	attribute lists                          what must be ignored is removed
//
// What is kept contains nothing that would be rejected; in particular no id of a wrong length, for
// which some backends refuse the whole request.
package validate
