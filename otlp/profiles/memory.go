package profiles

// memory has the tables of a request. They are reused for the next one, so that samples cost no
// allocation; none is larger than the largest request needed.
type memory struct {
	dictionary dictionary
	processes  []process
	resources  []byte
	byResource map[owner]int32
	samples    []sample
	points     []point
	identities map[identity]int32 // of samples
	scratch    []byte

	largest int // request in bytes since the memory was allocated
	small   int // requests in succession that needed much less
}

const (
	// keptBytes is the size of requests whose memory (less than 1 MB) is never freed.
	keptBytes = 128 << 10
	// muchLess is the factor by which requests must be smaller for the memory to be freed, and
	// shrinkAfter how many of them in succession: a minute of one every 5 seconds.
	muchLess, shrinkAfter = 4, 12
)

// reset empties the memory after a request of that size. The agent has 25 MB in all, and ordinary
// requests have 20 kB: the memory of a burst is freed after a while.
func (m *memory) reset(bytes int) {
	m.largest = max(m.largest, bytes)
	if m.largest > keptBytes && bytes < m.largest/muchLess {
		m.small++
	} else {
		m.small = 0
	}
	if m.small == shrinkAfter {
		*m = memory{}
	}
	if m.byResource == nil {
		m.byResource, m.identities = make(map[owner]int32), make(map[identity]int32)
	}
	m.dictionary.reset()
	m.processes, m.resources, m.samples, m.points = m.processes[:0], m.resources[:0], m.samples[:0], m.points[:0]
	clear(m.byResource)
	clear(m.identities)
}
