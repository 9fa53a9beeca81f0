package elfsym

import (
	"crypto/sha256"
	"encoding/binary"
)

// hashPieceBytes is how much of each end of a file goes into its htlhash.
const hashPieceBytes = 4096

// htlHash is the first half of the SHA-256 of the file's first and last 4096 bytes (less when the
// file is shorter, so that they overlap) and its length as eight bytes big-endian.
func htlHash(p *pages) (hash [16]byte, err error) {
	piece := make([]byte, min(p.size, hashPieceBytes))
	sum := sha256.New()
	if err := p.read(0, piece); err != nil {
		return hash, err
	}
	sum.Write(piece)
	if p.size > hashPieceBytes {
		if err := p.source.read(p.size-hashPieceBytes, piece); err != nil {
			return hash, err
		}
	}
	sum.Write(piece)
	sum.Write(binary.BigEndian.AppendUint64(nil, p.size))
	copy(hash[:], sum.Sum(nil))
	return hash, nil
}
