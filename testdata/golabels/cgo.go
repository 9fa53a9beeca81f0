//go:build cgo

package main

// static __thread long filler[5] = {1};
// long use(void) { return filler[0]++; }
import "C"

func init() { C.use() }
