package live

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/internal/lab/testenv"
	"correlator/internal/names/naming"
	"correlator/internal/out/live/types"
	"correlator/profile"
)

// guest is subscribed to all types.
type guest struct {
	hosts        *client.Subscription[types.CorrelatorHost, types.CorrelatorHostKey]
	processes    *client.Subscription[types.CorrelatorProcess, types.CorrelatorProcessKey]
	threads      *client.Subscription[types.CorrelatorThread, types.CorrelatorThreadKey]
	transactions *client.Subscription[types.CorrelatorTransaction, types.CorrelatorTransactionKey]
	shares       *client.Subscription[types.CorrelatorTransactionStack, types.CorrelatorTransactionStackKey]
	stacks       *client.Subscription[types.CorrelatorStack, types.CorrelatorStackKey]
}

func subscribe(t testing.TB, c *client.Client) *guest {
	t.Helper()
	g := &guest{}
	var errs [6]error
	g.hosts, errs[0] = client.Subscribe[*types.CorrelatorHost](c, nil)
	g.processes, errs[1] = client.Subscribe[*types.CorrelatorProcess](c, nil)
	g.threads, errs[2] = client.Subscribe[*types.CorrelatorThread](c, nil)
	g.transactions, errs[3] = client.Subscribe[*types.CorrelatorTransaction](c, nil)
	g.shares, errs[4] = client.Subscribe[*types.CorrelatorTransactionStack](c, nil)
	g.stacks, errs[5] = client.Subscribe[*types.CorrelatorStack](c, nil)
	for _, err := range errs {
		assert.NilError(t, err)
	}
	return g
}

// feed feeds samples until what a guest sees is complete.
func (g *guest) feed(t *testing.T, l *Live) {
	t.Helper()
	sample := newSample(1000, 7, 1, 1, time.Time{})
	sample.Stack = frames("inner", "outer")
	testenv.Poll(t, patience, "objects of all types", func() bool {
		sample.At = time.Now()
		l.Sampled(sample)
		return g.hosts.Len() == 1 && g.processes.Len() == 2 && g.threads.Len() == 1 && g.transactions.Len() == 1 &&
			g.shares.Len() == 1 && g.stacks.Len() == 1
	})
}

func TestGuestOfEmbeddedBroker(t *testing.T) {
	uri := newSocket(t)
	l := openLive(t, Config{Listen: []string{uri}})
	source := newSource(2)
	l.Start(source)
	c := dial(t, uri, "")
	g := subscribe(t, c)
	g.feed(t, l)
	for _, x := range g.threads.All() {
		assert.Check(t, x.Name.Value() == "worker-7" && x.Context.Value() == types.CorrelatorContextElastic, "%+v", x)
	}
	for _, x := range g.stacks.All() {
		got := strings.Join(x.Frames.Value(), " ")
		assert.Check(t, got == "inner outer", "frames %q", got)
	}
	none := newSource(0)
	source.processes.Store(none.processes.Load())
	testenv.Poll(t, patience, "the end of processes", func() bool { return g.processes.Len() == 0 })
	l.tracker.age(1)
	testenv.Poll(t, patience, "the end of the transaction", func() bool {
		return g.threads.Len()+g.transactions.Len()+g.shares.Len()+g.stacks.Len() == 0
	})
	c.Close()
	testenv.Poll(t, patience, "nothing to be kept for nobody", func() bool {
		return l.broker.Counters().Objects == 1 && l.tracker.wanted.Load() == 0 // the broker's DotsClient
	})
}

// A frame of a process that exists gets its name from its file.
func TestNativeNames(t *testing.T) {
	uri := newSocket(t)
	namer, err := naming.Open("/proc")
	assert.NilError(t, err)
	t.Cleanup(namer.Close)
	l, err := Open(Config{Listen: []string{uri}}, testAbout, namer, zap.NewNop())
	assert.NilError(t, err)
	t.Cleanup(func() { shutdown(t, l) })
	l.Start(newSource(0))
	g := subscribe(t, dial(t, uri, ""))
	sample := newSample(os.Getpid(), 7, 1, 1, time.Time{})
	sample.Stack = &profile.Stack{ID: profile.StackTraceID{1},
		Frames: []profile.Frame{{File: &profile.File{Path: "/gone/libdemo.so"}, Address: 0x1234}}}
	testenv.Poll(t, patience, "the stack, of a file that is gone", func() bool {
		sample.At = time.Now()
		l.Sampled(sample)
		for _, x := range g.stacks.All() {
			return x.Frames.Value()[0] == "libdemo.so+0x1234"
		}
		return false
	})
	assert.Check(t, namer.Counters().Requests.Load() != 0, "names are not looked for")
}

func TestGuestsPublishNothing(t *testing.T) {
	uri := newSocket(t)
	l := openLive(t, Config{Listen: []string{uri}})
	l.Start(newSource(0))
	c := dial(t, uri, "")
	x := newThread(1, "forged", 1)
	assert.NilError(t, c.Publish(context.Background(), &x))
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("the guest stays")
	}
	testenv.Poll(t, patience, "the guest to be counted", func() bool {
		return l.broker.Counters().Closed[broker.ReadOnly] == 1
	})
	if info, err := os.Stat(strings.TrimPrefix(uri, "uds:")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
}

func TestSecret(t *testing.T) {
	l := openLive(t, Config{Listen: []string{"tcp://127.0.0.1:0"}, Secret: "s3cret"})
	l.Start(newSource(0))
	addr, err := l.broker.ListenURI("tcp://127.0.0.1:0")
	assert.NilError(t, err)
	dial(t, "tcp://"+addr.String(), "s3cret")
	for _, secret := range []string{"", "wrong"} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if c, err := client.Dial(ctx, "tcp://"+addr.String(),
			client.Options{Name: "test", Secret: secret}); err == nil {
			c.Close()
			t.Errorf("secret %q is accepted", secret)
		}
		cancel()
	}
}

func TestCheckListen(t *testing.T) {
	for _, c := range []struct {
		uri, secret string
		ok          bool
	}{
		{"uds:/run/x", "", true}, {"tcp://127.0.0.1:1", "", true}, {"ws://localhost:1", "", true},
		{"tcp://[::1]:1", "", true}, {"tcp://0.0.0.0:1", "", false}, {"ws://10.0.0.1:1", "", false},
		{"ws://host:1", "", false}, {"ws://host:1", "s", true}, {"http://127.0.0.1:1", "", false},
	} {
		config := Config{Secret: c.secret}
		err := config.CheckListen(c.uri)
		assert.Check(t, (err == nil) == c.ok, "%s: %v", c.uri, err)
	}
	for uri, ok := range map[string]bool{"tcp://elsewhere:1": true, "elsewhere": false} {
		err := (&Config{Connect: uri}).CheckConnect()
		assert.Check(t, (err == nil) == ok, "%s: %v", uri, err)
	}
}

func TestPageIsServed(t *testing.T) {
	l := openLive(t, Config{Listen: []string{"uds:" + t.TempDir() + "/s"}})
	addr, err := l.broker.ListenURI("ws://127.0.0.1:0")
	assert.NilError(t, err)
	response, err := http.Get("http://" + addr.String() + "/")
	assert.NilError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	assert.Check(t, err == nil && strings.Contains(string(body), "view.js"), "%v, %s", err, body)
	policy := response.Header.Get("Content-Security-Policy")
	assert.Check(t, strings.Contains(policy, "default-src 'none'"), "policy %q", policy)
}

func TestConnect(t *testing.T) {
	uri := newSocket(t)
	l := openLive(t, Config{Connect: uri, Secret: "x"})
	l.Start(newSource(2)) // there is no broker yet
	testenv.Poll(t, patience, "an attempt to connect", func() bool { return l.counters.connectionFailures.Load() > 0 })
	for _, graceful := range []bool{true, false} {
		b := broker.New(broker.Options{})
		_, err := b.ListenURI(uri)
		assert.NilError(t, err)
		g := subscribe(t, dial(t, uri, ""))
		g.feed(t, l)
		failures := l.counters.connectionFailures.Load()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if !graceful {
			cancel()
		}
		err = b.Shutdown(ctx)
		assert.Check(t, !graceful || err == nil, err)
		cancel()
		testenv.Poll(t, patience, "the end of the connection", func() bool {
			return l.counters.connectionFailures.Load() > failures && l.counters.connected.Load() == 0
		})
	}
	shutdown(t, l)
	assert.Check(t, l.counters.connected.Load() == 0, "connected after the shutdown")
}

// A broker that takes nothing neither delays samples nor the embedded broker.
func TestSlowBroker(t *testing.T) {
	blocked := make(chan struct{})
	l := openLive(t, Config{})
	r := &remote{live: l, output: output{bus: blockingBus{blocked}}, mailbox: make(chan *snapshot, 1)}
	p, c := newPublisher(newSource(1))
	c.want = wantProcesses
	p.add(r)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx, nil)
	}()
	now := time.Now()
	for i := range 10 {
		p.publish(now.Add(time.Duration(i) * time.Second))
	}
	assert.Check(t, c.published == 10, "%d of 10 snapshots are published", c.published)
	cancel()
	close(blocked)
	<-done
}

func TestCollector(t *testing.T) {
	l := openLive(t, Config{Listen: []string{newSocket(t)}, Connect: newSocket(t)})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(l)
	l.tracker.untracked[untrackedStack], l.tracker.unaccounted, l.tracker.unwaited = 3, 4, 5
	families, err := registry.Gather()
	assert.Check(t, err == nil && len(families) == 14, "%d metrics, %v", len(families), err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	assert.Check(t, err == nil && len(problems) == 0, "%v, %v", problems, err)
	untracked := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "correlator_live_samples_untracked_total":
				untracked[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			case "correlator_live_waits_untracked_total":
				untracked["waits: "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"process": 0, "thread": 0, "transaction": 0, "stack": 3,
		"waits: account": 4, "waits: stack": 5}
	assert.Check(t, maps.Equal(untracked, want), untracked)
}

func TestOpenErrors(t *testing.T) {
	_, err := Open(Config{Listen: []string{newSocket(t), "uds:/does/not/exist/s"}}, testAbout, nil, zap.NewNop())
	assert.Check(t, err != nil, "an endpoint that cannot be bound is no error")
}

// However many connect to a port, there is room at the Unix socket; those who are refused are told why.
func TestUnixSocketStaysFree(t *testing.T) {
	uri := newSocket(t)
	l := openLive(t, Config{Listen: []string{uri}})
	addr, err := l.broker.ListenURI("tcp://127.0.0.1:0")
	assert.NilError(t, err)
	port := "tcp://" + addr.String()
	for range MaxGuests - reservedGuests {
		dial(t, port, "")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var refused *client.BrokerError
	_, err = client.Dial(ctx, port, client.Options{})
	assert.Check(t, errors.As(err, &refused) && strings.Contains(refused.Text, "56 guests at most"),
		"one more: %v", err)
	testenv.Poll(t, patience, "the refusal to be counted", func() bool {
		return l.broker.Counters().Closed[broker.TooManyGuests] == 1
	})
	for range reservedGuests {
		dial(t, uri, "")
	}
}
