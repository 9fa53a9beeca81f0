package backend

import (
	"encoding/binary"
	"math/bits"
)

// The primes of xxHash's specification, XXH64.
const (
	prime1 = 0x9E3779B185EBCA87
	prime2 = 0xC2B2AE3D27D4EB4F
	prime3 = 0x165667B19E3779F9
	prime4 = 0x85EBCA77C2B2AE63
	prime5 = 0x27D4EB2F165667C5
)

// XXH64 computes xxHash with 64 bits and the seed 0, as its specification describes it.
func XXH64(content []byte) uint64 {
	rest, hash := content, uint64(prime5)
	if len(rest) >= 32 {
		first, second := uint64(prime1), uint64(prime2) // their sum is larger than a constant may be
		lanes := [4]uint64{first + second, second, 0, -first}
		for ; len(rest) >= 32; rest = rest[32:] {
			for i := range lanes {
				lanes[i] = xxhRound(lanes[i], binary.LittleEndian.Uint64(rest[8*i:]))
			}
		}
		hash = 0
		for i, turn := range [...]int{1, 7, 12, 18} {
			hash += bits.RotateLeft64(lanes[i], turn)
		}
		for _, lane := range lanes {
			hash = (hash^xxhRound(0, lane))*prime1 + prime4
		}
	}
	hash += uint64(len(content))
	for ; len(rest) >= 8; rest = rest[8:] {
		hash = bits.RotateLeft64(hash^xxhRound(0, binary.LittleEndian.Uint64(rest)), 27)*prime1 + prime4
	}
	if len(rest) >= 4 {
		hash = bits.RotateLeft64(hash^uint64(binary.LittleEndian.Uint32(rest))*prime1, 23)*prime2 + prime3
		rest = rest[4:]
	}
	for _, b := range rest {
		hash = bits.RotateLeft64(hash^uint64(b)*prime5, 11) * prime1
	}
	hash = (hash ^ hash>>33) * prime2
	hash = (hash ^ hash>>29) * prime3
	return hash ^ hash>>32
}

func xxhRound(lane, input uint64) uint64 {
	return bits.RotateLeft64(lane+input*prime2, 31) * prime1
}
