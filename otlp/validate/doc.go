// Package validate says what is wrong with an encoded OTLP request, and leaves that out.
//
// Requests are never turned into messages: they are checked as the bytes that they are, by tables of the
// schema, and what is sound in them stays those bytes. So a request costs what its bytes cost, and not, like a
// list of empty messages, fifty times as much; and fields that are newer than this program get through. What
// is checked, in this order:
//
//	the protobuf encoding, UTF-8 included    the request cannot be decoded: an Error
//	the envelopes: resource and scope        all their items are rejected
//	each item: span, data point, profile     it is rejected, the others are kept
//	attribute lists                          what must be ignored is taken out
//
// Nobody who takes what was kept meets anything that is to be rejected; in particular no id of a wrong
// length, for which some receivers refuse a request as a whole.
package validate
