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
)

// asked is the key of what a request asks.
type asked struct{}

// A real Pyroscope, in PYROSCOPE, that five hosts have sent to answers as it did when its answers were recorded; with
// RECORD=1 they are recorded. `make fleet` builds it.
func TestReal(t *testing.T) {
	program := os.Getenv("PYROSCOPE")
	assert.Assert(t, program != "", "no program: `make fleet` builds it")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address := listener.Addr().String() // it has one address for all, and tells itself that of a network
	listener.Close()
	_, port, _ := net.SplitHostPort(address)
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), program, "-server.http-listen-port="+port,
		"-server.grpc-listen-port=0", "-self-profiling.disable-push=true", "-usage-stats.enabled=false",
		"-memberlist.bind-port=0", "-pyroscopedb.data-path="+dir, "-storage.filesystem.dir="+dir)
	command.Dir = dir
	assert.NilError(t, command.Start())
	defer func() {
		command.Process.Kill()
		command.Wait()
	}()
	deadline := time.Now().Add(5 * time.Minute)
	wait := func(what string, done func() bool) {
		for !done() {
			assert.Assert(t, time.Now().Before(deadline), "waiting for %s", what)
			time.Sleep(time.Second)
		}
	}
	wait("it to be ready", func() bool {
		response, err := http.Get("http://" + address + "/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	generator := exec.Command("go", "run", "../../lab/fleet", "-to", "http://"+address, "-hosts", "5", "-of", "2",
		"-traces", "2")
	output, err := generator.CombinedOutput()
	assert.NilError(t, err, "%s", output)

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
