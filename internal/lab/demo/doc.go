// Package demo drives the demo APM process of testdata/agent, the JVM of testdata/jvm, the writer of
// OpenTelemetry's contexts of testdata/otel, and processes with the libraries of others
// (testdata/otel-go, testdata/otel-node), from tests and from programs: it builds them with the
// machine's compilers, starts them, gives commands and turns their events into Go values.
//
// Nothing here waits for a fixed time: a command returns when the process has executed it,
// everything else is polled for with a deadline. Every method fails the test (testing.TB.Fatalf)
// when the process does not do what it should, so such methods must be called from the test's own
// goroutine. A program that is not a test gets its testing.TB from [Run].
package demo
