package process

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/worker/access"
	"correlator/procscan"
	"correlator/procscan/javaagent"
)

// agentStart is longer than an agent takes from the start of its JVM to loading its library, on a
// machine that is not overloaded.
const agentStart = time.Minute

// Silent looks for an agent of Elastic's in a JVM that maps neither the agent's library nor a process
// context, one of procscan.Scanner.JVMs. ok is false when there is none, or the filter leaves out the
// process's container, of which then nothing is read. It returns whatever the process does, as the
// methods of access.Process.
func Silent(client *access.Client, procRoot string, id procscan.ProcessID, filter Filter) (view View, ok bool,
	err error) {
	t, err := Open(client, procRoot, procscan.Found{ProcessID: id}, filter)
	if err != nil {
		return view, false, err
	}
	defer t.Close()
	if err := t.admit(); err != nil {
		if IsFiltered(err) {
			err = nil
		}
		return view, false, err
	}
	agent, err := t.access.JavaAgent()
	if err != nil || agent == nil {
		return view, false, err
	}
	view = NewView(id)
	if agent.Reasons[0] == javaagent.Unknown && time.Since(view.StartTime) < agentStart {
		agent.Reasons[0] = javaagent.Starting
	}
	view.State, view.Reason, view.Agent = StateSilent, string(agent.Reasons[0]), agent
	view.ContainerID, view.CgroupPath = t.cgroup.ContainerID, t.cgroup.Path
	return view, true, nil
}

// maxListed is how many pids a line has.
const maxListed = 8

// ListPIDs lists pids, the first ones if they are many.
func ListPIDs(pids []int) string {
	var texts []string
	for _, pid := range pids[:min(len(pids), maxListed)] {
		texts = append(texts, strconv.Itoa(pid))
	}
	list := strings.Join(texts, ", ")
	if more := len(pids) - maxListed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// Advice returns lines of what to do about JVMs with an agent that is silent, and of thread contexts that
// are not read: one for all of which the same is known.
func Advice(views []View) (lines []string) {
	pids := make(map[string][]int)
	var texts []string
	for _, v := range views {
		text := ""
		switch {
		case v.Agent != nil:
			text = v.Agent.Advice()
		case v.UnreadSchema() != "":
			text = unreadText(v.UnreadSchema())
		case v.Ignored != "":
			text = v.Ignored
		default:
			continue
		}
		if pids[text] == nil {
			texts = append(texts, text)
		}
		pids[text] = append(pids[text], v.PID)
	}
	for _, text := range texts {
		lines = append(lines, ListPIDs(pids[text])+": "+terminal.Escape(text))
	}
	return lines
}
