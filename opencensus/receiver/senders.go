package receiver

import (
	"slices"

	"correlator/opencensus/wire"
)

const (
	// maxProcesses is the number of processes of a connection that are told apart: the one that
	// connected, and children that it forked.
	maxProcesses = 32
	// maxVersionBytes is the length of the longest version of PHP that is kept. Real ones have up to
	// 40 bytes, with the suffix of a distribution.
	maxVersionBytes = 128
	// maxGap is the largest number of messages in a row that a client is believed to have lost: more
	// than one can send in a second. Beyond it the numbers begin anew, as those of the extension do,
	// which counts in a C int and goes on with numbers that are close to 1<<64.
	maxGap = 1 << 20
)

// senders are the processes of a connection, the last one that sent first.
type senders struct {
	account   account
	peer      peer
	php       string // of the last init of any of them
	processes []process
}

// process is one of the processes, by the number that it has for itself.
type process struct {
	pid      uint32
	sequence uint64 // of the last message
	from     *sender
}

// see notes the header of a message, and returns the process and the number of messages before it
// that the process could not send, or not completely.
func (s *senders) see(h *wire.Header) (c *process, gap uint64) {
	if i := s.find(h.PID); i < 0 {
		if len(s.processes) == 0 { // later ones are forked, and go on with numbers of another one
			gap = gapTo(0, h.Sequence)
		}
		s.add(h)
		return &s.processes[0], gap
	} else if i > 0 {
		found := s.processes[i]
		copy(s.processes[1:], s.processes[:i])
		s.processes[0] = found
	}
	c = &s.processes[0]
	before := c.sequence
	if h.Sequence <= before { // without the extension each request begins with 1
		before = 0
	}
	c.sequence = h.Sequence
	return c, gapTo(before, h.Sequence)
}

// gapTo returns how many numbers there are between two.
func gapTo(before, sequence uint64) uint64 {
	if sequence <= before || sequence-before-1 > maxGap {
		return 0
	}
	return sequence - before - 1
}

func (s *senders) find(pid uint32) int {
	return slices.IndexFunc(s.processes, func(p process) bool { return p.pid == pid })
}

// add adds a process in front. The one that has sent nothing for the longest time is forgotten if
// there are too many; when it sends again it is a new one.
func (s *senders) add(h *wire.Header) {
	if len(s.processes) == maxProcesses {
		s.processes = s.processes[:maxProcesses-1]
	}
	from := &sender{account: s.account, php: s.php, process: s.peer.process(h.PID)}
	s.processes = slices.Insert(s.processes, 0, process{h.PID, h.Sequence, from})
}

// setPHP sets the version of PHP that a process has, and those that have not said theirs.
func (s *senders) setPHP(c *process, version string) {
	if len(version) > maxVersionBytes {
		version = ""
	}
	s.php = version
	if c.from.php != version {
		c.from = &sender{account: s.account, php: version, process: c.from.process}
	}
}
