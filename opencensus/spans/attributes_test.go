package spans

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestAttributes(t *testing.T) {
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for _, test := range []struct {
		attributes, want string
		dropped          int
	}{
		{`[]`, "", 0},
		{`{}`, "", 0},
		{`null`, "", 0},
		{`"text"`, "", 0},
		{`{"s":"\u00e4","e":"","t":true,"f":false,"n":null}`, ` s="ä" e="" t=true f=false`, 0},
		{`["a",null,2]`, ` 0="a" 2=2`, 0},
		{`{"i":0,"m":-1,"z":-0,"min":-9223372036854775808,"max":9223372036854775807}`,
			` i=0 m=-1 z=0 min=-9223372036854775808 max=9223372036854775807`, 0},
		{`{"over":9223372036854775808,"under":-9223372036854775809}`,
			` over=double 9.223372036854776e+18 under=double -9.223372036854776e+18`, 0},
		{`{"d":1.0,"e":1e3,"E":-2.5E-3,"tiny":1e-999}`, ` d=double 1 e=double 1000 E=double -0.0025 tiny=double 0`, 0},
		{`{"huge":1e999,"long":` + strings.Repeat("9", 400) + `,"k":1}`, ` k=1`, 2},
		{`{"a":[1,[null,"x"],{"k":null,"l":1.5}],"o":{"p":{"q":[]},"r":{}},"z":[]}`,
			` a=[1 [null "x"] {l=double 1.5}] o={p={q=[]} r={}} z=[]`, 0},
		{`{"":1,"a":{"":2}}`, ` a={=2}`, 1},
		{`{"k":1,"j":2,"k":"x"}`, ` j=2 k="x"`, 0},
		{`{"k":1,"\u006b":2}`, ` k=2`, 0},
		{`{"k":"` + strings.Repeat("x", 200) + `","k":1}`, ` k=1`, 0},
		{`{"k":1,"k":null,"l":1}`, ` k=1 l=1`, 0},
		{"{\"k\xff\":1,\"k\\ud800\":2}", " k\uFFFD=2", 0},
		{`{"o":{"k":1,"j":2,"k":{"k":1,"k":2}}}`, ` o={j=2 k={k=2}}`, 0},
		{`{"opencensus.unfinished":"mine"}`, ` opencensus.unfinished="mine"`, 0},
		// The payload, the span and its attributes are levels, too.
		{`{"k":` + deep(61) + `}`, ` k=` + deep(61), 0},
		{`{"k":` + deep(62) + `,"l":1}`, ` l=1`, 1},
		{`{"k":[{"j":[` + deep(59) + `]}],"l":1}`, ` l=1`, 1},
	} {
		s, r := oneSpan(t, testOptions(), `,"endTime":`+at("2024-01-01 00:00:00", "3", "UTC")+`,"attributes":`+test.attributes)
		got := showAll(s.Attributes, " ")
		assert.Check(t, got == test.want && r.DroppedAttributes == test.dropped,
			"%.200s:%s, %d dropped, want%s, %d", test.attributes, got, r.DroppedAttributes, test.want, test.dropped)
	}
}

// Lists of many attributes are cut, and their duplicates found.
func TestManyAttributes(t *testing.T) {
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, `,"k%d":%d`, i%700, i)
	}
	object := "{" + many.String()[1:] + "}"
	end := `,"endTime":` + at("2024-01-01 00:00:00", "3", "UTC")
	s, r := oneSpan(t, testOptions(), end+`,"attributes":`+object)
	assert.Check(t, len(s.Attributes) == 700 && r.DroppedAttributes == 3000-1024,
		"%d attributes, %+v", len(s.Attributes), r)
	for i, a := range s.Attributes {
		if want := fmt.Sprintf("k%d=%d", (i+324)%700, i+324); a.Key+"="+showValue(a.Value) != want {
			t.Fatalf("attribute %d is %s=%s, want %s", i, a.Key, showValue(a.Value), want)
		}
	}
	s, r = oneSpan(t, testOptions(), end+`,"attributes":{"nested":`+object+`,"k":[`+object+`],"l":1}`)
	if showAll(s.Attributes, " ") != " l=1" || r.DroppedAttributes != 2 {
		t.Errorf("%s, %+v", showAll(s.Attributes, " "), r)
	}
	s, r = oneSpan(t, testOptions(), end+`,"attributes":[`+strings.Repeat("1,", 5000)+`1]`)
	assert.Check(t, len(s.Attributes) == 1024 && r.DroppedAttributes == 5001-1024,
		"%d attributes, %+v", len(s.Attributes), r)
}

func TestTranslate(t *testing.T) {
	end := `,"kind":"SERVER","endTime":` + at("2024-01-01 00:00:00", "3", "UTC")
	const members = `{"http.host":"shop.example:8080","http.port":"8080","http.method":"GET",` +
		`"http.path":"\/cart?id=7&x=?","http.user_agent":"Mozilla\/5.0","http.status_code":"503","http.route":"/cart","k":"v"}`
	o := testOptions()
	s, _ := oneSpan(t, o, end+`,"attributes":`+members)
	if got := showAll(s.Attributes, " "); got != ` http.host="shop.example:8080" http.port="8080" http.method="GET"`+
		` http.path="/cart?id=7&x=?" http.user_agent="Mozilla/5.0" http.status_code="503" http.route="/cart" k="v"` {
		t.Error(got)
	}
	o.TranslateAttributes = true
	s, _ = oneSpan(t, o, end+`,"attributes":`+members)
	got := showAll(s.Attributes, " ")
	assert.Check(t, got == ` server.address="shop.example" server.port=8080 http.request.method="GET"`+
		` url.path="/cart" url.query="id=7&x=?" user_agent.original="Mozilla/5.0" http.response.status_code=503`+
		` http.route="/cart" k="v"`, got)
	assert.Check(t, s.Status != nil, "the status needs the attribute before its translation")
	for attributes, want := range map[string]string{
		`{"http.host":"shop.example"}`:                  ` server.address="shop.example"`,
		`{"http.host":"[2001:db8::1]:80"}`:              ` server.address="2001:db8::1"`,
		`{"http.host":"[::1]"}`:                         ` server.address="::1"`,
		`{"http.host":"2001:db8::1"}`:                   ` server.address="2001:db8::1"`,
		`{"http.host":"shop:http"}`:                     ` server.address="shop:http"`,
		`{"http.host":"8080"}`:                          ` server.address="8080"`,
		`{"http.host":"shop:123456"}`:                   ` server.address="shop:123456"`,
		`{"http.host":""}`:                              ` server.address=""`,
		`{"http.host":7}`:                               ` http.host=7`,
		`{"http.path":"\/ping"}`:                        ` url.path="/ping"`,
		`{"http.path":"\/ping?"}`:                       ` url.path="/ping"`,
		`{"http.port":"http"}`:                          ` http.port="http"`,
		`{"http.port":443}`:                             ` server.port=443`,
		`{"http.status_code":200}`:                      ` http.response.status_code=200`,
		`{"http.status_code":"none"}`:                   ` http.status_code="none"`,
		`{"http.":"x","http.x":"y","https":"z"}`:        ` http.="x" http.x="y" https="z"`,
		`{"url.path":"mine","http.path":"/theirs?q"}`:   ` url.path="/theirs" url.query="q"`,
		`{"http.request.method":1,"http.method":"GET"}`: ` http.request.method="GET"`,
		`{"nested":{"http.method":"GET"}}`:              ` nested={http.method="GET"}`,
	} {
		s, _ := oneSpan(t, o, end+`,"attributes":`+attributes)
		got := showAll(s.Attributes, " ")
		assert.Check(t, got == want, "%s:%s, want%s", attributes, got, want)
	}
	s, _ = oneSpan(t, o, end+`,"timeEvents":[{"attributes":{"http.method":"GET"}}]`)
	assert.Check(t, showAll(s.Events[0].Attributes, "") == `http.method="GET"`, "those of events stay: %+v", s.Events)
}

func TestStackTrace(t *testing.T) {
	for frames, want := range map[string]string{
		`[]`:                                    "",
		`{}`:                                    "",
		`null`:                                  "",
		`"text"`:                                "",
		`[{}]`:                                  "",
		`[7,null,["x"],{"line":1,"class":"C"}]`: "",
		`[{"file":"\/a.php","line":7,"function":"show","class":"Shop\\Cart","type":"->"}]`: `#0 /a.php(7): Shop\Cart->show()`,
		`[{"file":"a","line":7,"function":"f","class":"C","type":"::"},{"function":"g"}]`:  "#0 a(7): C::f()\n#1 [internal function]: g()",
		`{"1":{"function":"f"},"4":{"function":"g"}}`:                                      "#0 [internal function]: f()\n#1 [internal function]: g()",
		`[{},{"file":"a","function":"f"},0,{"file":"b","line":1}]`:                         "#0 a: f()\n#1 b(1)",
		`[{"function":"f","class":"C"}]`:                                                   "#0 [internal function]: C::f()",
		`[{"function":"f","line":"7","file":"a","type":"->"}]`:                             "#0 a: f()",
		`[{"function":"f","args":[{"a":[1]},"x"],"object":{}}]`:                            "#0 [internal function]: f()",
		`[{"function":true,"file":5,"line":1.5}]`:                                          "#0 5: true()",
		`[{"func\u0074ion":"\u00e9"}]`:                                                     "#0 [internal function]: é()",
	} {
		s, _ := oneSpan(t, testOptions(), `,"endTime":`+at("2024-01-01 00:00:00", "3", "UTC")+`,"stackTrace":`+frames)
		got := ""
		for _, a := range s.Attributes {
			assert.Check(t, a.Key == "code.stacktrace", "attribute %s", a.Key)
			got = a.Value.GetStringValue()
		}
		assert.Check(t, got == want, "%s: %q, want %q", frames, got, want)
	}
}

func TestStackTraceLimits(t *testing.T) {
	trace := func(limit int, frames string) string {
		o := testOptions()
		o.MaxStackTraceBytes = limit
		s, _ := oneSpan(t, o, `,"stackTrace":[`+frames+`]`)
		for _, a := range s.Attributes {
			if a.Key == "code.stacktrace" {
				return a.Value.GetStringValue()
			}
		}
		return ""
	}
	many := strings.TrimSuffix(strings.Repeat(`{"function":"f"},`, 500), ",")
	got := trace(DefaultMaxStackTraceBytes, many)
	if strings.Count(got, "\n") != 127 || !strings.HasSuffix(got, "\n#127 [internal function]: f()") {
		t.Errorf("%d lines, %q", strings.Count(got, "\n")+1, got[max(0, len(got)-100):])
	}
	// "#0 a: " and two bytes for each character.
	umlauts := `{"file":"a","function":"` + strings.Repeat("ä", 100) + `"},{"function":"g"}`
	for limit, want := range map[int]string{
		0: "", 1: "#", 6: "#0 a: ", 7: "#0 a: ", 8: "#0 a: ä", 9: "#0 a: ä", 10: "#0 a: ää",
		208: "#0 a: " + strings.Repeat("ä", 100) + "()", 209: "#0 a: " + strings.Repeat("ä", 100) + "()\n",
		1000: "#0 a: " + strings.Repeat("ä", 100) + "()\n#1 [internal function]: g()",
	} {
		got := trace(limit, umlauts)
		assert.Check(t, got == want, "%d bytes: %q, want %q", limit, got, want)
	}
}

func TestEventsAndLinks(t *testing.T) {
	start := at("2024-01-01 00:00:00", "3", "UTC")
	when := at("2024-01-01 00:00:01.5", "1", "+01:00")
	const startText, whenText = "2024-01-01T00:00:00Z", "2023-12-31T23:00:01.5Z"
	for _, test := range []struct{ members, want string }{
		{`"timeEvents":[{},{},{}],"links":[{}]`, "\n  3 events dropped\n  1 links dropped"},
		{`"timeEvents":null,"links":"x"`, ""},
		{`"timeEvents":[1,null,[],{"time":` + when + `},{"description":null}]`, "\n  5 events dropped"},
		{`"timeEvents":{"1":{},"7":{"description":"d"}}`, "\n  event " + startText + ` "d"` + "\n  1 events dropped"},
		{`"timeEvents":[{"description":"found \u00e4","attributes":{"n":3,"x":[1]},"time":` + when + `}]`,
			"\n  event " + whenText + ` "found ä" n=3 x=[1]`},
		{`"timeEvents":[{"description":"","attributes":[],"time":null}]`, "\n  event " + startText + ` "annotation"`},
		{`"timeEvents":[{"attributes":["a"]}]`, "\n  event " + startText + ` "annotation" 0="a"`},
		{`"timeEvents":[{"type":"SENT","id":"42","uncompressedSize":100,"compressedSize":null,"time":` + when + `}]`,
			"\n  event " + whenText + ` "message" message.type="SENT" message.id=42 message.uncompressed_size=100`},
		{`"timeEvents":[{"type":"RECEIVED","id":-7,"uncompressedSize":"1","compressedSize":2}]`,
			"\n  event " + startText + ` "message" message.type="RECEIVED" message.id=-7 message.compressed_size=2`},
		{`"timeEvents":[{"type":"TYPE_UNSPECIFIED","id":"007"},{"type":"","id":"m\u00fc"},{"id":"9223372036854775808"}]`,
			"\n  event " + startText + ` "message" message.id="007"` + "\n  event " + startText +
				` "message" message.id="mü"` + "\n  event " + startText + ` "message" message.id="9223372036854775808"`},
		{`"timeEvents":[{"type":"SENT"}]`, "\n  event " + startText + ` "message" message.type="SENT"`},
		{`"links":[{"traceId":"a","spanId":"b","type":"CHILD_LINKED_SPAN","attributes":{"k":"v"}}]`,
			"\n  link 0000000000000000000000000000000a 000000000000000b" + ` k="v" opencensus.link.type="CHILD_LINKED_SPAN"`},
		{`"links":{"0":{"traceId":"a","spanId":"b","type":"TYPE_UNSPECIFIED","attributes":[]}}`,
			"\n  link 0000000000000000000000000000000a 000000000000000b"},
		{`"links":[{"traceId":"a","spanId":"0"},{"spanId":"1"},{"traceId":"a","spanId":"x"},7,{"traceId":"1","spanId":"2"}]`,
			"\n  link 00000000000000000000000000000001 0000000000000002\n  4 links dropped"},
	} {
		s, _ := oneSpan(t, testOptions(), `,"startTime":`+start+`,"endTime":`+start+`,`+test.members)
		got := strings.TrimPrefix(show(s), `00000000000000000000000000000001 0000000000000002 flags 0x1 INTERNAL "unknown" `+
			startText+" to "+startText)
		assert.Check(t, got == test.want, "%s: %s, want %s", test.members, got, test.want)
	}
}

// Attributes of events and links are counted where they are missing, and unique.
func TestAttributesOfEventsAndLinks(t *testing.T) {
	s, r := oneSpan(t, testOptions(), `,"timeEvents":[{"description":"d","attributes":{"k":1,"k":2,"":3,"h":1e999}}],`+
		`"links":[{"traceId":"1","spanId":"2","type":"X","attributes":{"opencensus.link.type":"mine","":3}}]`)
	event, link := s.Events[0], s.Links[0]
	assert.Check(t, showAll(event.Attributes, " ") == " k=2" && event.DroppedAttributesCount == 2 &&
		showAll(link.Attributes, " ") == ` opencensus.link.type="X"` && link.DroppedAttributesCount == 1 &&
		s.DroppedAttributesCount == 0 && r.DroppedAttributes == 3,
		"%+v: %v", r, s)
}
