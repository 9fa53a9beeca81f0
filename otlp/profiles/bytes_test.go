package profiles

import (
	"encoding/hex"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// A request with all that a sample can have, as it was written by hand from profiles.proto.
func TestBytesOfAllKinds(t *testing.T) {
	const kernelBuildID = "0123456789abcdef0123456789abcdef01234567"
	hash := fnv.New128a()
	hash.Write([]byte(kernelBuildID))
	kernel := &profile.File{ID: profile.FileID(hash.Sum(nil)), Kind: profile.KernelFrame, BuildID: kernelBuildID,
		Path: "vmlinux"}
	vdso := &profile.File{ID: profile.FileID([]byte(strings.Repeat("\xf0", 16))), Kind: profile.NativeFrame,
		Path: "[vdso]", Code: []profile.CodeRange{{Start: 0x800, Limit: 0x1800, Offset: 0x400}}}
	sample := profile.Sample{
		Resource: &profile.Resource{PID: 300}, Count: 1, Start: time.Unix(0, 256), End: time.Unix(0, 258),
		Stack: stackOf(
			profile.Frame{File: kernel, Address: 0x1234}, profile.Frame{File: library, Address: 4096},
			profile.Frame{File: vdso, Address: 0x8ab}, profile.Frame{Address: 140000000000000},
			profile.Frame{File: library, Address: 8191},
			profile.NewJVMFrame(profile.NewFunction("shop.Checkout.pay", "Checkout.java"), 42), profile.NewCutFrame(),
		),
		TraceID:       [16]byte([]byte("\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf")),
		SpanID:        [8]byte([]byte("\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7")),
		TransactionID: [8]byte([]byte("\xc0\xc1\xc2\xc3\xc4\xc5\xc6\xc7")),
		TID:           301, Thread: "main",
	}
	// Computed by the definition, apart from this code.
	const id = "026b4b928d58a1151e61f9f0d477cdbb"
	assert.Check(t, hex.EncodeToString(sample.Stack.ID[:]) == id,
		"profile.TraceID is %x, want %s", sample.Stack.ID[:], id)
	again := sample // in the next interval, in the transaction itself
	again.SpanID, again.Count, again.Start, again.End = [8]byte{}, 1, sample.End, sample.End.Add(2)
	outside := sample // of any trace
	outside.TraceID = [16]byte{}

	b, requests := collect(Options{SamplesPerSecond: 20, Random: &counter{}})
	for _, s := range []profile.Sample{sample, again, again, outside} {
		assert.NilError(t, b.Add(&s))
	}
	b.Flush()
	text := func(s string) string { return hex.EncodeToString([]byte(s)) }
	attribute := func(key, value string) string { // of a text of 32 or 40 bytes
		return key + "12" + hex.EncodeToString([]byte{byte(len(value) + 2)}) + "0a" +
			hex.EncodeToString([]byte{byte(len(value))}) + text(value)
	}
	htlhash := func(id string) string { return "32 26 " + attribute("08 06", id) }
	want := strings.Join([]string{
		"0a ec01", // resource_profiles
		"  0a 14   0a 12   0a 0b", text("process.pid"), "12 03 18 ac02",
		"  12 aa01", // scope_profiles
		"    0a 0c 0a 0a", text("correlator"),
		"    12 71", // profiles
		"      0a 04 08 01 10 02",
		"      2a 04 08 03 10 04",
		"      30 80e1eb17",
		"      19 0001000000000000",
		"      20 04",
		"      12 13   08 01   12 03 0a 0b 0c   18 01   2a 08 0101000000000000",
		"      12 1a   08 01   12 02 0a 0b   18 02   2a 10 0301000000000000 0301000000000000",
		"      12 10   08 01   12 02 0a 0b            2a 08 0101000000000000",
		"      3a 10 01010101010101010101010101010101",
		"    1a 27", text(schemaURL),
		"  1a 27", text(schemaURL),
		"12 e805", // dictionary
		"  0a 00",
		"  0a 06   20 05   2a 02 01 02", // vmlinux
		"  0a 06   20 09   2a 02 04 05", // libjvm.so
		"  0a 0e   08 8010   10 8030   18 8008   20 0a   2a 01 07", // vDSO: without build id, with its code
		"  12 00",
		"  12 08   08 01   10 b424            22 01 03",
		"  12 08   08 02   10 8020            22 01 06",
		"  12 08   08 03   10 ab11            22 01 06",
		"  12 0b            10 808093d2c4ea1f   22 01 06",
		"  12 08   08 02   10 ff3f            22 01 06",
		"  12 0b            10 2a   1a 04 08 01 10 2a   22 01 08",
		"  12 09            10 01   1a 02 08 02         22 01 09",
		"  1a 00   1a 04 08 0b 18 0c   1a 02 08 0d",
		"  22 00",
		"  22 1c   0a 10 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf   12 08 b0b1b2b3b4b5b6b7",
		"  22 1c   0a 10 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf   12 08 c0c1c2c3c4c5c6c7",
		"  2a 00   2a 07", text("samples"), "2a 05", text("count"), "2a 03", text("cpu"), "2a 0b", text("nanoseconds"),
		"  2a 07", text("vmlinux"), // 5
		"  2a 23", text("process.executable.build_id.htlhash"), "2a 1f", text("process.executable.build_id.gnu"),
		"  2a 12", text("profile.frame.type"), // 8
		"  2a 12", text("/usr/lib/libjvm.so"), "2a 06", text("[vdso]"),
		"  2a 11", text("shop.Checkout.pay"), "2a 0d", text("Checkout.java"), "2a 11", text("[stack truncated]"), // 11
		"  2a 09", text("thread.id"), "2a 0b", text("thread.name"), "2a 0e", text("transaction.id"), // 14
		"  32 00",
		htlhash("f6cf2d06749cb9374148c3a96ca80ac5"), // 1
		"  32 2e", attribute("08 07", kernelBuildID),
		"  32 0c", attribute("08 08", "kernel"),
		htlhash("000102030405060708090a0b0c0d0e0f"), // 4
		"  32 0c", attribute("08 07", "0a0b0c"),
		"  32 0c", attribute("08 08", "native"),
		htlhash("f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0"), // 7
		"  32 09", attribute("08 08", "jvm"),
		"  32 12", attribute("08 08", "abort-marker"),
		"  32 07   08 0e   12 03 18 ad02", // 10
		"  32 0a", attribute("08 0f", "main"),
		"  32 16", attribute("08 10", "c0c1c2c3c4c5c6c7"),
		"  3a 00",
		"  3a 09   0a 07 01 02 03 04 05 06 07",
	}, "")
	want = strings.ReplaceAll(want, " ", "")
	got := hex.EncodeToString((*requests)[0].Body)
	assert.Check(t, got == want, "%s\nwant %s", got, want)
	d := decode(t, (*requests)[0].Body).Dictionary
	if got := stackTraceID(t, d, d.StackTable[1]); hex.EncodeToString(got[:]) != id {
		t.Errorf("of the bytes: %x, want %s", got, id)
	}
}
