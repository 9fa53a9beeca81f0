//go:build interop

package pyroscope

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/explain"
	"correlator/internal/out/keep"
)

// asked is the key of what a request asks.
type asked struct{}

// programs are those of `make fleet`: a Pyroscope, and a server of S3.
type programs struct {
	t        *testing.T
	deadline time.Time
	common   []string        // flags of all Pyroscopes
	given    map[string]bool // ports
}

// run starts a program, which ends with the test, or when it is told to.
func (p *programs) run(variable string, env []string, flags ...string) (end func()) {
	program := os.Getenv(variable)
	assert.Assert(p.t, program != "", "no program in %s: `make fleet` builds it", variable)
	command := exec.Command(program, flags...)
	command.Dir, command.Env = p.t.TempDir(), append(os.Environ(), env...)
	assert.NilError(p.t, command.Start())
	p.t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	return func() {
		command.Process.Signal(os.Interrupt)
		command.Wait()
	}
}

// free returns a port that nobody has, another one each time.
func (p *programs) free() (port string) {
	for port == "" || p.given[port] {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		assert.NilError(p.t, err)
		_, port, _ = net.SplitHostPort(listener.Addr().String())
		listener.Close()
	}
	p.given[port] = true
	return port
}

// pyroscope starts one with modules, and returns its address. It has one for all, and tells itself that of a network.
func (p *programs) pyroscope(modules string, env []string, flags ...string) (address string, end func()) {
	port := p.free()
	end = p.run("PYROSCOPE", env, slices.Concat([]string{"-target=" + modules, "-server.http-listen-port=" + port,
		"-self-profiling.disable-push=true", "-usage-stats.enabled=false"}, p.common, flags)...)
	return "127.0.0.1:" + port, end
}

func (p *programs) wait(what string, done func() bool) {
	for !done() {
		assert.Assert(p.t, time.Now().Before(p.deadline), "waiting for %s", what)
		time.Sleep(time.Second)
	}
}

func (p *programs) ready(addresses ...string) {
	for _, address := range addresses {
		p.wait(address+" to be ready", func() bool {
			response, err := http.Get("http://" + address + "/ready")
			if err != nil {
				return false
			}
			response.Body.Close()
			return response.StatusCode == http.StatusOK
		})
	}
}

// send sends what five hosts have sampled, two of them in the trace.
func (p *programs) send(to string) {
	generator := exec.Command("go", "run", "../../lab/fleet", "-to", "http://"+to, "-hosts", "5", "-of", "2",
		"-traces", "2")
	output, err := generator.CombinedOutput()
	assert.NilError(p.t, err, "%s", output)
}

// answers waits until the trace is told as it was recorded.
func (p *programs) answers(address string) {
	want, err := os.ReadFile(golden)
	assert.NilError(p.t, err)
	p.wait("the trace", func() bool {
		client, err := New("http://"+address, nil, "test")
		assert.NilError(p.t, err)
		var out, stderr bytes.Buffer
		err = explain.Run(p.t.Context(), client, &out, &stderr, explain.Options{Query: keep.Query{ID: testTrace},
			Format: explain.Table})
		p.t.Log(err, out.Len())
		return err == nil && strings.ReplaceAll(out.String(), "http://"+address, "URL") == string(want)
	})
}

// distributed returns what starts processes of one Pyroscope, with modules in each, over an object storage.
func distributed(t *testing.T) *programs {
	p := &programs{t: t, deadline: time.Now().Add(5 * time.Minute), given: make(map[string]bool)}
	storage := "127.0.0.1:" + p.free()
	p.run("S3", nil, "-backend", "memory", "-host", storage, "-initialbucket", "profiles")
	p.common = []string{"-storage.backend=s3", "-storage.s3.endpoint=" + storage, "-storage.s3.bucket-name=profiles",
		"-storage.s3.access-key-id=a", "-storage.s3.secret-access-key=b", "-storage.s3.insecure=true",
		"-storage.s3.bucket-lookup-type=path-style", "-memberlist.bind-addr=127.0.0.1",
		"-memberlist.advertise-addr=127.0.0.1"}
	for _, flag := range []string{"distributor.ring.instance-addr", "ingester.lifecycler.addr",
		"query-frontend.instance-addr", "query-scheduler.ring.instance-addr", "compactor.ring.instance-addr",
		"store-gateway.sharding-ring.instance-addr", "overrides-exporter.ring.instance-addr"} {
		p.common = append(p.common, "-"+flag+"=127.0.0.1")
	}
	return p
}

// member returns flags of a process among others: the first one's members are joined by those after it.
func (p *programs) member(first string) (flags []string, port string) {
	port = p.free()
	flags = []string{"-server.grpc-listen-port=0", "-memberlist.bind-port=" + port,
		"-memberlist.advertise-port=" + port}
	if first != "" {
		flags = append(flags, "-memberlist.join=127.0.0.1:"+first)
	}
	return flags, port
}

// A Pyroscope of several processes answers from its object storage, once those that took the profiles have ended.
func TestRealDistributed(t *testing.T) {
	p := distributed(t)
	p.common = append(p.common, "-store-gateway.sharding-ring.replication-factor=1", "-querier.query-store-after=0s",
		"-blocks-storage.bucket-store.ignore-blocks-within=0s", "-blocks-storage.bucket-store.sync-interval=5s",
		"-compactor.cleanup-interval=5s")
	flags, first := p.member("")
	distributor, _ := p.pyroscope("distributor", nil, flags...)
	start := func(module string) (string, func()) {
		flags, _ := p.member(first)
		return p.pyroscope(module, nil, flags...)
	}
	one, endOne := start("ingester")
	two, endTwo := start("ingester")
	addresses := []string{one, two, distributor}
	for _, module := range []string{"querier", "query-scheduler", "store-gateway", "compactor", "query-frontend"} {
		address, _ := start(module)
		addresses = append(addresses, address)
	}
	p.ready(addresses...)
	p.send(distributor)
	endOne()
	endTwo()
	empty, _ := start("ingester")
	p.ready(empty)
	p.answers(addresses[len(addresses)-1])
}

// So does one that writes segments (PYROSCOPE_V2), before they are compacted.
func TestRealSegments(t *testing.T) {
	p := distributed(t)
	metastore, backend, raft := "127.0.0.1:"+p.free(), "127.0.0.1:"+p.free(), "127.0.0.1:"+p.free()
	p.common = append(p.common, "-metastore.address="+metastore, "-query-backend.address="+backend,
		"-segment-writer.lifecycler.addr=127.0.0.1", "-segment-writer.min-ready-duration=1s",
		"-write-path=segment-writer", "-enable-query-backend=true")
	_, port, _ := net.SplitHostPort(metastore)
	_, backendPort, _ := net.SplitHostPort(backend)
	var addresses []string
	first := ""
	start := func(module string, more ...string) {
		flags, port := p.member(first)
		if first == "" {
			first = port
		}
		address, _ := p.pyroscope(module, []string{"PYROSCOPE_V2=1"}, append(flags, more...)...)
		addresses = append(addresses, address)
	}
	start("distributor")
	start("metastore", "-server.grpc-listen-port="+port, "-metastore.raft.bind-address="+raft,
		"-metastore.raft.server-id="+raft, "-metastore.raft.advertise-address="+raft)
	start("query-backend", "-server.grpc-listen-port="+backendPort)
	for range 2 {
		start("segment-writer", "-server.grpc-listen-port="+p.free())
	}
	start("query-frontend")
	p.ready(addresses...)
	p.send(addresses[0])
	p.answers(addresses[len(addresses)-1])
}

// A real Pyroscope, in PYROSCOPE, that five hosts have sent to answers as it did when its answers were recorded; with
// RECORD=1 they are recorded. `make fleet` builds it.
func TestReal(t *testing.T) {
	p := &programs{t: t, deadline: time.Now().Add(5 * time.Minute), given: make(map[string]bool)}
	dir := t.TempDir()
	address, _ := p.pyroscope("all", nil, "-server.grpc-listen-port=0", "-memberlist.bind-port=0",
		"-pyroscopedb.data-path="+dir, "-storage.filesystem.dir="+dir)
	p.ready(address)
	p.send(address)

	var mu sync.Mutex
	var all []exchange
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		defer mu.Unlock()
		all = append(all, exchange{r.Request.Context().Value(asked{}).(string), body})
		return err
	}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.Check(t, err == nil)
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), asked{}, requestKey(t, r.URL.Path, body))))
	})
	got := table(t, server.URL)
	if os.Getenv("RECORD") == "" {
		want, err := os.ReadFile(golden)
		assert.NilError(t, err)
		assert.Check(t, got == string(want), "%s", got)
		return
	}
	slices.SortFunc(all, func(a, b exchange) int { return strings.Compare(a.Request, b.Request) })
	var content bytes.Buffer
	z, err := gzip.NewWriterLevel(&content, gzip.BestCompression)
	assert.NilError(t, err)
	assert.NilError(t, json.NewEncoder(z).Encode(all))
	assert.NilError(t, z.Close())
	assert.NilError(t, os.WriteFile(recorded, content.Bytes(), 0o644))
	assert.NilError(t, os.WriteFile(golden, []byte(got), 0o644))
}
