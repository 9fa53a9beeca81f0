package out

// About describes the agent in what leaves it.
type About struct {
	Version          string
	HostID           string // may be empty, as HostName
	HostName         string
	SamplesPerSecond int    // of every CPU; 0: it takes none
	ProcRoot         string // a procfs of our own pid namespace
}
