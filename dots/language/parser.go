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

// parser reads the declarations of one file.
type parser struct {
	scanner      scanner
	token        token // the next one that documents nothing
	docs         []token
	file         *File
	declarations []*declaration
}

// advance reads the next token. Documentation is put aside.
func (p *parser) advance() error {
	p.docs = p.docs[:0]
	for {
		t, err := p.scanner.next()
		if err != nil {
			return err
		}
		if t.kind != doc && t.kind != docBack {
			p.token = t
			return nil
		}
		p.docs = append(p.docs, t)
	}
}

// expect passes a token of a kind, and returns it.
func (p *parser) expect(kind tokenKind, what string) (token, error) {
	t := p.token
	if t.kind != kind {
		return t, t.at.errorf("%s expected, found %v", what, t)
	}
	return t, p.advance()
}

// accept passes a token of a kind if it is the next one.
func (p *parser) accept(kind tokenKind) (bool, error) {
	if p.token.kind != kind {
		return false, nil
	}
	return true, p.advance()
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

func (p *parser) parseFile() error {
	if err := p.advance(); err != nil {
		return err
	}
	for p.token.kind != endOfFile {
		documentation := p.takeDoc(0)
		t, err := p.expect(word, `"struct", "enum", "import" or "package"`)
		if err != nil {
			return err
		}
		switch t.text {
		case "import":
			err = p.parseImport()
		case "package":
			err = p.parsePackage()
		case "struct", "enum":
			err = p.parseDeclaration(t.text == "enum", documentation)
		default:
			err = t.at.errorf(`"struct", "enum", "import" or "package" expected, found %v`, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) parseImport() error {
	name, err := p.expect(word, "name of a type")
	p.file.Imports = append(p.file.Imports, name.text)
	return err
}

func (p *parser) parsePackage() error {
	var parts []string
	for {
		part, err := p.expect(word, "name of a package")
		if err != nil {
			return err
		}
		parts = append(parts, part.text)
		if more, err := p.accept('.'); err != nil || !more {
			p.file.Package = strings.Join(parts, ".")
			return err
		}
	}
}

// parseDeclaration reads a struct or an enum behind its first word.
func (p *parser) parseDeclaration(enum bool, documentation string) error {
	what := "struct"
	if enum {
		what = "enum"
	}
	name, err := p.expect(word, "name of the "+what)
	if err != nil {
		return err
	}
	d := &declaration{at: name.at, name: name.text, enum: enum, doc: documentation}
	if !enum {
		if d.options, err = p.parseOptions(); err != nil {
			return err
		}
	}
	if _, err := p.expect('{', `"{"`); err != nil {
		return err
	}
	for p.token.kind != '}' {
		if err := p.parseItem(d); err != nil {
			return err
		}
	}
	p.declarations = append(p.declarations, d)
	return p.advance()
}

// parseItem reads a property or an enumerator.
func (p *parser) parseItem(d *declaration) error {
	i := item{at: p.token.at, doc: p.takeDoc(0)}
	tag, err := p.expect(number, `tag or "}"`)
	if err != nil {
		return err
	}
	value, err := strconv.ParseUint(tag.text, 10, 32)
	if err != nil {
		return tag.at.errorf("tag %s is out of range", shorten(tag.text))
	}
	i.tag = uint32(value)
	if _, err = p.expect(':', `":"`); err != nil {
		return err
	}
	var line int
	if d.enum {
		line, err = p.parseEnumerator(&i)
	} else {
		line, err = p.parseProperty(&i)
	}
	if err != nil {
		return err
	}
	if behind := p.takeDoc(line); behind != "" {
		i.doc = strings.TrimPrefix(i.doc+"\n"+behind, "\n")
	}
	d.items = append(d.items, i)
	return nil
}

// parseProperty reads a property behind its tag, and returns the line that it ends in.
func (p *parser) parseProperty(i *item) (line int, err error) {
	if i.options, err = p.parseOptions(); err != nil {
		return 0, err
	}
	i.typeAt = p.token.at
	if i.typeName, err = p.parseType(); err != nil {
		return 0, err
	}
	name, err := p.expect(word, "name of the property")
	if err != nil {
		return 0, err
	}
	i.name = name.text
	end, err := p.expect(';', `";"`)
	return end.at.line, err
}

// parseType reads the name of a type.
func (p *parser) parseType() (string, error) {
	name, err := p.expect(word, "type")
	if err != nil || name.text != "vector" || p.token.kind != '<' {
		return name.text, err
	}
	if err := p.advance(); err != nil {
		return "", err
	}
	elem, err := p.expect(word, "type")
	if err != nil {
		return "", err
	}
	if p.token.kind == '<' {
		return "", elem.at.errorf("a vector of vectors, which no implementation can decode")
	}
	_, err = p.expect('>', `">"`)
	return "vector<" + elem.text + ">", err
}

// parseEnumerator reads an enumerator behind its tag, and returns the line that it ends in.
func (p *parser) parseEnumerator(i *item) (line int, err error) {
	end := p.token
	if _, err = p.expect(word, "name of the enumerator"); err != nil {
		return 0, err
	}
	i.name = end.text
	if i.hasValue, err = p.accept('='); err != nil {
		return 0, err
	}
	if i.hasValue {
		minus, err := p.accept('-')
		if err != nil {
			return 0, err
		}
		if end, err = p.expect(number, "value of the enumerator"); err != nil {
			return 0, err
		}
		digits := end.text
		if minus {
			digits = "-" + digits
		}
		value, err := strconv.ParseInt(digits, 10, 32)
		if err != nil {
			return 0, end.at.errorf("value %s is out of range", shorten(digits))
		}
		i.value = int32(value)
	}
	if p.token.kind == ',' {
		end = p.token
		comments := slices.Clone(p.docs)
		if err := p.advance(); err != nil {
			return 0, err
		}
		p.docs = append(comments, p.docs...)
	}
	return end.at.line, nil
}

// parseOptions reads options, if there are any.
func (p *parser) parseOptions() ([]option, error) {
	more, err := p.accept('[')
	var options []option
	for more && err == nil {
		var name token
		if name, err = p.expect(word, "name of an option"); err != nil {
			return nil, err
		}
		o := option{at: name.at, name: name.text, value: "true"}
		var assigned bool
		if assigned, err = p.accept('='); err != nil {
			return nil, err
		}
		if assigned {
			value := p.token
			if value.kind != word && value.kind != text {
				return nil, value.at.errorf("string, true or false expected, found %v", value)
			}
			o.value = value.text
			if value.kind == word {
				o.value = strings.ToLower(value.text)
				if o.value != "true" && o.value != "false" {
					return nil, value.at.errorf("string, true or false expected, found %v", value)
				}
			}
			if err = p.advance(); err != nil {
				return nil, err
			}
		}
		options = append(options, o)
		if more, err = p.accept(','); err == nil && !more {
			_, err = p.expect(']', `"," or "]"`)
		}
	}
	return options, err
}
