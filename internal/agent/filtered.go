package agent

import "go.uber.org/zap"

// tellFiltered counts a process, and logs it, when the filter first leaves it out: at once by its
// container, and then nothing of the process is opened, or by what it publishes, and then that is
// looked at again like that of a process that is served.
func (p *servedProcess) tellFiltered(why error) {
	if p.filtered {
		return
	}
	p.filtered = true
	p.agent.counters.Filtered.Add(1)
	cgroup := p.target.Cgroup()
	p.log.Info("process filtered", because("processes_filtered"), zap.NamedError("by", why), zap.String("service", p.target.Storage().ServiceName),
		zap.String("container", cgroup.ContainerID), zap.String("cgroup", cgroup.Path))
}
