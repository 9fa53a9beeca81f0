package receiver

import "strings"

// http2Preface is what begins a connection of HTTP/2 (RFC 9113, 3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frames follows the frames of HTTP/2 that a client sends (RFC 9113, 4.1): whether its headers have ended.
//
//	offset  size  field
//	0       3     length of what follows the head, big-endian
//	3       1     type: 1 HEADERS, 9 CONTINUATION
//	4       1     flags: 4 END_HEADERS, of both
//	5       4     stream
type frames struct {
	preface int  // bytes of it that were read
	other   bool // it is not HTTP/2
	head    [9]byte
	have    int  // bytes of head
	left    int  // bytes of the frame
	headers bool // they have begun
	ends    bool // with this frame
}

func (f *frames) read(b []byte) {
	for len(b) > 0 && !f.other {
		n := 0
		switch {
		case f.preface < len(http2Preface):
			n = min(len(b), len(http2Preface)-f.preface)
			f.other = !strings.HasPrefix(http2Preface[f.preface:], string(b[:n]))
			f.preface += n
		case f.left > 0:
			n = min(len(b), f.left)
			f.left -= n
		default:
			n = copy(f.head[f.have:], b)
			if f.have += n; f.have == len(f.head) {
				f.have, f.left = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
				f.headers, f.ends = f.isOfHeaders(), f.head[4]&4 != 0
			}
		}
		if f.left == 0 && f.ends {
			f.headers = false
		}
		b = b[n:]
	}
}

func (f *frames) isOfHeaders() bool { return f.head[3] == 1 || f.head[3] == 9 }

// endHeaders reports whether headers have begun and not ended, and takes them for ended.
func (f *frames) endHeaders() bool {
	cut := f.headers || f.have > 3 && f.isOfHeaders()
	f.headers, f.have = false, 0
	return cut
}
