// Package demo drives the demo APM process of testdata/agent, and the JVM of
// testdata/jvm, from tests and from programs: it builds them with the machine's
// compilers, starts them, gives commands and turns their events into Go values.
//
// Nothing here waits for time to pass: a command returns when the process has
// obeyed it, everything else is polled for with a deadline. Every method fails
// the test (testing.TB.Fatalf) when the process does not do what it should, so
// methods that can do so are for the test's own goroutine. A program that is no
// test gets its testing.TB from [Run].
package demo
