package otlp

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// cpuSeconds is the CPU time that this process has used.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// countingCodec does not decode requests: the receiver should cost little.
type countingCodec struct{ rawCodec }

func (countingCodec) Unmarshal(data mem.BufferSlice, _ any) error { return nil }

// BenchmarkExport sends batches that were encoded and compressed before to a receiver in a process
// of its own, over a Unix socket, 20 in flight. Sizes are those of 500 spans with 10 attributes,
// and 100 with 4.
func BenchmarkExport(b *testing.B) {
	for _, size := range []int{155_000, 20_000} {
		for _, compression := range []Compression{Gzip, None} {
			b.Run(fmt.Sprintf("%dkB/%s", size/1000, compression),
				func(b *testing.B) { benchmarkExport(b, size, compression) })
		}
	}
}

func benchmarkExport(b *testing.B, size int, compression Compression) {
	socket := filepath.Join(b.TempDir(), "s")
	startReceiver(b, socket)
	d := NewDestination("unix:" + socket)
	d.Compression, d.Concurrency, d.QueueBytes = compression, 20, 64<<20
	x, err := Open(Options{Destinations: []Destination{d}})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Shutdown(b.Context())

	// As compressible as telemetry is, 6 : 1 or so.
	body := make([]byte, size)
	words := make([][]byte, 256)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range words {
		words[i] = fmt.Appendf(nil, "attribute.%x", random.Uint64())
	}
	for at := 0; at < size; {
		at += copy(body[at:], words[random.IntN(len(words))])
	}
	request := NewBatch(Traces, body, 100, time.Now())
	request.compressed(&compressor{}) // once, as if the batch had gone elsewhere before

	b.ReportAllocs()
	b.SetBytes(int64(size))
	before := cpuSeconds(b)
	b.ResetTimer()
	for range b.N {
		batch := NewBatch(Traces, body, 100, time.Now())
		batch.once.Do(func() { batch.gzipped = request.gzipped })
		for queued(x) > 32<<20 {
			time.Sleep(100 * time.Microsecond)
		}
		x.Enqueue(batch)
	}
	for queued(x) > 0 {
		time.Sleep(100 * time.Microsecond)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/(cpuSeconds(b)-before), "batches/cpu-s")
	if s := x.Status()[0]; s.Sent != uint64(100*b.N) {
		b.Fatalf("%d items sent of %d: %s", s.Sent, 100*b.N, s.LastError)
	}
}

// queued returns the bytes that are not yet delivered.
func queued(x *Exporter) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.scheduler.destinations[0].bytes
}

// receiverEnv is set to the path of the socket in the process that is the receiver.
const receiverEnv = "CORRELATOR_TEST_OTLP_RECEIVER"

func TestMain(m *testing.M) {
	if socket := os.Getenv(receiverEnv); socket != "" {
		serveCounting(socket)
		return
	}
	os.Exit(m.Run())
}

// startReceiver runs the receiver until the end of the benchmark, and waits until it listens.
func startReceiver(b *testing.B, socket string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), receiverEnv+"="+socket)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		b.Fatalf("the receiver did not start: %v", err)
	}
}

// serveCounting is a receiver that answers at once, until its standard input ends.
func serveCounting(socket string) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(countingCodec{}), grpc.UnknownServiceHandler(
		func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(nil); err != nil {
				return err
			}
			return stream.SendMsg([]byte(nil))
		}))
	go server.Serve(listener)
	os.Stdout.WriteString("!")
	io.Copy(io.Discard, os.Stdin)
	server.Stop()
}
