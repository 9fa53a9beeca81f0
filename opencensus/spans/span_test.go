package spans

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Ids are written by the client without leading zeros, and may be set by anybody to anything.
func TestIDs(t *testing.T) {
	for _, test := range []struct{ trace, span, want string }{
		{`"1"`, `"2"`, "00000000000000000000000000000001 0000000000000002"},
		{`"AbC"`, `"44ae089"`, "00000000000000000000000000000abc 00000000044ae089"},
		{`"0AF7651916CD43DD8448EB211C80319C"`, `"b7AD6B7169203331"`, "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331"},
		{`"00"`, `"2"`, ""},
		{`12`, `7`, "00000000000000000000000000000012 0000000000000007"}, // numbers are rendered as text
		{`"\u0031\u0041"`, `"\u0032"`, "0000000000000000000000000000001a 0000000000000002"},
		{`"ffffffffffffffffffffffffffffffff"`, `"8000000000000000"`, "ffffffffffffffffffffffffffffffff 8000000000000000"},
	} {
		data, _ := encode(t, testOptions(), export(`[{"spanId":`+test.span+`,"traceId":`+test.trace+`}]`))
		got := ""
		for _, s := range spansOf(data) {
			got = fmt.Sprintf("%x %x", s.TraceId, s.SpanId)
		}
		assert.Check(t, got == test.want, "%s %s: %s, want %s", test.trace, test.span, got, test.want)
	}
}

func TestParent(t *testing.T) {
	for _, test := range []struct {
		members, want string
		invalid       int
	}{
		{``, " flags 0x1", 0},
		{`null`, " flags 0x1", 0},
		{`""`, " flags 0x1", 0},
		{`"0"`, " flags 0x1", 0},
		{`"0000000000000000"`, " flags 0x1", 0},
		{`null,"sameProcessAsParentSpan":false`, " flags 0x1", 0},
		{`"ff"`, "00000000000000ff flags 0x1", 0},
		{`"f067aa0ba902b7","sameProcessAsParentSpan":true`, "00f067aa0ba902b7 flags 0x101", 0},
		{`"FFFFFFFFFFFFFFFF","sameProcessAsParentSpan":false`, "ffffffffffffffff flags 0x301", 0},
		{`"1","sameProcessAsParentSpan":null`, "0000000000000001 flags 0x1", 0},
		{`"1","sameProcessAsParentSpan":"true"`, "0000000000000001 flags 0x1", 0},
		{`"d3c21bcecceda0ffffff","sameProcessAsParentSpan":false`, " flags 0x1", 1},
		{`"00000000000000001"`, " flags 0x1", 1},
		{`"00000000000000000"`, " flags 0x1", 1},
		{`"12x"`, " flags 0x1", 1},
		{`true`, " flags 0x1", 1},
		{`{}`, " flags 0x1", 0},
		{`[1]`, " flags 0x1", 0},
	} {
		members := ""
		if test.members != "" {
			members = `,"parentSpanId":` + test.members
		}
		s, r := oneSpan(t, testOptions(), members)
		got := fmt.Sprintf("%x flags %#x", s.ParentSpanId, s.Flags)
		assert.Check(t, got == test.want && r.InvalidParents == test.invalid,
			"%s: %s, %d invalid", test.members, got, r.InvalidParents)
	}
}

func TestNameAndKind(t *testing.T) {
	cut := testOptions()
	cut.CutQueries = true
	for _, test := range []struct {
		members string
		options Options
		want    string
	}{
		{``, testOptions(), `SPAN_KIND_INTERNAL "unknown"`},
		{`,"name":null,"kind":null`, testOptions(), `SPAN_KIND_INTERNAL "unknown"`},
		{`,"name":"","kind":7`, testOptions(), `SPAN_KIND_INTERNAL "unknown"`},
		{`,"name":[1],"kind":"SPAN_KIND_UNSPECIFIED"`, testOptions(), `SPAN_KIND_INTERNAL "unknown"`},
		{`,"name":42,"kind":"INTERNAL"`, testOptions(), `SPAN_KIND_INTERNAL "42"`},
		{`,"name":-1.50e+2,"kind":"server"`, testOptions(), `SPAN_KIND_INTERNAL "-1.50e+2"`},
		{`,"name":true,"kind":"PRODUCER"`, testOptions(), `SPAN_KIND_PRODUCER "true"`},
		{`,"name":false,"kind":"CONSUMER"`, testOptions(), `SPAN_KIND_CONSUMER "false"`},
		{`,"name":"first","name":"last","kind":"CLIENT"`, testOptions(), `SPAN_KIND_CLIENT "last"`},
		{`,"n\u0061me":"x","\u006bind":"CLIENT"`, testOptions(), `SPAN_KIND_CLIENT "x"`},
		{`,"name":"\/cart?id=7","kind":"SERVER"`, testOptions(), `SPAN_KIND_SERVER "/cart?id=7"`},
		{`,"name":"\/cart?id=7?","kind":"SERVER"`, cut, `SPAN_KIND_SERVER "/cart"`},
		{`,"name":"?id=7","kind":"SERVER"`, cut, `SPAN_KIND_SERVER "unknown"`},
		{`,"name":"\/cart?id=7","kind":"CLIENT"`, cut, `SPAN_KIND_CLIENT "/cart?id=7"`},
	} {
		s, _ := oneSpan(t, test.options, test.members)
		got := fmt.Sprintf("%s %q", s.Kind, s.Name)
		assert.Check(t, got == test.want, "%s: %s, want %s", test.members, got, test.want)
	}
}

func at(date, kind, zone string) string {
	return fmt.Sprintf(`{"date":"%s","timezone_type":%s,"timezone":"%s"}`, date, kind, zone)
}

func TestTimes(t *testing.T) {
	early, late := at("2026-11-20 12:00:00.000000", "3", "UTC"), at("2026-11-20 12:00:01.500000", "1", "+00:00")
	epoch := at("1970-01-01 00:00:00.000000", "1", "+00:00")
	after := at("2030-01-01 00:00:00.000000", "3", "UTC")
	const earlyText, lateText, sentText = "2026-11-20T12:00:00Z", "2026-11-20T12:00:01.5Z", "2026-11-20T17:41:38.07336Z"
	for _, test := range []struct{ start, end, want string }{
		{early, late, earlyText + " to " + lateText},
		{late, early, lateText + " to " + lateText},
		{"null", late, lateText + " to " + lateText},
		{epoch, late, lateText + " to " + lateText},
		{early, "null", earlyText + " to " + sentText + " unfinished"},
		{early, epoch, earlyText + " to " + sentText + " unfinished"},
		{after, "null", "2030-01-01T00:00:00Z to 2030-01-01T00:00:00Z unfinished"},
		{"null", "null", sentText + " to " + sentText + " unfinished"},
		{"[]", `"2026-11-20 12:00:00"`, sentText + " to " + sentText + " unfinished"},
		{early, at("2262-04-12 00:00:00.000000", "3", "UTC"), earlyText + " to " + sentText + " unfinished"},
		{early, at("1969-12-31 23:59:59.999999", "3", "UTC"), earlyText + " to " + sentText + " unfinished"},
	} {
		s, _ := oneSpan(t, testOptions(), `,"startTime":`+test.start+`,"endTime":`+test.end)
		got := clock(s.StartTimeUnixNano) + " to " + clock(s.EndTimeUnixNano)
		switch all := showAll(s.Attributes, " "); all {
		case "":
		case " opencensus.unfinished=true":
			got += " unfinished"
		default:
			t.Errorf("attributes %s", all)
		}
		assert.Check(t, got == test.want, "%s, %s: %s, want %s", test.start, test.end, got, test.want)
	}
}

func TestZones(t *testing.T) {
	for _, test := range []struct {
		time, want string // "": missing
		unknown    int
	}{
		{at("2024-07-01 12:00:00.000001", "3", `Europe\/Paris`), "2024-07-01T10:00:00.000001Z", 0},
		{at("2024-01-01 12:00:00.000001", "3", "Europe/Paris"), "2024-01-01T11:00:00.000001Z", 0},
		{at("2024-07-01 12:00:00.500000", "1", "-07:30"), "2024-07-01T19:30:00.5Z", 0},
		{at("2024-07-01 12:00:00.5", "1", "+05:45:30"), "2024-07-01T06:14:30.5Z", 0},
		{at("2024-02-29 23:59:59.999999", "3", "America/Argentina/Buenos_Aires"), "2024-03-01T02:59:59.999999Z", 0},
		{at("2024-07-01 12:00:00", "3", "GMT"), "2024-07-01T12:00:00Z", 0},
		{at("2024-07-01 12:00:00", "2", "GMT"), "2024-07-01T12:00:00Z", 0},
		{at("2024-07-01 12:00:00", "2", "UTC"), "2024-07-01T12:00:00Z", 0},
		{at("2024-07-01 12:00:00", "2", "Z"), "2024-07-01T12:00:00Z", 0},
		{at("2024-07-01 12:00:00", "2", "EST"), "2024-07-01T17:00:00Z", 0},
		{at("2024-07-01 12:00:00", "2", "CEST"), "2024-07-01T10:00:00Z", 0},
		{at("2024-01-01 12:00:00", "2", "PDT"), "2024-01-01T19:00:00Z", 0}, // also in winter
		{at("2024-07-01 12:00:00", "2", "ACST"), "2024-07-01T02:30:00Z", 0},
		{at("2024-07-01 12:00:00", "2", "WET"), "2024-07-01T12:00:00Z", 0},
		{at("2024-07-01 12:00:00", "2", "MSD"), "2024-07-01T08:00:00Z", 0},
		{at("2024-07-01 12:00:00", "2", "NDT"), "2024-07-01T14:30:52Z", 0}, // PHP takes St. John's of 1917
		{at("2024-07-01 12:00:00", "2", "A"), "2024-07-01T11:00:00Z", 0},
		{at("2024-07-01 12:00:00", "2", ""), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "2", `A 3600\nACDT`), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "2", "est"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "2", "XYZ"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "3", "Europe/Nowhere"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "3", "Local"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "3", ""), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "3", "../../../../etc/localtime"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "3", `GB\nGMT`), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "1", "+0000"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "1", "+0x:00"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "1", "+0/:00"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "1", "+.1:00"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "1", "+01-00"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "1", "x01:00"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "1", "+01:00:0"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "1", "+01:00x00"), "2024-07-01T12:00:00Z", 1},
		{at("2024-07-01 12:00:00", "4", "UTC"), "2024-07-01T12:00:00Z", 1},
		{`{"date":"2024-07-01 12:00:00.000000"}`, "2024-07-01T12:00:00Z", 1},
		{at("1970-01-01 01:00:00.000000", "3", "Europe/Paris"), "", 0},
		{at("1970-01-01 00:00:00.000001", "3", "UTC"), "1970-01-01T00:00:00.000001Z", 0},
		{at("2262-04-11 23:47:15.999999", "3", "UTC"), "2262-04-11T23:47:15.999999Z", 0},
		{at("2262-04-11 23:47:16.000000", "3", "UTC"), "", 0},
		{at("9999-12-31 23:59:59.999999", "3", "UTC"), "", 0},
		{at("2023-02-29 12:00:00", "3", "UTC"), "", 0},
		{at("2100-02-29 12:00:00", "3", "UTC"), "", 0},
		{at("2000-02-29 12:00:00", "3", "UTC"), "2000-02-29T12:00:00Z", 0},
		{at("2024-04-31 12:00:00", "3", "UTC"), "", 0},
		{at("2024-13-01 12:00:00", "3", "UTC"), "", 0},
		{at("2024-00-01 12:00:00", "3", "UTC"), "", 0},
		{at("2024-01-00 12:00:00", "3", "UTC"), "", 0},
		{at("2024-01-01 24:00:00", "3", "UTC"), "", 0},
		{at("2024-01-01 12:60:00", "3", "UTC"), "", 0},
		{at("2024-01-01 12:00:60", "3", "UTC"), "", 0},
		{at("2024-01-01 12:00:00.", "3", "UTC"), "", 0},
		{at("2024-01-01 12:00:00,5", "3", "UTC"), "", 0},
		{at("2024-01-01 12:00:00.1234567890", "3", "UTC"), "", 0},
		{at("2024-01-01 12:00:00.123456789", "3", "UTC"), "2024-01-01T12:00:00.123456789Z", 0},
		{at("2024-01-01T12:00:00", "3", "UTC"), "", 0},
		{at("2024-01-01 1:00:00.0", "3", "UTC"), "", 0},
		{at("-0001-11-30 00:00:00.000000", "3", "UTC"), "", 0},
		{at("02024-01-01 12:00:00", "3", "UTC"), "", 0},
		{`{"date":20240101,"timezone_type":3,"timezone":"UTC"}`, "", 0},
	} {
		s, r := oneSpan(t, testOptions(), `,"startTime":`+test.time+`,"endTime":`+at("2262-04-11 00:00:00", "3", "UTC"))
		got := clock(s.StartTimeUnixNano)
		if got == "2262-04-11T00:00:00Z" {
			got = ""
		}
		assert.Check(t, got == test.want && r.UnknownZones == test.unknown,
			"%s: %s, %d unknown zones, want %s", test.time, got, r.UnknownZones, test.want)
	}
}

// The text of a name, by the JSON of it.
func TestText(t *testing.T) {
	for from, want := range map[string]string{
		`plain`:                          "plain",
		`\"\\\/\b\f\n\r\t`:               "\"\\/\b\f\n\r\t",
		`nul\u0000`:                      "nul\x00",
		`gr\u00f6\u00DFe größe`:          "größe größe",
		`\ud83d\ude00 😀`:                 "😀 😀",
		`\ud83d`:                         "\uFFFD",
		`\ud83dx`:                        "\uFFFDx",
		`\ude00\ud83d`:                   "\uFFFD\uFFFD",
		`\ud83d\ud83d\ude00`:             "\uFFFD😀",
		`\ud83d\n`:                       "\uFFFD\n",
		`\ud83d\u0041`:                   "\uFFFDA",
		"a\xffb":                         "a\uFFFDb",
		"a\xff\xfe\xc3":                  "a\uFFFD\uFFFD\uFFFD", // one for each byte
		"\xe2\x82":                       "\uFFFD\uFFFD",
		"\xc0\x80":                       "\uFFFD\uFFFD",             // overlong
		"\xed\xa0\x80":                   "\uFFFD\uFFFD\uFFFD",       // a surrogate
		"\xf4\x90\x80\x80":               "\uFFFD\uFFFD\uFFFD\uFFFD", // beyond U+10FFFF
		"\xc3\\u00a9":                    "\uFFFD©",
		"\x7f\ufffd":                     "\x7f\uFFFD",
		strings.Repeat(`0123456\/`, 100): strings.Repeat("0123456/", 100),
	} {
		s, _ := oneSpan(t, testOptions(), `,"name":"`+from+`"`)
		assert.Check(t, s.Name == want, "%.80q: %.80q, want %.80q", from, s.Name, want)
	}
}

func TestStatus(t *testing.T) {
	for _, test := range []struct{ kind, status, code, want string }{
		{"SERVER", `null`, ``, ""},
		{"SERVER", `{}`, `"200"`, ""},
		{"SERVER", `{}`, `"499"`, ""},
		{"SERVER", `null`, `"500"`, `ERROR ""`},
		{"SERVER", `{}`, `503`, `ERROR ""`},
		{"SERVER", `[]`, `"500"`, `ERROR ""`},
		{"CLIENT", `null`, `"399"`, ""},
		{"CLIENT", `null`, `"400"`, `ERROR ""`},
		{"SERVER", `{"code":100}`, ``, ""},
		{"PRODUCER", `null`, `"500"`, ""},
		{"INTERNAL", `null`, `"500"`, ""},
		{"SERVER", `null`, `"5xx"`, ""},
		{"SERVER", `null`, `"-500"`, ""},
		{"SERVER", `null`, `"99999999999999999999"`, ""},
		{"SERVER", `null`, `500.5`, ""},
		{"SERVER", `null`, `["500"]`, ""},
		{"SERVER", `{"code":0,"message":"fine"}`, `"500"`, ""},
		{"CLIENT", `{"code":5,"message":"n\u00f6"}`, ``, `ERROR "nö"`},
		{"INTERNAL", `{"code":16,"message":""}`, `"200"`, `ERROR ""`},
		{"INTERNAL", `{"message":null,"code":1}`, `"200"`, `ERROR ""`},
		{"INTERNAL", `{"code":17,"message":"odd"}`, ``, `ERROR "odd"`},
		{"INTERNAL", `{"code":99,"message":7}`, ``, `ERROR "7"`},
		{"INTERNAL", `{"code":-1,"message":"odd"}`, ``, `ERROR "odd"`},
		{"SERVER", `{"code":500,"message":"oops"}`, `"200"`, `ERROR "oops"`},
		{"SERVER", `{"code":404,"message":"none"}`, `"500"`, ""},
		{"CLIENT", `{"code":404}`, ``, `ERROR ""`},
		{"INTERNAL", `{"code":500}`, ``, ""},
		{"SERVER", `{"code":"5","message":"text"}`, `"500"`, `ERROR ""`},
	} {
		members := `,"kind":"` + test.kind + `","status":` + test.status
		if test.code != "" {
			members += `,"attributes":{"http.status_code":` + test.code + `}`
		}
		s, _ := oneSpan(t, testOptions(), members)
		got := ""
		if s.Status != nil {
			got = fmt.Sprintf("%s %q", strings.TrimPrefix(s.Status.Code.String(), "STATUS_CODE_"), s.Status.Message)
		}
		assert.Check(t, got == test.want, "%s: %s, want %s", members, got, test.want)
	}
}
