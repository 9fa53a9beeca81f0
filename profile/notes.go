package profile

import "encoding/binary"

const (
	noteHeaderBytes = 12 // sizeof(Elf64_Nhdr)
	noteNameGNU     = "GNU\x00"
	noteTypeBuildID = 3  // NT_GNU_BUILD_ID
	maxBuildIDBytes = 64 // linkers write 8 to 32; --build-id=0x... takes any number
)

// buildID returns the first GNU build id among notes, nil when there is none. A note of the kernel
// (Elf64_Nhdr in elf.h; little-endian, aligned to 4):
//
//	offset size field
//	     0    4 n_namesz
//	     4    4 n_descsz
//	     8    4 n_type
//	    12      name, padded; contents, padded
func buildID(notes []byte) []byte {
	for len(notes) >= noteHeaderBytes {
		nameLen := uint64(binary.LittleEndian.Uint32(notes[0:]))
		contentLen := uint64(binary.LittleEndian.Uint32(notes[4:]))
		kind := binary.LittleEndian.Uint32(notes[8:])

		content := noteHeaderBytes + padded(nameLen)
		end := content + contentLen
		if end > uint64(len(notes)) {
			return nil
		}
		if kind == noteTypeBuildID && string(notes[noteHeaderBytes:noteHeaderBytes+nameLen]) == noteNameGNU &&
			contentLen > 0 && contentLen <= maxBuildIDBytes {
			return notes[content:end]
		}
		notes = notes[min(content+padded(contentLen), uint64(len(notes))):]
	}
	return nil
}

func padded(n uint64) uint64 { return (n + 3) &^ 3 }
