package unwind

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"correlator/internal/host/textcut"
)

// replacement replaces what differs in the name of a class from one run of a program to the next.
type replacement struct {
	pattern *regexp.Regexp
	by      string
}

// replacements are applied in this order. Names of classes have dots where the JVM has slashes.
var replacements = []replacement{
	// Hidden classes, by their address, also as the engine masks it.
	{regexp.MustCompile(`[+.](0x[0-9a-f]{4,16}|<hidden>)`), ``},
	// Lambdas, numbered as they are first used: Main$$Lambda$14+0x0000000800c03000 (JDK 15 to 20),
	// Main$$Lambda+0x... (21), Main$$Lambda$1.1831932724 (JDK 8 to 14: a slash and a hash code).
	{regexp.MustCompile(`\$\$Lambda(\$\d+)?(\.\d+)?`), `$$$$Lambda`},
	// Forms of method handles: LambdaForm$MH012, LambdaForm$DMH.1323165413, LambdaForm$reinvoke_003.
	{regexp.MustCompile(`\bLambdaForm\$([A-Za-z]+)(_?\d+)?(\.\d+)?`), `LambdaForm$$${1}`},
	// What reflection generates: GeneratedMethodAccessor7.
	{regexp.MustCompile(`\bGenerated([A-Za-z]*)Accessor\d+`), `Generated${1}Accessor`},
	// Proxies and their modules: jdk.proxy2.$Proxy12.
	{regexp.MustCompile(`\bjdk\.proxy\d+\.`), `jdk.proxy.`},
	{regexp.MustCompile(`\$Proxy\d+`), `$$Proxy`},
	// Classes that frameworks generate, with hash codes, numbers or random letters.
	{regexp.MustCompile(`\$\$(Enhancer|FastClass|KeyFactory)By([A-Za-z]+)\$\$[0-9a-f]+`), `$$$$${1}By${2}`},
	{regexp.MustCompile(`\$\$(SpringCGLIB|EnhancerBySpringCGLIB|FastClassBySpringCGLIB)\$\$\d+`), `$$$$${1}`},
	{
		regexp.MustCompile(
			`\$(ByteBuddy|HibernateProxy|HibernateBasicProxy|HibernateInstantiator|HibernateAccessOptimizer|` +
				`MockitoMock|auxiliary)\$[A-Za-z0-9]+`),
		`$$${1}`,
	},
}

// Stubs: the engine appends a guess of the routine, from ranges that overlap; the JVM a number.
var stubSuffix = regexp.MustCompile(`( \[[^\]]*\])+$|^(StubRoutines) \(.*$`)

// NormalizeName returns the name of a function of a JVM without what differs between two runs of one
// program: numbers and addresses of classes that are made while it runs. Of a method, with its
// signature as the engine has it ("void com.example.Main.run(int, long)"), it returns class and
// method. Other names are those of stubs. What it returns is UTF-8 without control characters, of a
// bounded length.
func NormalizeName(name string) string {
	method, isMethod := cutSignature(name) // before bounding it: arguments may be long
	if !isMethod {
		return stubSuffix.ReplaceAllString(boundName(name), "$2")
	}
	return normalizeMethod(method)
}

// NormalizeSignature is NormalizeName, but methods keep return type and arguments.
func NormalizeSignature(name string) string {
	if _, isMethod := cutSignature(name); isMethod {
		return normalizeMethod(name)
	}
	return NormalizeName(name)
}

func normalizeMethod(method string) string {
	method = boundName(method)
	if strings.ContainsAny(method, "$+0123456789") {
		for _, r := range replacements {
			method = r.pattern.ReplaceAllString(method, r.by)
		}
	}
	return boundName(method) // replacing may have lengthened it
}

// cutSignature returns class and method: what is between the return type and the arguments. A method
// may have spaces and parentheses in its name (Kotlin), types have none in practice.
func cutSignature(name string) (method string, ok bool) {
	if !strings.HasSuffix(name, ")") {
		return name, false
	}
	_, rest, found := strings.Cut(name, " ")
	arguments := strings.LastIndexByte(rest, '(')
	if !found || arguments <= 0 || !strings.Contains(rest[:arguments], ".") {
		return name, false
	}
	return rest[:arguments], true
}

// boundName makes valid UTF-8, without control characters, of at most maxNameBytes.
func boundName(name string) string {
	if !utf8.ValidString(name) {
		name = strings.ToValidUTF8(name, "\uFFFD")
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		name = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return '\uFFFD'
			}
			return r
		}, name)
	}
	if len(name) <= maxNameBytes {
		return name
	}
	return textcut.Marked(name, maxNameBytes) // without the rest
}
