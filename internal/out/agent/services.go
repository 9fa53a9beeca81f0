package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"correlator/internal/attach/process"
	"correlator/internal/host/sorting"
	"correlator/internal/host/textcut"
)

// MaxServices is the largest limit of services in metrics: each has six series, here and wherever
// they are stored.
const MaxServices = 1000

const (
	// otherServices is the name of all services beyond the limit.
	otherServices = "_other"
	// unknownService is the name of processes that publish none, as OpenTelemetry has it.
	unknownService = "unknown_service"
	// maxServiceName is how many bytes of a name are a label. Names of services are shorter.
	maxServiceName = 128
)

// serviceOutcome is what became of samples, as in ProcessStatus.
type serviceOutcome int

const (
	serviceSent serviceOutcome = iota
	serviceExported
	serviceLate
	serviceDropped
	serviceWithoutTrace
	numServiceOutcomes
)

var serviceOutcomes = [numServiceOutcomes]string{
	serviceSent: "sent", serviceExported: "exported", serviceLate: "late", serviceDropped: "dropped",
	serviceWithoutTrace: "without_trace",
}

// serviceSamples are the samples of a process or a service.
type serviceSamples [numServiceOutcomes]uint64

func (s *ProcessStatus) serviceSamples() serviceSamples {
	samples := serviceSamples{
		serviceSent: s.Sent, serviceExported: s.Exported, serviceLate: s.Late, serviceWithoutTrace: s.WithoutTrace,
	}
	for _, n := range s.Dropped {
		samples[serviceDropped] += n
	}
	return samples
}

// ServiceCounts is what is counted of the processes of one service.
type ServiceCounts struct {
	Name      string
	Processes int // that are registered or attached now
	samples   serviceSamples
}

// services sums up processes by their service. The first limit names of the agent's life are
// counted apart, and all others together: names come from processes, which may invent them, and a
// series that there was once stays wherever it is stored.
type services struct {
	limit int // 0: nothing is counted

	mu    sync.Mutex
	named map[string]*ServiceCounts
	other *ServiceCounts // nil: none
}

// serviceAccount is what has been counted of one process. services.mu guards it.
type serviceAccount struct {
	name    string // the last one that it published
	counted serviceSamples
}

// add counts what has happened to the samples of a process since the last call. It returns the
// process's service, or nil if the process takes no part and nothing has happened. s.mu is held.
func (s *services) add(account *serviceAccount, status *ProcessStatus) *ServiceCounts {
	account.name = cmp.Or(status.ServiceName, account.name)
	samples := status.serviceSamples()
	if !status.isAttached() && samples == account.counted {
		return nil
	}
	service := s.service(account.name)
	for i, n := range samples {
		service.samples[i] += n - account.counted[i]
	}
	account.counted = samples
	return service
}

// isAttached reports whether samples of the process are taken, if they can be.
func (s *ProcessStatus) isAttached() bool {
	return s.State == process.StateRegistered || s.State == process.StateAttached
}

// service returns the counts for a name that a process publishes.
func (s *services) service(name string) *ServiceCounts {
	name = cmp.Or(cleanServiceName(name), unknownService)
	service := s.named[name]
	switch {
	case service != nil:
		return service
	case name != otherServices && len(s.named) < s.limit:
		service = &ServiceCounts{Name: name}
		s.named[name] = service
		return service
	case s.other == nil:
		s.other = &ServiceCounts{Name: otherServices}
	}
	return s.other
}

// cleanServiceName makes a label of a name: valid UTF-8, and not too long.
func cleanServiceName(name string) string {
	return textcut.Clean(name, maxServiceName)
}

// countService counts the samples of a process that ends.
func (r *registration) countService() {
	s := &r.agent.services
	if s.limit == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status, _ := r.status()
	s.add(&r.account, &status)
}

// Services returns the counts of each service, by name; nil without Config.MetricsServices. Samples
// are those of all processes that there have been.
func (a *Agent) Services() []ServiceCounts {
	s := &a.services
	if s.limit == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	services := slices.Collect(maps.Values(s.named))
	if s.other != nil {
		services = append(services, s.other)
	}
	for _, service := range services {
		service.Processes = 0
	}
	for _, r := range a.registrations.All() {
		status, _ := r.status()
		if service := s.add(&r.account, &status); service != nil && status.isAttached() {
			service.Processes++
		}
	}
	return s.snapshot()
}

// snapshot returns copies, by name. s.mu is held.
func (s *services) snapshot() []ServiceCounts {
	all := make([]ServiceCounts, 0, len(s.named)+1)
	for _, service := range s.named {
		all = append(all, *service)
	}
	if s.other != nil {
		all = append(all, *s.other)
	}
	sorting.Sort(all, func(a, b ServiceCounts) int { return strings.Compare(a.Name, b.Name) })
	return all
}
