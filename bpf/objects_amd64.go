package bpf

import _ "embed" // the objects

//go:embed sampler_x86_bpfel.o.gz
var samplerObject []byte

//go:embed waits_x86_bpfel.o.gz
var waitsObject []byte

//go:embed walks_x86_bpfel.o.gz
var walksObject []byte

//go:embed threads_x86_bpfel.o.gz
var threadsObject []byte

//go:embed identity_x86_bpfel.o.gz
var identityObject []byte

//go:embed writers_x86_bpfel.o.gz
var writersObject []byte
