// Package process looks at one process that maps the agent's library, from outside: the copies of the
// library that it maps, what they publish, where its threads' slots lie and what is in them. It
// sends nothing and starts nothing; the agent, and the commands that look once, do with it what
// they are for.
package process
