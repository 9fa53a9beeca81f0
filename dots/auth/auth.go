// Package auth computes the answer of a DOTS client to a broker's challenge.
//
//	A1       = SHA-256(client name "::" secret), 32 bytes
//	response = SHA-256(A1 ":" nonce ":" cnonce), as 64 lower-case hexadecimal digits
//
// nonce is the broker's challenge (DotsMsgHello.authChallenge) as 8 bytes, little-endian, and
// cnonce the client's part of it (DotsMsgConnect.cnonce), the characters as they are transmitted.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
)

// Response returns DotsMsgConnect.authChallengeResponse.
func Response(clientName, secret string, nonce uint64, cnonce string) string {
	d := digest(clientName, secret, nonce, cnonce)
	return hex.EncodeToString(d[:])
}

// Verify reports whether a response is the right one. One that is malformed is wrong. How long it
// takes does not depend on where the response differs. Digits of either case are accepted.
func Verify(response, clientName, secret string, nonce uint64, cnonce string) bool {
	want := digest(clientName, secret, nonce, cnonce)
	if len(response) != hex.EncodedLen(len(want)) {
		return false
	}
	got, err := hex.DecodeString(response)
	return err == nil && subtle.ConstantTimeCompare(got, want[:]) == 1
}

func digest(clientName, secret string, nonce uint64, cnonce string) [sha256.Size]byte {
	a1 := sha256.Sum256([]byte(clientName + "::" + secret))
	message := make([]byte, 0, len(a1)+10+len(cnonce))
	message = append(message, a1[:]...)
	message = append(message, ':')
	message = binary.LittleEndian.AppendUint64(message, nonce)
	message = append(message, ':')
	message = append(message, cnonce...)
	return sha256.Sum256(message)
}

// Nonce returns a challenge: a random number that is not zero, which stands for no challenge.
func Nonce() uint64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails: the program ends when the kernel has no random numbers
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// CNonce returns a client nonce as the other clients write it: 16 lower-case hexadecimal digits.
func CNonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
