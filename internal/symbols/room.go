package symbols

import (
	"context"
	"io"
	"sync/atomic"
)

// Room is how much memory queries may still take together. It is safe for concurrent use.
type Room struct{ left atomic.Int64 }

// NewRoom returns room for so many bytes.
func NewRoom(lenBytes int64) *Room {
	r := &Room{}
	r.left.Store(lenBytes)
	return r
}

// take answers whether there was as much room, in all rooms.
func take(rooms []*Room, lenBytes int) bool {
	for i, r := range rooms {
		if r.left.Add(-int64(lenBytes)) >= 0 {
			continue
		}
		for _, taken := range rooms[:i+1] {
			taken.left.Add(int64(lenBytes))
		}
		return false
	}
	return true
}

// Until returns a reader of r which reads nothing more, with an error, when ctx has ended. A read that
// hangs is not interrupted.
func Until(ctx context.Context, r io.ReaderAt) io.ReaderAt { return until{ctx, r} }

type until struct {
	ctx context.Context
	r   io.ReaderAt
}

func (u until) ReadAt(b []byte, off int64) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.ReadAt(b, off)
}
