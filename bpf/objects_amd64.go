package bpf

import _ "embed" // the objects

//go:embed sampler_x86_bpfel.o.gz
var samplerObject []byte

//go:embed waits_x86_bpfel.o.gz
var waitsObject []byte

//go:embed walks_x86_bpfel.o.gz
var walksObject []byte
