// Package operate is the room of what people and orchestrators touch: settings, commands, metrics.
//
//	config    one struct; its fields are flags, environment variables and keys of a file
//	check     what run needs of the machine, probed, with remedies
//	serve     an agent with its monitoring and its receivers, until a signal
//	admin     queries to a running agent: the socket, its client, the tables of status
//	metrics   the registry of Prometheus collectors, /metrics and the probes; metrics/gen makes the
//	          pages of metrics and alerts
//	inspect   what scan and inspect show: a single probe
//	watch     the live view in a terminal
//	dotstool  the dots commands
//	help      help texts and manual pages
package operate
