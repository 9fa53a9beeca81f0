// Package process probes one process that maps the agent's library, from outside: the copies of the
// library that it maps, what they publish, where its threads' slots lie and what is in them. It
// sends nothing and starts nothing.
package process
