package wire

// FeedCounting is Feed; it returns how many bytes searches have looked at.
func (s *Splitter) FeedCounting(p []byte, deliver func(Message)) (int, error) {
	allowed := min(s.work+workPerByte*len(p)+workPerFeed, maxWork)
	err := s.Feed(p, deliver)
	return allowed - s.work, err
}

// Check checks a payload.
func Check(t Type, p []byte) error { return check(&Header{Type: t}, p) }
