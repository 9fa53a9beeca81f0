package unwind

import (
	"encoding/binary"
	"math"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
)

// maxSentCode is of how many ranges of code the agent gets to know where they are in a process, so that it need not ask
// for the frames of words in them: 2 KB for each process. A JVM has some 30, what is seen there of others is asked for.
const maxSentCode = 64

// sentCodeBytes is what a sentCode takes in a message: four u64, little endian, in the order of the fields.
const sentCodeBytes = 32

// sentCode is where some of a file's code is in a process.
type sentCode struct {
	file       host.FileID
	start, end uint64
	bias       uint64 // address in memory less address in the file
}

// sentCode returns where the code of a process's files is, but for one whose words take more than that, and for those
// that there is no room for: of a file all places are known, or none.
func (h *handler) sentCode(pid libpf.PID, except host.FileID) (sent []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []sentCode
	for file, ranges := range h.ranges[pid] {
		if file == except {
			continue
		}
		first := len(all)
		for _, r := range ranges {
			start, end := r.prefix.Key, r.prefix.Key+1<<(64-r.prefix.Length)
			if last := len(all) - 1; last >= first && all[last].end == start && all[last].bias == r.bias {
				all[last].end = end
				continue
			}
			all = append(all, sentCode{file, start, end, r.bias})
		}
		if len(all) > maxSentCode {
			all = all[:first]
		}
	}
	for _, c := range all {
		for _, field := range []uint64{uint64(c.file), c.start, c.end, c.bias} {
			sent = binary.LittleEndian.AppendUint64(sent, field)
		}
	}
	return sent
}

func decodeSentCode(sent []byte) (all []sentCode, err error) {
	if len(sent)%sentCodeBytes != 0 || len(sent) > maxSentCode*sentCodeBytes {
		return nil, errAnswer
	}
	for field := range slices.Chunk(sent, sentCodeBytes) {
		at := func(i int) uint64 { return binary.LittleEndian.Uint64(field[8*i:]) }
		c := sentCode{host.FileID(at(0)), at(1), at(2), at(3)}
		if c.start >= c.end {
			return nil, errAnswer
		}
		all = append(all, c)
	}
	return all, nil
}

// Native returns what Frames does for a word of NextWord's, if that is of native code of which it is known where it is.
// It asks nobody.
func (e *Engine) Native(t *Target, word []uint64) (_ Named, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.known[t.KernelPID]
	w := libpf.EbpfFrame(word)
	if !k.ready || k.Program != t.Program || w.Flags().Error() || w.Type() != libpf.NativeFrame || len(w) < 2 {
		return Named{}, false
	}
	file, inFile := host.FileID(w.Variable(0)), w.Data()
	i := slices.IndexFunc(k.code, func(c sentCode) bool {
		return c.file == file && c.start <= inFile+c.bias && inFile+c.bias < c.end
	})
	if i < 0 {
		return Named{}, false
	}
	in, named := k.code[i], Named{Keep: true}
	addr := inFile + in.bias
	if !slices.ContainsFunc(k.code, func(c sentCode) bool { return c.file == file && c.bias != in.bias }) {
		named.Span.Down = uint32(min(addr-in.start, inFile, math.MaxUint32)) // else others may be there instead
		named.Span.Up = uint32(min(in.end-1-addr, math.MaxUint32))
	}
	if w.Flags().ReturnAddress() {
		addr--
	}
	named.Frames = []Frame{{Kind: NativeFrame, Address: addr}}
	return named, true
}
