// Package process probes one process that maps the agent's library or a process context, from outside:
// what it publishes by either standard, who it is by that, where its threads have what they work on,
// and what is in the slots of Elastic's library. It sends nothing and starts nothing.
package process
