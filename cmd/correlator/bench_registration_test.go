package main

import (
	"slices"
	"testing"
	"time"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// startsAtOnce is how many processes of BenchmarkRegistration start at the same time: few enough to
// leave the CPUs idle for most of the following second.
const startsAtOnce = 25

// BenchmarkRegistration measures the time from when a process publishes its storage until the
// registration is in its socket, by the time stamp of the kernel. The library has just been mapped,
// and the storage is published at any time within the following second. No samples are taken. A
// thousand starts are -benchtime 40x.
//
// It also reports how late the processes themselves publish, which is what the machine adds: timers
// fire late on CPUs that others use.
func BenchmarkRegistration(b *testing.B) {
	testenv.NeedRoot(b)
	files := demo.NewFiles(b, demo.Glibc)
	sentinel := demo.StartMany(b, 1, demo.Options{Files: files})
	startBinary(b, demo.Agent(b, b.TempDir()), "--samples-per-second", "0")
	sentinel.Registered() // the agent runs
	var delays, late []uint64
	for b.Loop() {
		crowd := demo.StartMany(b, startsAtOnce, demo.Options{Files: files, PublishWithin: time.Second})
		published, registered := crowd.Published(), crowd.Registered()
		for pid, publication := range published {
			delays = append(delays, registered[pid]-publication.TimeNs)
			late = append(late, publication.LateNs)
		}
		crowd.Quit()
	}
	reportDelays(b, delays, "registered")
	reportDelays(b, late, "control")
	b.ReportMetric(float64(len(delays)), "starts")
	b.ReportMetric(0, "ns/op") // is the processes' second
}

func reportDelays(b *testing.B, ns []uint64, name string) {
	b.Helper()
	slices.Sort(ns)
	for _, quantile := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
		at := int(quantile.of * float64(len(ns)-1))
		b.ReportMetric(float64(ns[at])/1e6, quantile.name+"-ms-"+name)
	}
}
