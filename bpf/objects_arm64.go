package bpf

import _ "embed" // the objects

//go:embed sampler_arm64_bpfel.o.gz
var samplerObject []byte

//go:embed waits_arm64_bpfel.o.gz
var waitsObject []byte

//go:embed walks_arm64_bpfel.o.gz
var walksObject []byte

//go:embed threads_arm64_bpfel.o.gz
var threadsObject []byte

//go:embed identity_arm64_bpfel.o.gz
var identityObject []byte

//go:embed writers_arm64_bpfel.o.gz
var writersObject []byte
