package profiles

import (
	"encoding/binary"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// schemaURL is the version of OpenTelemetry's conventions that attributes are named after.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// scopeName says who made the profiles.
const scopeName = "correlator"

// What a request is made of (profiles_service.proto, profiles.proto, resource.proto, common.proto), without
// the dictionary. What is not here is left out.
//
//	message                       field  type      content
//	ExportProfilesServiceRequest      1  messages  ResourceProfiles, one for each process
//	                                  2  message   ProfilesDictionary
//	ResourceProfiles                  1  message   Resource
//	                                  2  messages  ScopeProfiles, one
//	                                  3  text      schema URL
//	Resource                          1  messages  KeyValue: 1 text, 2 AnyValue
//	ScopeProfiles                     1  message   InstrumentationScope: 1 name, 2 version
//	                                  2  messages  Profile, one
//	                                  3  text      schema URL
//	Profile                           1  message   ValueType: 1 type, 2 unit, both in the string table
//	                                  2  messages  Sample
//	                                  3  fixed64   time_unix_nano
//	                                  4  varint    duration_nano
//	                                  5  message   ValueType of the period
//	                                  6  varint    period
//	                                  7  bytes     profile_id
//	Sample                            1  varint    stack
//	                                  2  varints   attributes
//	                                  3  varint    link
//	                                  4  varints   values
//	                                  5  fixed64s  timestamps_unix_nano

// What of it is the same in all requests.
const (
	sampleType = "\x0a\x04\x08\x01\x10\x02" // samplesString, countString
	periodType = "\x2a\x04\x08\x03\x10\x04" // cpuString, nanosecondsString
)

// What things take at most in a request of less than 256 MiB, where a length or an index has four bytes.
const (
	mostHeaderBytes = tagBytes + 4
	mostVarintBytes = 10
	mostSampleBytes = mostHeaderBytes + 2*mostHeaderBytes /* stack, link */ + 3*mostHeaderBytes + 3*4 /* attributes */
	mostPointBytes  = 8 + 9                                                                           // a count is at most math.MaxInt64

	mostProfileBytes = len(sampleType) + fixedSize + tagBytes + mostVarintBytes + len(periodType) +
		tagBytes + mostVarintBytes + profileIDBytes
	profileIDBytes = tagBytes + 1 + 16
	schemaURLBytes = tagBytes + 1 + len(schemaURL)
)

// mostProcessBytes is what a process without samples takes at most.
func (b *Builder) mostProcessBytes(p *process) int {
	return 3*mostHeaderBytes + len(p.resource) + len(b.scope) + 2*schemaURLBytes + mostProfileBytes
}

// mostBytes is what the request takes at most.
func (b *Builder) mostBytes() int { return mostHeaderBytes + b.dictionary.size() + b.bytes }

func newScope(version string) []byte {
	scope := appendMessage(nil, 1, scopeName)
	if version != "" {
		scope = appendMessage(scope, 2, valid(version))
	}
	return appendMessage(nil, 1, scope)
}

// appendResource appends the field of a ResourceProfiles. Its values are text and not of the string table,
// which not all receivers know to look into.
func (b *Builder) appendResource(to []byte, r *Resource) []byte {
	var resource []byte
	add := func(key string, appendValue func(b []byte) []byte) {
		resource = appendMessage(resource, 1, appendValue(appendMessage(nil, 1, key)))
	}
	text := func(key, value string) {
		if value != "" {
			add(key, func(b []byte) []byte { return appendTextValue(b, 2, valid(value)) })
		}
	}
	text("service.name", r.ServiceName)
	text("deployment.environment.name", r.Environment)
	text("container.id", r.ContainerID)
	if r.PID > 0 {
		add("process.pid", func(b []byte) []byte { return appendNumberValue(b, 2, uint64(r.PID)) })
	}
	text("process.executable.name", r.ExecutableName)
	text("process.executable.path", r.ExecutablePath)
	text("host.id", b.options.HostID)
	return appendMessage(to, 1, resource)
}

// sizes are the lengths of what is nested, without tag and length.
type sizes struct{ resource, scope, profile int }

func (b *Builder) sizes(p *process, header []byte) (n sizes) {
	n.profile = len(header)
	if p.id != [16]byte{} {
		n.profile += profileIDBytes
	}
	for _, i := range p.samples {
		n.profile += messageSize(b.samples[i].size())
	}
	n.scope = len(b.scope) + messageSize(n.profile) + schemaURLBytes
	n.resource = len(p.resource) + messageSize(n.scope) + schemaURLBytes
	return n
}

// encode makes the request.
func (b *Builder) encode() []byte {
	header := b.profileHeader()
	total := messageSize(b.dictionary.size())
	for i := range b.processes {
		p := &b.processes[i]
		if _, err := io.ReadFull(b.options.Random, p.id[:]); err != nil {
			p.id = [16]byte{}
		}
		total += messageSize(b.sizes(p, header).resource)
	}
	body := make([]byte, 0, total)
	for i := range b.processes {
		body = b.appendProcess(body, &b.processes[i], header)
	}
	body = appendHeader(body, 2, b.dictionary.size())
	return b.dictionary.append(body)
}

// profileHeader is what all profiles have in common.
func (b *Builder) profileHeader() []byte {
	header := append([]byte(sampleType), periodType...)
	header = appendFixed(header, 3, b.start)
	header = appendVarint(header, 4, b.end-b.start)
	if rate := b.options.SamplesPerSecond; rate > 0 {
		header = appendVarint(header, 6, uint64(1e9/rate))
	}
	return header
}

func (b *Builder) appendProcess(to []byte, p *process, header []byte) []byte {
	n := b.sizes(p, header)
	to = appendHeader(to, 1, n.resource)
	to = append(to, p.resource...)
	to = appendHeader(to, 2, n.scope)
	to = append(to, b.scope...)
	to = appendHeader(to, 2, n.profile)
	to = append(to, header...)
	for _, i := range p.samples {
		to = b.samples[i].append(to)
	}
	if p.id != [16]byte{} {
		to = appendMessage(to, 7, p.id[:])
	}
	to = appendMessage(to, 3, schemaURL)
	return appendMessage(to, 3, schemaURL)
}

// attributes are the attributes that there are, in room.
func (s *sample) attributes(room *[3]int32) []int32 {
	attributes := room[:0]
	for _, i := range [...]int32{s.thread, s.name, s.transaction} {
		if i != 0 {
			attributes = append(attributes, i)
		}
	}
	return attributes
}

func (s *sample) countBytes() (n int) {
	for _, p := range s.points {
		n += protowire.SizeVarint(p.count)
	}
	return n
}

func (s *sample) size() int {
	var room [3]int32
	n := varintSize(uint64(s.stack)) + varintSize(uint64(s.link))
	if attributes := s.attributes(&room); len(attributes) > 0 {
		n += messageSize(packedSize(attributes))
	}
	return n + messageSize(s.countBytes()) + messageSize(8*len(s.points))
}

func (s *sample) append(to []byte) []byte {
	var room [3]int32
	to = appendHeader(to, 2, s.size())
	to = appendVarint(to, 1, uint64(s.stack))
	to = appendIndices(to, 2, s.attributes(&room))
	to = appendVarint(to, 3, uint64(s.link))
	to = appendHeader(to, 4, s.countBytes())
	for _, p := range s.points {
		to = protowire.AppendVarint(to, p.count)
	}
	to = appendHeader(to, 5, 8*len(s.points))
	for _, p := range s.points {
		to = binary.LittleEndian.AppendUint64(to, p.time)
	}
	return to
}
