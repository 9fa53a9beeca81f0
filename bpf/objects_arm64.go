package bpf

import _ "embed" // the objects

//go:embed sampler_arm64_bpfel.o.gz
var samplerObject []byte

//go:embed waits_arm64_bpfel.o.gz
var waitsObject []byte

//go:embed walks_arm64_bpfel.o.gz
var walksObject []byte
