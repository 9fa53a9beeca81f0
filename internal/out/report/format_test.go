package report

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/record"
	"correlator/profile"
)

// Folded stacks begin with the service, have the outermost frame first, and one line each.
func TestFolded(t *testing.T) {
	r, names := fixture(t)
	r.Processes[1].Service = "cart;\x1b[2J"
	content, err := encode(Folded, r, names, About{})
	assert.NilError(t, err)
	want := `cart:\x1b[2J;main;[jit];Cart.add;shop::checkout 7
shop;main;[jit];Demo.price;shop::checkout 90
shop;stripped\x1b[31m.so+0x3000;[kernel];nft_do_chain;do_syscall_64 3
`
	assert.Check(t, string(content) == want, "%s\nwant\n%s", content, want)
}

// A page has the names of all frames and the ids of all transactions, those with most samples first.
func TestHTML(t *testing.T) {
	r, names := fixture(t)
	content, err := encode(HTML, r, names, About{Title: "a<b", Notes: []string{"note\x1b"}})
	assert.NilError(t, err)
	page := string(content)
	for _, want := range []string{"<title>a&lt;b</title>", `note\\x1b`, "Demo.price", "do_syscall_64", `cart\\x1b[2J`,
		"shop: transaction cd02000000000000 of trace ab010000000000000000000000000000", "shop cd03000000000000"} {
		assert.Check(t, strings.Contains(page, want), "no %q in the page", want)
	}
	assert.Check(t, strings.Index(page, "shop cd02") <= strings.Index(page, "shop cd03"),
		"the transactions are in another order")
}

func TestFormats(t *testing.T) {
	for path, want := range map[string]Format{"a.html": HTML, "b.x/a.htm": HTML, "a.folded": Folded,
		"a.pb.gz": PProf, "": PProf, "html": PProf} {
		got := FormatOf(path)
		assert.Check(t, got == want, "%q: %s, want %s", path, got, want)
	}
	for _, f := range Formats() {
		name := f.FileName(time.Now())
		assert.Check(t, FormatOf(name) == f, "%s is named %s", f, name)
	}
}

// What perf maps of JVMs say of a method beside its name is left out; other names stay.
func TestDisplay(t *testing.T) {
	p := &record.Process{}
	anonymous := profile.Frame{Address: 0x1000}
	for name, want := range map[string]string{
		"long java.util.HashMap.get(java.lang.Object, int)": "java.util.HashMap.get",
		"java.lang.Object[] com.example.Shop$Inner.all()":   "com.example.Shop$Inner.all",
		"void com.example.Shop.<init>(int[])":               "com.example.Shop.<init>",
		"com.example.Shop.price":                            "com.example.Shop.price",
		"LazyCompile:*price /srv/shop.js:12":                "LazyCompile:*price /srv/shop.js:12",
		"shop::price(int)":                                  "shop::price(int)",
		"py::price:/srv/shop.py":                            "py::price:/srv/shop.py",
	} {
		f := anonymous.WithName(profile.NewFunction(name, ""))
		got := (*symbolNames)(nil).display(p, f)
		assert.Check(t, got == want, "%q: %q, want %q", name, got, want)
		got = (*symbolNames)(nil).display(p, profile.NewJVMFrame(profile.NewFunction(name, ""), 1))
		assert.Check(t, got == name, "unwound %q: %q", name, got)
	}
}
