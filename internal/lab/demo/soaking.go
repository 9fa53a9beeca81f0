//go:build soak

package demo

const soaking = true
