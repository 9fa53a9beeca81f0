package validate

// tagDictionary is the tag of the dictionary of a request.
const tagDictionary = 2<<3 | wireBytes

// tableMessage returns the message of the entries of a table.
func tableMessage(t table) *messageType { return msgDictionary.fields[t].message }

// dictionary counts the entries of the tables and checks them. All profiles share the tables, so a
// problem with one entry rejects all of them.
func (c *checker) dictionary() problem {
	c.tables = make([]int, len(msgDictionary.fields))
	where := uint32(0)
	for f := range c.fields(c.all()) {
		if f.tag != tagDictionary {
			continue
		}
		where = f.whole.from
		for g := range c.fields(f.body) {
			if describe(msgDictionary, g.tag).kind != unknown {
				c.tables[g.tag.number()]++
			}
		}
	}
	for t, e := range msgDictionary.fields {
		if e.kind != unknown && c.tables[t] == 0 {
			return found(BadIndex, where, "a table has no zero entry")
		}
	}
	seen := make([]bool, len(msgDictionary.fields))
	for f := range c.fields(c.all()) {
		if f.tag != tagDictionary {
			continue
		}
		for g := range c.fields(f.body) {
			if describe(msgDictionary, g.tag).kind == unknown {
				continue
			}
			t := table(g.tag.number())
			if bad := c.tableEntry(t, g, !seen[t]); bad.found() {
				return bad
			}
			seen[t] = true
		}
	}
	return problem{}
}

// tableEntry checks one entry of a table.
func (c *checker) tableEntry(t table, f field, first bool) problem {
	if first {
		if !c.isZeroEntry(t, f) {
			return found(BadIndex, f.whole.from, "the zero entry is not zero")
		}
		return problem{}
	}
	switch t {
	case stringTable:
		return problem{}
	case links:
		var traceID, spanID field
		for g := range c.fields(f.body) {
			switch g.tag {
			case tagTraceID:
				traceID = g
			case tagSpanID:
				spanID = g
			}
		}
		if !c.isID(traceID, traceIDSize) || !c.isID(spanID, spanIDSize) {
			return found(BadID, f.whole.from, "ids of a link are not 16 and 8 bytes, or zero")
		}
	}
	return c.clean(tableMessage(t), f.body, 0)
}

// isZeroEntry reports whether no field of an entry has a value. The ids of a link may be present
// and zero.
func (c *checker) isZeroEntry(t table, f field) bool {
	if t == stringTable {
		return f.body.size() == 0
	}
	for g := range c.fields(f.body) {
		switch {
		case describe(tableMessage(t), g.tag).kind == unknown:
		case g.value != 0, g.body.size() > 0 && !(t == links && c.isZero(g.body)):
			return false
		}
	}
	return true
}

// Tags of a Profile, and field numbers of a Sample.
const (
	tagSamples       = 2<<3 | wireBytes
	tagProfileID     = 7<<3 | wireBytes
	tagPayloadFormat = 9<<3 | wireBytes
	tagPayload       = 10<<3 | wireBytes

	sampleValues     = 4
	sampleTimestamps = 5
)

const profileIDSize = 16

// profile checks a profile. Its samples are the items; without any, the profile itself is one, as
// it may have the original payload.
func (c *checker) profile(f field, bad problem) {
	before := c.save()
	samples := 0
	var format, payload, id part
	var first problem
	for g := range c.fields(f.body) {
		switch g.tag {
		case tagSamples:
			samples++
			if !bad.found() && !first.found() {
				first = c.sample(g)
			}
		case tagProfileID:
			id = g.body
		case tagPayloadFormat:
			format = g.body
		case tagPayload:
			payload = g.body
		}
	}
	switch {
	case bad.found():
	case first.found():
		bad = first
	case id.size() != 0 && (id.size() != profileIDSize || c.isZero(id)):
		bad = found(BadID, f.whole.from, "profile_id is not 16 bytes, or zero")
	case (format.size() == 0) != (payload.size() == 0):
		bad = found(BadShape, f.whole.from, "original_payload and original_payload_format: one without the other")
	default:
		bad = c.clean(msgProfile, f.body, 0)
	}
	c.complete(f, onItem, max(samples, 1), bad, before)
}

// sample checks that there are values, timestamps, or as many of both.
func (c *checker) sample(sample field) problem {
	values, timestamps := 0, 0
	for f := range c.fields(sample.body) {
		switch k := describe(msgSample, f.tag).kind; {
		case k == varints && f.tag.number() == sampleValues:
			for range c.varints(f) {
				values++
			}
		case k == fixed64s && f.tag.number() == sampleTimestamps:
			for range c.fixed64s(f) {
				timestamps++
			}
		}
	}
	switch {
	case values+timestamps == 0:
		return found(BadShape, sample.whole.from, "has neither values nor timestamps")
	case values != timestamps && values != 0 && timestamps != 0:
		return found(BadShape, sample.whole.from, "values and timestamps are not of the same number")
	}
	return problem{}
}
