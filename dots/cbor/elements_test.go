package cbor

import (
	"errors"
	"testing"
)

func TestMemoryOfElements(t *testing.T) {
	// Arrays of 3, 1 and 0 elements, with something behind them.
	data := []byte{0x83, 1, 2, 3, 0x81, 4, 0x80, 5}
	tests := []struct {
		name  string
		size  int
		fails bool
	}{
		{"small", 1, false},
		{"all that is allowed", MaxElements / 4, false},
		{"too much together", MaxElements/4 + 1, true},
		{"too much at once", MaxElements/3 + 1, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := NewReader(data)
			for range 3 {
				for range r.ArrayOf(test.size) {
					r.Uint(8)
				}
			}
			if v := r.Uint(8); test.fails != errors.Is(r.Err(), ErrRange) || !test.fails && v != 5 {
				t.Errorf("read %d, error %v", v, r.Err())
			}
		})
	}
	r := NewReader([]byte{0x82, 1})
	if n := r.ArrayOf(1); n != 0 || !errors.Is(r.Err(), ErrShort) {
		t.Errorf("%d elements, error %v", n, r.Err())
	}
}
