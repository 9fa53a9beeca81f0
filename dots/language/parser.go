package language

import (
	"slices"
	"strconv"
	"strings"
)

// declaration is a struct or an enum as it is written.
type declaration struct {
	at      position
	name    string
	enum    bool
	doc     string
	options []option
	items   []item

	building bool // on the way to what it depends on
}

// item is a property or an enumerator as it is written.
type item struct {
	at       position // of the tag
	tag      uint32
	name     string
	typeName string // of a property
	typeAt   position
	options  []option
	hasValue bool // of an enumerator
	value    int32
	doc      string
}

// option is an option as it is written; one without a value is "true".
type option struct {
	at    position
	name  string
	value string
}

// parser reads the declarations of one file. After an error, what follows is the end of the file, and no other error
// counts: so err is looked at once, in the end.
type parser struct {
	scanner      scanner
	token        token // the next one that documents nothing
	docs         []token
	file         *File
	declarations []*declaration
	err          error
}

// fail notes an error, if it is the first.
func (p *parser) fail(err error) {
	if p.err == nil {
		p.err, p.token = err, token{}
	}
}

// advance reads the next token. Documentation is put aside.
func (p *parser) advance() {
	p.docs = p.docs[:0]
	for p.err == nil {
		t, err := p.scanner.next()
		if err != nil {
			p.fail(err)
			return
		}
		if t.kind != doc && t.kind != docBack {
			p.token = t
			return
		}
		p.docs = append(p.docs, t)
	}
}

// expect passes a token of a kind, and returns it.
func (p *parser) expect(kind tokenKind, what string) token {
	t := p.token
	if t.kind != kind {
		p.fail(t.at.errorf("%s expected, found %v", what, t))
	}
	p.advance()
	return t
}

// accept passes a token of a kind if it is the next one.
func (p *parser) accept(kind tokenKind) bool {
	is := p.token.kind == kind
	if is {
		p.advance()
	}
	return is
}

// takeDoc removes from what was put aside what documents a thing that ends in a line: comments
// there, and those that say so. Without a line (0) it takes all others.
func (p *parser) takeDoc(line int) string {
	var taken []string
	var left []token
	for _, t := range p.docs {
		if t.kind == docBack && line > 0 || (t.kind == doc && line == 0) || t.at.line == line {
			taken = append(taken, t.text)
		} else {
			left = append(left, t)
		}
	}
	p.docs = left
	return strings.Join(taken, "\n")
}

func (p *parser) parseFile() {
	p.advance()
	for p.token.kind != endOfFile {
		documentation := p.takeDoc(0)
		t := p.expect(word, `"struct", "enum", "import" or "package"`)
		switch t.text {
		case "import":
			p.file.Imports = append(p.file.Imports, p.expect(word, "name of a type").text)
		case "package":
			p.parsePackage()
		case "struct", "enum":
			p.parseDeclaration(t.text, documentation)
		default:
			p.fail(t.at.errorf(`"struct", "enum", "import" or "package" expected, found %v`, t))
		}
	}
}

func (p *parser) parsePackage() {
	var parts []string
	for more := true; more; more = p.accept('.') {
		parts = append(parts, p.expect(word, "name of a package").text)
	}
	p.file.Package = strings.Join(parts, ".")
}

// parseDeclaration reads a struct or an enum behind its first word.
func (p *parser) parseDeclaration(what, documentation string) {
	name := p.expect(word, "name of the "+what)
	d := &declaration{at: name.at, name: name.text, enum: what == "enum", doc: documentation}
	if !d.enum {
		d.options = p.parseOptions()
	}
	p.expect('{', `"{"`)
	for p.err == nil && p.token.kind != '}' {
		p.parseItem(d)
	}
	p.declarations = append(p.declarations, d)
	p.advance()
}

// parseItem reads a property or an enumerator.
func (p *parser) parseItem(d *declaration) {
	i := item{at: p.token.at, doc: p.takeDoc(0)}
	tag := p.expect(number, `tag or "}"`)
	value, err := strconv.ParseUint(tag.text, 10, 32)
	if err != nil {
		p.fail(tag.at.errorf("tag %s is out of range", shorten(tag.text)))
	}
	i.tag = uint32(value)
	p.expect(':', `":"`)
	parse := p.parseProperty
	if d.enum {
		parse = p.parseEnumerator
	}
	if behind := p.takeDoc(parse(&i)); behind != "" {
		i.doc = strings.TrimPrefix(i.doc+"\n"+behind, "\n")
	}
	d.items = append(d.items, i)
}

// parseProperty reads a property behind its tag, and returns the line that it ends in.
func (p *parser) parseProperty(i *item) (line int) {
	i.options = p.parseOptions()
	i.typeAt = p.token.at
	i.typeName = p.parseType()
	i.name = p.expect(word, "name of the property").text
	return p.expect(';', `";"`).at.line
}

// parseType reads the name of a type.
func (p *parser) parseType() string {
	name := p.expect(word, "type")
	if name.text != "vector" || !p.accept('<') {
		return name.text
	}
	elem := p.expect(word, "type")
	if p.token.kind == '<' {
		p.fail(elem.at.errorf("a vector of vectors, which no implementation can decode"))
	}
	p.expect('>', `">"`)
	return "vector<" + elem.text + ">"
}

// parseEnumerator reads an enumerator behind its tag, and returns the line that it ends in.
func (p *parser) parseEnumerator(i *item) (line int) {
	end := p.expect(word, "name of the enumerator")
	i.name = end.text
	if i.hasValue = p.accept('='); i.hasValue {
		sign := ""
		if p.accept('-') {
			sign = "-"
		}
		end = p.expect(number, "value of the enumerator")
		value, err := strconv.ParseInt(sign+end.text, 10, 32)
		if err != nil {
			p.fail(end.at.errorf("value %s is out of range", shorten(sign+end.text)))
		}
		i.value = int32(value)
	}
	if p.token.kind == ',' {
		end = p.token
		comments := slices.Clone(p.docs)
		p.advance()
		p.docs = append(comments, p.docs...)
	}
	return end.at.line
}

// parseOptions reads options, if there are any.
func (p *parser) parseOptions() (options []option) {
	if !p.accept('[') {
		return nil
	}
	for more := true; more; more = p.accept(',') {
		name := p.expect(word, "name of an option")
		o := option{at: name.at, name: name.text, value: "true"}
		if p.accept('=') {
			value := p.token
			if o.value = value.text; value.kind == word {
				o.value = strings.ToLower(o.value)
			}
			if value.kind != text && o.value != "true" && o.value != "false" {
				p.fail(value.at.errorf("string, true or false expected, found %v", value))
			}
			p.advance()
		}
		options = append(options, o)
	}
	p.expect(']', `"," or "]"`)
	return options
}
