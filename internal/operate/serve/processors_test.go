package serve

import (
	"os"
	"runtime"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/operate/config"
	"correlator/internal/out/live"
)

// Goroutines have one CPU, unless others send much, or the environment says how many they have.
func TestLimitProcessors(t *testing.T) {
	const most = 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(most))
	var receives, clients, fed config.Config
	fed.Samplers.FeedSocket = "/x"
	receives.Export.Receiver.Listen = "127.0.0.1:0"
	clients.Export.OpenCensus.Receiver.Socket = "/x"
	for _, c := range []struct {
		name   string
		config config.Config
		set    bool
		want   int
	}{
		{"an agent", config.Default(), false, 1},
		{"the environment", config.Default(), true, most},
		{"another sampler", fed, false, most},
		{"OTLP comes in", receives, false, most},
		{"clients of OpenCensus", clients, false, most},
		{"the live view", config.Config{LiveView: live.Config{Listen: []string{"uds:/x"}}}, false, most},
	} {
		runtime.GOMAXPROCS(most)
		t.Setenv("GOMAXPROCS", "3") // which restores it
		if !c.set {
			os.Unsetenv("GOMAXPROCS")
		}
		limitProcessors(&c.config)
		assert.Check(t, runtime.GOMAXPROCS(0) == c.want, "%s: %d", c.name, runtime.GOMAXPROCS(0))
	}
	for _, c := range [][3]int{{20, 2, 1}, {97, 64, 1}, {997, 16, 2}, {997, 64, 7}} {
		got := processors(c[0], c[1])
		assert.Check(t, got == c[2], "%d samples a second on %d CPUs: %d", c[0], c[1], got)
	}
}
