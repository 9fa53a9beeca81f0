package symbols

import (
	"errors"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/host/kallsyms"
	"correlator/internal/lab/testenv"
)

const kallsymsText = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000040 t secondary_startup
ffffffff81000048 d data_in_between
ffffffff81000080 W weak
ffffffff81000100 T _etext
ffffffff82000000 D _text
ffffffffc0001000 t nft_do	[nf_tables]
ffffffffc0001000 T _text	[nf_tables]
ffffffffc0002000 t bpf_prog_1f_f	[bpf]
nonsense
`

func TestReadKallsyms(t *testing.T) {
	want := map[uint64]string{
		0x1000:             "",
		0xffffffff80ffffff: "",
		0xffffffff8100003f: "_stext", // the shorter of two names
		0xffffffff81000040: "secondary_startup",
		0xffffffff81000050: "secondary_startup",
		0xffffffff810000ff: "weak",
		0xffffffffc0001010: "_text", // the global one
		0xffffffffc0002fff: "bpf_prog_1f_f",
		0xfffffffffffffff0: "", // far behind the last
	}
	var addrs []uint64
	for addr := range want {
		addrs = append(addrs, addr)
	}
	q := NewQuery(addrs)
	assert.NilError(t, q.ReadKallsyms(strings.NewReader(kallsymsText)))
	for addr, name := range want {
		if q.Name(addr) != name {
			t.Errorf("%#x: %q, want %q", addr, q.Name(addr), name)
		}
	}
}

// The running kernel names its own functions, whichever they are.
func TestRunningKernel(t *testing.T) {
	testenv.NeedRoot(t)
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		testenv.Missing(t, "needs /proc/kallsyms")
	}
	defer file.Close()
	start, _, err := kallsyms.Text(file)
	if errors.Is(err, kallsyms.ErrHidden) {
		testenv.Missing(t, "needs to be shown kernel addresses")
	}
	assert.NilError(t, err)
	_, err = file.Seek(0, 0)
	assert.NilError(t, err)
	q := NewQuery([]uint64{start, start + 0x1000})
	if err := q.ReadKallsyms(file); err != nil || q.countUnnamed() > 0 {
		t.Errorf("%q, %v", q.names, err)
	}
}
