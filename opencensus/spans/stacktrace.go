package spans

import (
	"strconv"

	"correlator/internal/host/textcut"
)

// maxFrames limits the frames of a stack trace that are used. They are innermost first.
const maxFrames = 128

// stackTrace reads the next value, and returns the attribute code.stacktrace: a line for each
// frame, as PHP prints its exceptions' traces. The bytes are valid until the next stack trace.
// Frames are objects as debug_backtrace returns them; every member but the function may be missing,
// and arguments may be there, which are not used. What has neither a file nor a function is no
// frame.
//
//	#0 /srv/shop/src/Cart.php(8): Shop\Repository->find()
//	#1 [internal function]: call_user_func_array()
func (e *encoding) stackTrace(r *reader) []byte {
	limit := max(e.options.MaxStackTraceBytes, 0)
	out, frames := e.trace[:0], 0
	for range r.elements {
		if frames == maxFrames || len(out) > limit || limit == 0 {
			r.value()
			continue
		}
		f := r.frame()
		if !f.file.isText() && !f.function.isText() {
			continue
		}
		if frames > 0 {
			out = append(out, '\n')
		}
		out = f.append(out, frames)
		frames++
	}
	e.trace = out
	return textcut.At(out, limit)
}

// frame are the members of a frame that are used.
type frame struct{ file, line, function, class, call value }

// frame reads the next value. Another one than an object has none of the members.
func (r *reader) frame() (f frame) {
	r.into(place{"file", &f.file}, place{"line", &f.line}, place{"function", &f.function},
		place{"class", &f.class}, place{"type", &f.call})
	return f
}

// append appends a frame as a line with its number.
func (f *frame) append(out []byte, number int) []byte {
	out = append(strconv.AppendInt(append(out, '#'), int64(number), 10), ' ')
	if f.file.isText() {
		out = appendText(out, f.file)
		if _, ok := integer(f.line); ok {
			out = append(append(append(out, '('), f.line...), ')')
		}
	} else {
		out = append(out, "[internal function]"...)
	}
	if !f.function.isText() {
		return out
	}
	out = append(out, ": "...)
	if f.class.isText() {
		out = appendText(out, f.class)
		if string(f.call) == `"->"` {
			out = append(out, "->"...)
		} else {
			out = append(out, "::"...)
		}
	}
	return append(appendText(out, f.function), "()"...)
}
