package frame

import (
	"encoding/binary"
	"math"

	"correlator/dots/value"
)

// decodeUsual decodes a header whose values have the forms that all known senders write, without
// the overhead of a Reader. It returns 0 for any other header, be it wrong or only unusual.
func (h *Header) decodeUsual(data []byte) (n int) {
	if len(data) == 0 || data[0]^0xa0 >= 24 {
		return 0
	}
	set := value.PropertySet(0)
	pos := 1
	for left := data[0] ^ 0xa0; left > 0; left-- {
		rest := data[pos:]
		if len(rest) < 2 {
			return 0
		}
		tag, first := rest[0], rest[1]
		size := 2
		switch tag {
		case 1:
			size += int(first ^ 0x60)
			if first^0x60 >= 24 || len(rest) < size {
				return 0
			}
			h.TypeName = rest[2:size:size]
		case 2, 7:
			size = 10
			if first != 0xfb || len(rest) < size {
				return 0
			}
			t := value.Timepoint(math.Float64frombits(binary.BigEndian.Uint64(rest[2:])))
			if tag == 2 {
				h.SentTime = t
			} else {
				h.ServerSentTime = t
			}
		case 4, 6:
			if first&^1 != 0xf4 {
				return 0
			}
			if tag == 4 {
				h.RemoveObj = first == 0xf5
			} else {
				h.IsFromMyself = first == 0xf5
			}
		case 3, 5, 8, 9:
			v := uint32(first)
			switch {
			case first < 24:
			case first == 24 && len(rest) >= 3:
				v, size = uint32(rest[2]), 3
			case first == 25 && len(rest) >= 4:
				v, size = uint32(binary.BigEndian.Uint16(rest[2:])), 4
			case first == 26 && len(rest) >= 6:
				v, size = binary.BigEndian.Uint32(rest[2:]), 6
			default:
				return 0
			}
			h.setNumber(tag, v)
		default:
			return 0
		}
		set |= 1 << tag
		pos += size
	}
	if set&TypeName == 0 {
		return 0
	}
	h.Set = set
	return pos
}

func (h *Header) setNumber(tag byte, v uint32) {
	switch tag {
	case 3:
		h.Attributes = value.PropertySet(v)
	case 5:
		h.Sender = v
	case 8:
		h.FromCache = v
	case 9:
		h.SubscriptionID = v
	}
}
