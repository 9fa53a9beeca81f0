package unwind

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

func TestNormalizeName(t *testing.T) {
	for name, want := range map[string]string{
		"void com.example.Main.run(int, long)":                          "com.example.Main.run",
		"java.lang.Object com.example.Main.of()":                        "com.example.Main.of",
		"int[] Main.values(java.lang.String[])":                         "Main.values",
		"void Main.<init>()":                                            "Main.<init>",
		"void Main.<clinit>()":                                          "Main.<clinit>",
		"void com.example.SpecTest.should do (x) twice(int)":            "com.example.SpecTest.should do (x) twice",
		"java.lang.Object Main.lambda$main$12(int)":                     "Main.lambda$main$12",
		"void Outer$Inner3.get1()":                                      "Outer$Inner3.get1",
		"void A.b(" + strings.Repeat("int, ", 200) + "int)":             "A.b",
		"void Main$$Lambda$14+0x0000000800c03000.run()":                 "Main$$Lambda.run",
		"void Main$$Lambda$14+<hidden>.run()":                           "Main$$Lambda.run",
		"void Main$$Lambda+0x00007f1c2c002a40.run()":                    "Main$$Lambda.run",
		"void Main$$Lambda+<hidden>.run()":                              "Main$$Lambda.run",
		"void Main$$Lambda$1.1831932724.run()":                          "Main$$Lambda.run",
		"void Main$$Lambda$3.0x0000000800066840.run()":                  "Main$$Lambda.run",
		"void Main$$Lambda.0x00007f0fb0001000.run()":                    "Main$$Lambda.run",
		"int java.lang.invoke.LambdaForm$MH+<hidden>.invoke(int)":       "java.lang.invoke.LambdaForm$MH.invoke",
		"int java.lang.invoke.LambdaForm$DMH.1323165413.a_L_V(int)":     "java.lang.invoke.LambdaForm$DMH.a_L_V",
		"int java.lang.invoke.LambdaForm$MH012.linkToCallSite(int)":     "java.lang.invoke.LambdaForm$MH.linkToCallSite",
		"int java.lang.invoke.LambdaForm$reinvoke_003.a()":              "java.lang.invoke.LambdaForm$reinvoke.a",
		"int jdk.internal.reflect.GeneratedMethodAccessor7.invoke(int)": "jdk.internal.reflect.GeneratedMethodAccessor.invoke",
		"int sun.GeneratedSerializationConstructorAccessor1.new(int)":   "sun.GeneratedSerializationConstructorAccessor.new",
		"int jdk.internal.reflect.GeneratedConstructorAccessor19.a()":   "jdk.internal.reflect.GeneratedConstructorAccessor.a",
		"void jdk.proxy2.$Proxy12.close()":                              "jdk.proxy.$Proxy.close",
		"void com.sun.proxy.$Proxy3.close()":                            "com.sun.proxy.$Proxy.close",
		"void a.Service$$EnhancerBySpringCGLIB$$1a2b3c4d.call()":        "a.Service$$EnhancerBySpringCGLIB.call",
		"int a.Service$$FastClassByGuice$$12ab.invoke(int)":             "a.Service$$FastClassByGuice.invoke",
		"void a.Service$$SpringCGLIB$$0.call()":                         "a.Service$$SpringCGLIB.call",
		"void a.Entity$HibernateProxy$x7HgQ2aB.getId()":                 "a.Entity$HibernateProxy.getId",
		"void a.Type$MockitoMock$1234567.get()":                         "a.Type$MockitoMock.get",
		"void a.Type$ByteBuddy$AbCdEf12.get()":                          "a.Type$ByteBuddy.get",
		"StubRoutines (1)":                                              "StubRoutines",
		"StubRoutines (2) [updateBytesCRC32]":                           "StubRoutines",
		"StubRoutines (initial stubs) [forward_exception]":              "StubRoutines",
		"I2C/C2I adapters":                                              "I2C/C2I adapters",
		"RuntimeStub - _resolve_static_call [x]":                        "RuntimeStub - _resolve_static_call",
		"vtable stub":                                                   "vtable stub",
		"":                                                              "",
		"a\x00b\nc":                                                     "a\uFFFDb\uFFFDc",
		"\xff\xfe":                                                      "\uFFFD",
		"no method (1)":                                                 "no method (1)",
	} {
		got := NormalizeName(name)
		assert.Check(t, got == want, "%q is %q, want %q", name, got, want)
	}
}

func TestNormalizeSignature(t *testing.T) {
	for name, want := range map[string]string{
		"void com.example.Main.run(int, long)":                      "void com.example.Main.run(int, long)",
		"void Main$$Lambda$14+0x0000000800c03000.run(jdk.proxy2.A)": "void Main$$Lambda.run(jdk.proxy.A)",
		"StubRoutines (2) [updateBytesCRC32]":                       "StubRoutines",
		"no method (1)":                                             "no method (1)",
	} {
		got := NormalizeSignature(name)
		assert.Check(t, got == want, "%q is %q, want %q", name, got, want)
	}
}

// Whatever a name is, its normal form is bounded and printable.
func FuzzNormalizeName(f *testing.F) {
	f.Add("void com.example.Main$$Lambda$14+0x0000000800c03000.run(int)")
	f.Add("StubRoutines (2) [updateBytesCRC32]")
	f.Add("x \xff(\x00)")
	f.Add(strings.Repeat("é", maxNameBytes))
	f.Fuzz(func(t *testing.T, name string) {
		for _, got := range []string{NormalizeName(name), NormalizeSignature(name)} {
			if len(got) > maxNameBytes || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
				t.Errorf("%q is %q", name, got)
			}
		}
	})
}
