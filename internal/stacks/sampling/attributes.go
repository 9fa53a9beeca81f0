package sampling

import (
	"encoding/hex"
	"slices"

	"correlator/profile"
)

// localRootSpan is the attribute of Datadog's agents that says in which span, of those in its process,
// the thread's work began: 16 lower-case hexadecimal digits. That is what Elastic calls a transaction.
const localRootSpan = "datadog.local_root_span_id"

// decodeAttributes decodes the attributes of a record of OpenTelemetry's (OTEP 4947), one after the
// other, and what they say of the transaction. Those whose index is not in keys, or has no key there, are left out; of
// several with the same index the last counts.
//
//	size  field
//	   1  index of the key in the process's key map
//	   1  length
//	   n  value
func decodeAttributes(raw []byte, keys []string) (attributes profile.Attributes, transaction [8]byte) {
	var list []profile.Attribute
	for len(raw) >= 2 {
		index, length := int(raw[0]), int(raw[1])
		if raw = raw[2:]; length > len(raw) {
			break
		}
		if value := string(raw[:length]); index < len(keys) && keys[index] != "" {
			list = append(list, profile.Attribute{Key: keys[index], Value: value})
		}
		raw = raw[length:]
	}
	attributes = profile.NewAttributes(list)
	for key, value := range attributes.All() {
		if key != localRootSpan {
			continue
		}
		if id, err := hex.DecodeString(value); err == nil && len(id) == len(transaction) {
			transaction = [8]byte(id)
		}
	}
	return attributes, transaction
}

// TransactionID returns what the attributes of a record that was read elsewhere say of the transaction,
// if that is wanted: as of samples.
func TransactionID(raw []byte, keys, wanted []string) (transaction [8]byte) {
	if slices.Contains(wanted, localRootSpan) {
		_, transaction = decodeAttributes(raw, keys)
	}
	return transaction
}
