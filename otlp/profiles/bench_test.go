package profiles

import (
	"bytes"
	"compress/gzip"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"correlator/profile"
)

// realistic are 1000 samples as two busy processes have them in ten seconds: 100 different stacks
// of 50 frames in eight files, half of the frames shared with the other stacks, 50 spans, 20
// threads.
func realistic() []profile.Sample {
	files := make([]*profile.File, 8)
	for i := range files {
		files[i] = &profile.File{
			ID: profile.FileID{byte(i + 1)}, Kind: profile.NativeFrame,
			BuildID: "0123456789abcdef0123456789abcdef0123456" + string(rune('0'+i)),
			Path:    "/usr/lib/x86_64-linux-gnu/lib" + string(rune('a'+i)) + ".so",
		}
	}
	files[0] = nil // code of a JIT
	processes := []*profile.Resource{shop, {Service: profile.Service{Name: "cart"}, PID: 43, ExecutableName: "java",
		ExecutablePath: "/usr/bin/java"}}
	stacks := make([][]profile.Frame, 100)
	for i := range stacks {
		for j := range 50 {
			f := profile.Frame{File: files[j/8%8], Address: uint64(j*4099 + 1_000_000)}
			if j < 25 {
				f.Address += uint64(i * 64)
			}
			if f.File == nil {
				f.Address += 0x7f0000000000
			}
			stacks[i] = append(stacks[i], f)
		}
	}
	samples := make([]profile.Sample, 1000)
	for i := range samples {
		stack := stacks[i*37%100]
		start := moment.Add(time.Duration(i/10) * 100 * time.Millisecond)
		samples[i] = profile.Sample{
			Resource: processes[i%2], Stack: &profile.Stack{ID: profile.TraceID(stack), Frames: stack}, Count: 1,
			TraceID: [16]byte{1, byte(i / 20)}, SpanID: [8]byte{2, byte(i / 20)},
			TransactionID: [8]byte{3, byte(i / 20)},
			TID:           100 + i%20, Thread: "worker-" + string(rune('a'+i%20)), Start: start,
			End: start.Add(100 * time.Millisecond),
		}
	}
	return samples
}

func BenchmarkBuilder(b *testing.B) {
	samples := realistic()
	var last Request
	builder := NewBuilder(testOptions(&counter{}), func(r Request) { last = r })
	b.ReportAllocs()
	for b.Loop() {
		for i := range samples {
			if err := builder.Add(&samples[i]); err != nil {
				b.Fatal(err)
			}
		}
		builder.Flush()
	}
	perSample := float64(len(samples))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perSample, "ns/sample")
	b.ReportMetric(float64(len(last.Body))/perSample, "B/sample")
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	w.Write(last.Body)
	w.Close()
	b.ReportMetric(float64(zipped.Len())/perSample, "gzipB/sample")
}

// BenchmarkAdd adds what an agent drains in 100 ms on a busy host, 20000 samples a second, with a
// request every five seconds: nearly all of it is of stacks and spans that the request has.
func BenchmarkAdd(b *testing.B) {
	samples := realistic()
	builder := NewBuilder(testOptions(&counter{}), func(Request) {})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s := &samples[n*7%len(samples)]
		s.Start = moment.Add(time.Duration(n/2000) * 100 * time.Millisecond)
		s.End = s.Start.Add(100 * time.Millisecond)
		if err := builder.Add(s); err != nil {
			b.Fatal(err)
		}
		if n++; n%100_000 == 0 {
			builder.Flush()
		}
	}
}

// BenchmarkMessages only encodes the same request from generated messages, which would have to be
// made before.
func BenchmarkMessages(b *testing.B) {
	samples := realistic()
	var body []byte
	builder := NewBuilder(testOptions(&counter{}), func(r Request) { body = r.Body })
	for i := range samples {
		if err := builder.Add(&samples[i]); err != nil {
			b.Fatal(err)
		}
	}
	builder.Flush()
	request := decode(b, body)
	b.ReportAllocs()
	for b.Loop() {
		again := proto.Clone(request) // stands for making them
		if _, err := proto.Marshal(again); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(samples)), "ns/sample")
}
