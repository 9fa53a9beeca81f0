package report

import (
	"strings"
	"testing"
	"time"

	"correlator/internal/out/record"
	"correlator/profile"
)

// Folded stacks begin with the service, have the outermost frame first, and one line each.
func TestFolded(t *testing.T) {
	r, names := fixture(t)
	r.Processes[1].Service = "cart;\x1b[2J"
	content, err := encode(Folded, r, names, About{})
	if err != nil {
		t.Fatal(err)
	}
	want := `cart:\x1b[2J;main;[jit];Cart.add;shop::checkout 7
shop;main;[jit];Demo.price;shop::checkout 90
shop;stripped\x1b[31m.so+0x3000;[kernel];nft_do_chain;do_syscall_64 3
`
	if string(content) != want {
		t.Errorf("%s\nwant\n%s", content, want)
	}
}

// A page has the names of all frames and the ids of all transactions, those with most samples first.
func TestHTML(t *testing.T) {
	r, names := fixture(t)
	content, err := encode(HTML, r, names, About{Title: "a<b", Notes: []string{"note\x1b"}})
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	for _, want := range []string{"<title>a&lt;b</title>", `note\\x1b`, "Demo.price", "do_syscall_64", `cart\\x1b[2J`,
		"shop: transaction cd02000000000000 of trace ab010000000000000000000000000000", "shop cd03000000000000"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if strings.Index(page, "shop cd02") > strings.Index(page, "shop cd03") {
		t.Error("the transactions are in another order")
	}
}

func TestFormats(t *testing.T) {
	for path, want := range map[string]Format{"a.html": HTML, "b.x/a.htm": HTML, "a.folded": Folded,
		"a.pb.gz": PProf, "": PProf, "html": PProf} {
		if got := FormatOf(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	for _, f := range Formats() {
		if name := f.FileName(time.Now()); FormatOf(name) != f {
			t.Errorf("%s is named %s", f, name)
		}
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
		if got := (*symbolNames)(nil).display(p, f); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if got := (*symbolNames)(nil).display(p, profile.NewJVMFrame(profile.NewFunction(name, ""), 1)); got != name {
			t.Errorf("unwound %q: %q", name, got)
		}
	}
}
