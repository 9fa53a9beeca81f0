package profiles

import (
	"fmt"
	"testing"

	"correlator/profile"
)

// Samples whose stacks are new, of frames that are not: those of a busy JVM.
func BenchmarkNewStacks(b *testing.B) {
	b.ReportAllocs()
	var functions []profile.Frame
	for i := range 400 {
		name := fmt.Sprintf("com.example.shop.checkout.Basket$Item%d.priceOf", i)
		functions = append(functions, profile.NewJVMFrame(profile.NewFunction(name, "Basket.java"), uint32(i)))
	}
	builder := NewBuilder(testOptions(&counter{}), func(Request) {})
	var frames [40]profile.Frame
	n := 0
	for b.Loop() {
		n++
		for i := range frames {
			frames[i] = functions[(n>>i+i*i+n%7)%len(functions)]
		}
		sample := sampleOf(shop, frames[:]...)
		if err := builder.Add(&sample); err != nil {
			b.Fatal(err)
		}
		if n%1000 == 0 {
			builder.Flush()
		}
	}
}
