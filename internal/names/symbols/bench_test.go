package symbols

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
)

// Naming a thousand addresses of libjvm.so, which has the largest symbol table that is common here.
func BenchmarkName(b *testing.B) {
	paths, err := filepath.Glob("/usr/lib/jvm/*/lib/server/libjvm.so")
	if err != nil || len(paths) == 0 {
		testenv.Missing(b, "needs a JDK")
	}
	file, err := os.Open(paths[0])
	assert.NilError(b, err)
	defer file.Close()
	info, err := file.Stat()
	assert.NilError(b, err)
	for _, n := range []uint64{1000, 3} { // as record, and as an agent that runs
		b.Run(strconv.FormatUint(n, 10), func(b *testing.B) {
			var addrs []uint64
			for i := range n {
				addrs = append(addrs, 0x500000+i*0x400000/n)
			}
			b.ReportAllocs()
			for b.Loop() {
				e, err := elfsym.ReadSymbolTables(file, info.Size())
				if err != nil {
					b.Fatal(err)
				}
				q := NewQuery(addrs)
				q.FindRanges()
				if err := q.ReadTable(e.Static); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(addrs)-q.countUnnamed()), "named")
			}
		})
	}
}
