// Package lab is the room of what only tests and the demo use.
//
//	testenv      needs of tests, isolation in namespaces of their own, a browser, a file system that hangs
//	demo         programs with a known truth: APM processes in C, JVMs, writers of OpenTelemetry's contexts
//	backend      a small OTLP server that decodes requests with the official messages
//	kernels      boots Debian's kernels under QEMU and runs the tests in them (make kernels)
//	truth        compares what is shown of programs with what they do (make truth)
//	screenshots  takes the pictures in docs (make screenshots)
//	fleet        sends a backend what a thousand hosts would (make fleet)
//	cost         reads what processes take
//	pair         measures what the agent costs, beside the OpenTelemetry eBPF profiler (make pair)
package lab
