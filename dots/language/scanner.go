package language

import (
	"strconv"
	"strings"
)

// tokenKind is the kind of a token; one of a single character is that character.
type tokenKind byte

const (
	endOfFile tokenKind = iota
	word                // an identifier
	number
	text    // a string
	doc     // a comment that documents what follows
	docBack // one that documents what precedes
)

// token is a part of the text.
type token struct {
	kind tokenKind
	text string // identifier, digits, comment without its marks, or string without escapes
	at   position
}

// String returns the token as messages name it.
func (t token) String() string {
	switch t.kind {
	case endOfFile:
		return "end of file"
	case word, number:
		return strconv.Quote(shorten(t.text))
	case text:
		return "string " + strconv.Quote(shorten(t.text))
	case doc, docBack:
		return "documentation"
	}
	return strconv.Quote(string(rune(t.kind)))
}

// shorten cuts what would make a message long.
func shorten(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// scanner splits a text into tokens.
type scanner struct {
	text string // what is left
	at   position
}

// advance passes n bytes.
func (s *scanner) advance(n int) {
	passed := s.text[:n]
	if lines := strings.Count(passed, "\n"); lines > 0 {
		s.at.line += lines
		s.at.column = n - strings.LastIndexByte(passed, '\n')
	} else {
		s.at.column += n
	}
	s.text = s.text[n:]
}

// next returns the next token.
func (s *scanner) next() (token, error) {
	if err := s.skipBlank(); err != nil {
		return token{}, err
	}
	t := token{at: s.at}
	if s.text == "" {
		return t, nil
	}
	n := 1
	switch c := s.text[0]; {
	case strings.HasPrefix(s.text, "//"):
		n = lineLen(s.text)
		t.kind, t.text = docOf(s.text[:n])
	case c == '"':
		quoted, err := strconv.QuotedPrefix(s.text)
		if err != nil {
			return t, s.at.errorf("string without end, or with a wrong escape")
		}
		n, t.kind = len(quoted), text
		t.text, _ = strconv.Unquote(quoted)
	case isLetter(c):
		n = lenOf(s.text, func(c byte) bool { return isLetter(c) || isDigit(c) })
		t.kind, t.text = word, s.text[:n]
	case isDigit(c):
		n = lenOf(s.text, isDigit)
		t.kind, t.text = number, s.text[:n]
	case strings.IndexByte("{}[]<>:;,=.-", c) >= 0:
		t.kind = tokenKind(c)
	default:
		return t, s.at.errorf("unexpected character %q", []rune(s.text[:min(len(s.text), 4)])[0])
	}
	s.advance(n)
	return t, nil
}

// skipBlank passes white space and comments that document nothing.
func (s *scanner) skipBlank() error {
	for {
		s.advance(lenOf(s.text, func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }))
		switch {
		case strings.HasPrefix(s.text, "/*"):
			end := strings.Index(s.text[2:], "*/")
			if end < 0 {
				return s.at.errorf("comment without end")
			}
			s.advance(2 + end + 2)
		case strings.HasPrefix(s.text, "//") && !strings.HasPrefix(s.text, "///") && !strings.HasPrefix(s.text, "//<"):
			s.advance(lineLen(s.text))
		default:
			return nil
		}
	}
}

// docOf splits a comment that documents something: the kind of its mark, and the text.
func docOf(comment string) (tokenKind, string) {
	for _, mark := range []string{"///<", "//<"} {
		if rest, is := strings.CutPrefix(comment, mark); is {
			return docBack, strings.TrimSpace(rest)
		}
	}
	return doc, strings.TrimSpace(strings.TrimLeft(comment, "/"))
}

func lineLen(s string) int {
	if end := strings.IndexByte(s, '\n'); end >= 0 {
		return end
	}
	return len(s)
}

// lenOf returns how many bytes a text begins with that belong to a class.
func lenOf(s string, class func(byte) bool) int {
	for i := range len(s) {
		if !class(s[i]) {
			return i
		}
	}
	return len(s)
}

func isLetter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
