package cbor

import (
	"bytes"
	"fmt"

	"correlator/dots/value"
)

// AppendAny appends an instance of any type: an array of the type's name and a byte string.
func AppendAny(dst []byte, v value.Any) []byte {
	dst = AppendString(AppendArray(dst, 2), v.TypeName)
	return AppendBytes(dst, v.Instance)
}

// Any reads an instance of any type. What it returns is a copy.
func (r *Reader) Any() (v value.Any) {
	if n := r.Array(); n != 2 && r.err == nil {
		r.Fail(fmt.Errorf("%d values instead of a name and an instance: %w", n, ErrRange))
	}
	v.TypeName = r.String()
	v.Instance = bytes.Clone(r.Bytes())
	return v
}
