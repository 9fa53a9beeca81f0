package metrics

import (
	"context"
	"flag"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
)

var exposition = flag.String("exposition", "", "`file` to write the metrics of a running agent to")

// scrape returns the metrics as Prometheus parses them.
func scrape(t *testing.T, address string) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	assert.NilError(t, err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	assert.NilError(t, err)
	return families
}

func startAgent(t *testing.T) (a *agent.Agent, end func()) {
	t.Helper()
	testenv.NeedRoot(t)
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{SamplesPerSecond: 1})
	if err != nil {
		testenv.Missing(t, err.Error())
	}
	sampler.Close()
	config := agent.Config{
		AcceptPartialView: true,
		ProcRoot:          "/proc", SamplesDelay: 300 * time.Millisecond, ScanInterval: time.Second, MaxProcesses: 100,
		SamplesPerSecond: 97, ReportInterval: 100 * time.Millisecond,
	}
	a, err = agent.New(config, nil, zap.NewNop())
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stopped := false
	end = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		err := <-ended
		assert.Check(t, err, "agent ended with %v", err)
	}
	t.Cleanup(end)
	return a, end
}

// The metrics of an agent that serves two processes agree with what the processes received.
func TestAgent(t *testing.T) {
	a, end := startAgent(t)
	address, _ := serve(t, NewGatherer(testBuild, agent.NewCollector(a)), a)
	testenv.Poll(t, deadline, "the first sweep", func() bool {
		status, _ := get(t, "http://"+address+"/readyz")
		return status == http.StatusOK
	})
	// A busy machine can take longer to tell the memory than is waited for.
	const memory = "correlator_memory_pss_bytes{}"
	var before map[string]*dto.MetricFamily
	testenv.Poll(t, deadline, "the memory", func() bool {
		before = scrape(t, address)
		return values(before)[memory] > 0
	})

	busy := demo.Start(t, demo.Options{Busy: 2, Transaction: 100 * time.Millisecond})
	silent := demo.Start(t, demo.Options{Manual: true})
	silent.Withdraw()
	busy.Registration(1)
	busy.ReportWhen("samples", func(r demo.Report) bool { return r.Samples > 100 })
	var during map[string]*dto.MetricFamily
	testenv.Poll(t, deadline, "both processes", func() bool {
		during = scrape(t, address)
		now := values(during)
		return now[`correlator_processes{state="registered"}`] == 1 &&
			now[`correlator_processes{state="no-storage"}`] == 1 && now[memory] > 0
	})
	got, want := slices.Sorted(maps.Keys(correlators(during))), slices.Sorted(maps.Keys(correlators(before)))
	assert.Check(t, slices.Equal(got, want), "series %q, and without processes %q", got, want)
	for _, reason := range agent.NotSampledReasons() {
		n := values(during)[`correlator_processes_not_sampled{reason="`+reason+`"}`]
		assert.Check(t, n == 0, "%v processes are not sampled: %s", n, reason)
	}
	if *exposition != "" {
		write(t, *exposition, during)
	}
	testenv.Poll(t, deadline, "health", func() bool { // which is to be told in a second
		status, _ := get(t, "http://"+address+"/healthz")
		return status == http.StatusOK
	})

	end()
	silent.Quit()
	report := busy.Quit()
	status, body := get(t, "http://"+address+"/readyz")
	assert.Check(t, status == http.StatusServiceUnavailable && strings.Contains(body, "ends"),
		"readyz after the end: %d %q", status, body)
	after := values(scrape(t, address))
	sent, queued := after["correlator_samples_sent_total{}"], after["correlator_samples_queued_total{}"]
	var dropped float64
	for series, n := range after {
		if strings.HasPrefix(series, "correlator_samples_dropped_total{") {
			dropped += n
		}
	}
	assert.Check(t, sent >= float64(report.Samples) && queued == sent+dropped &&
		after["correlator_sample_to_socket_seconds{}"] == sent,
		"%v samples queued, %v sent, %v dropped, %v timed, %d arrived", queued, sent, dropped,
		after["correlator_sample_to_socket_seconds{}"], report.Samples)
	assert.Check(t, after[`correlator_samples_total{outcome="correlated",source="sampled"}`] == queued,
		"%v samples correlated, %v queued", after[`correlator_samples_total{outcome="correlated",source="sampled"}`],
		queued)
	assert.Check(t, after["correlator_sweeps_total{}"] != 0 && after["correlator_sweep_seconds_total{}"] != 0,
		"%v sweeps in %v s", after["correlator_sweeps_total{}"], after["correlator_sweep_seconds_total{}"])
}

// correlators returns the series of the correlator, without those that every Go program has.
func correlators(families map[string]*dto.MetricFamily) map[string]float64 {
	ours := values(families)
	maps.DeleteFunc(ours, func(series string, _ float64) bool { return !strings.HasPrefix(series, "correlator_") })
	return ours
}

func write(t *testing.T, path string, families map[string]*dto.MetricFamily) {
	t.Helper()
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()
	for _, name := range slices.Sorted(maps.Keys(families)) {
		_, err := expfmt.MetricFamilyToText(f, families[name])
		assert.NilError(t, err)
	}
}
