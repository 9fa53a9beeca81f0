package profiles

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/otlp/field"
	"correlator/profile"
)

// schemaURL is the version of OpenTelemetry's conventions that names the attributes.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// scopeName names the producer of the profiles.
const scopeName = "correlator"

// The messages and fields of a request that are used (profiles_service.proto, profiles.proto,
// resource.proto, common.proto), without the dictionary.
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
//	                                  4  varint    value, if it was seen more than maxTimestamps, or of waits
//	                                  5  fixed64s  timestamps_unix_nano; one beside a value

// Encoded fields that are the same in all requests.
const (
	sampleType = "\x0a\x04\x08\x01\x10\x02" // samplesString, countString
	periodType = "\x2a\x04\x08\x03\x10\x04" // cpuString, nanosecondsString
)

// waitTypes returns the fields of a profile of waits before the samples, except its time: off_cpu in nanoseconds, and
// context switches as what is counted for a period, of which there is none: with one, Pyroscope 1.21.0 takes the
// profile for one of its user's own. Their strings are in a dictionary only if there are waits.
func (d *dictionary) waitTypes() string {
	valueType := func(number protowire.Number, kind, unit int32) {
		d.entry = field.AppendHeader(d.entry, number, field.VarintSize(uint64(kind))+field.VarintSize(uint64(unit)))
		d.entry = field.AppendVarint(d.entry, 1, uint64(kind))
		d.entry = field.AppendVarint(d.entry, 2, uint64(unit))
	}
	offCPU, contextSwitch := d.string("off_cpu"), d.string("context_switch")
	d.entry = d.entry[:0]
	valueType(1, offCPU, nanosecondsString)
	valueType(5, contextSwitch, countString)
	return string(d.entry)
}

// Upper bounds of sizes in a request of less than 256 MiB, where a length has four bytes.
const (
	mostHeaderBytes = field.TagBytes + 4
	mostTimeBytes   = field.Fixed64Size + field.TagBytes + 9 // a duration is at most math.MaxInt64

	profileIDBytes = field.TagBytes + 1 + 16
	schemaURLBytes = field.TagBytes + 1 + len(schemaURL)
)

// mostProcessBytes is the upper bound of a process without samples.
func (b *Builder) mostProcessBytes(p *process) int {
	return 3*mostHeaderBytes + p.resource.bytes + len(b.scope) + 2*schemaURLBytes + len(p.types) + mostTimeBytes +
		profileIDBytes
}

// mostBytes returns an upper bound of the size of the request.
func (b *Builder) mostBytes() int { return mostHeaderBytes + b.dictionary.size() + b.bytes }

func newScope(version string) []byte {
	scope := field.Append(nil, 1, scopeName)
	if version != "" {
		scope = field.Append(scope, 2, valid(version))
	}
	return field.Append(nil, 1, scope)
}

// addResource appends the field of a ResourceProfiles to the resources. Its values are text and not
// indices of the string table, which not all receivers support there.
func (b *Builder) addResource(r *profile.Resource) piece {
	to := b.scratch[:0]
	for _, a := range [...]struct{ key, text string }{
		{"service.name", r.Service.Name},
		{"service.namespace", r.Service.Namespace},
		{"service.version", r.Service.Version},
		{"service.instance.id", r.Service.InstanceID},
		{"deployment.environment.name", r.Service.Environment},
		{"telemetry.sdk.name", r.Service.SDKName},
		{"telemetry.sdk.language", r.Service.SDKLanguage},
		{"telemetry.sdk.version", r.Service.SDKVersion},
		{"container.id", r.ContainerID},
		{"k8s.pod.uid", r.PodUID},
		{"process.executable.name", r.ExecutableName},
		{"process.executable.path", r.ExecutablePath},
		{"host.id", b.options.HostID},
		{"host.name", b.options.HostName},
	} {
		if a.text != "" {
			to = field.AppendTextAttribute(to, 1, a.key, valid(a.text))
		}
	}
	if r.PID > 0 {
		to = field.AppendIntAttribute(to, 1, "process.pid", uint64(r.PID))
	}
	b.scratch = to
	at := len(b.resources)
	b.resources = field.Append(b.resources, 1, to)
	return piece{at, len(b.resources) - at}
}

// newTypes returns the fields of a profile before the samples, except its time.
func newTypes(samplesPerSecond int) string {
	types := []byte(sampleType + periodType)
	if samplesPerSecond > 0 {
		types = field.AppendVarint(types, 6, uint64(1e9/samplesPerSecond))
	}
	return string(types)
}

// sizes has the lengths of nested messages, without tag and length.
type sizes struct{ resource, scope, profile int }

func (b *Builder) sizes(p *process) (n sizes) {
	n.profile = len(p.types) + field.Fixed64Size + field.VarintSize(b.end-b.start) + p.bytes
	if p.id != [16]byte{} {
		n.profile += profileIDBytes
	}
	n.scope = len(b.scope) + field.Size(n.profile) + schemaURLBytes
	n.resource = p.resource.bytes + field.Size(n.scope) + schemaURLBytes
	return n
}

// size returns the length of the request in bytes.
func (b *Builder) size() int {
	size := field.Size(b.dictionary.size())
	for i := range b.processes {
		size += field.Size(b.sizes(&b.processes[i]).resource)
	}
	return size
}

// encode returns the encoded request.
func (b *Builder) encode() []byte {
	body := make([]byte, 0, b.size())
	for i := range b.processes {
		body = b.appendProcess(body, &b.processes[i])
	}
	body = field.AppendHeader(body, 2, b.dictionary.size())
	return b.dictionary.append(body)
}

func (b *Builder) appendProcess(to []byte, p *process) []byte {
	n := b.sizes(p)
	to = field.AppendHeader(to, 1, n.resource)
	to = append(to, b.resources[p.resource.at:][:p.resource.bytes]...)
	to = field.AppendHeader(to, 2, n.scope)
	to = append(to, b.scope...)
	to = field.AppendHeader(to, 2, n.profile)
	to = append(to, p.types...)
	to = field.AppendFixed64(to, 3, b.start)
	to = field.AppendVarint(to, 4, b.end-b.start)
	for i := p.first; i != none; i = b.samples[i].next {
		to = b.appendSample(to, &b.samples[i])
	}
	if p.id != [16]byte{} {
		to = field.Append(to, 7, p.id[:])
	}
	to = field.Append(to, 3, schemaURL)
	return field.Append(to, 3, schemaURL)
}

// attributes returns those of our attributes that are set, in the memory of room.
func (s *sample) attributes(room *[3]int32) []int32 {
	attributes := room[:0]
	for _, i := range [...]int32{s.thread, s.name, s.transaction} {
		if i != 0 {
			attributes = append(attributes, i)
		}
	}
	return attributes
}

// sampleSize returns the length of the Sample.
func (b *Builder) sampleSize(s *sample) int {
	var room [3]int32
	n := field.VarintSize(uint64(s.stack)) + field.VarintSize(uint64(s.link))
	if attributes := packedSize(s.attributes(&room)) + len(b.dictionary.lists[s.set]) +
		len(b.dictionary.lists[s.wait]); attributes > 0 {
		n += field.Size(attributes)
	}
	if b.timestampsOnly(s) {
		return n + field.Size(8*int(s.count))
	}
	return n + field.Size(protowire.SizeVarint(s.count)) + field.Size(8)
}

func (b *Builder) appendSample(to []byte, s *sample) []byte {
	var room [3]int32
	to = field.AppendHeader(to, 2, b.sampleSize(s))
	to = field.AppendVarint(to, 1, uint64(s.stack))
	to = appendIndices(to, 2, s.attributes(&room), b.dictionary.lists[s.set], b.dictionary.lists[s.wait])
	to = field.AppendVarint(to, 3, uint64(s.link))

	if !b.timestampsOnly(s) {
		to = field.AppendHeader(to, 4, protowire.SizeVarint(s.count))
		to = protowire.AppendVarint(to, s.count)
		to = field.AppendHeader(to, 5, 8)
		return binary.LittleEndian.AppendUint64(to, b.points[s.latest].last)
	}
	to = field.AppendHeader(to, 5, 8*int(s.count))
	times := b.times[:0]
	for i := s.latest; i != none; i = b.points[i].earlier {
		p := &b.points[i]
		for n := range p.count {
			times = append(times, p.at(n))
		}
	}
	slices.Sort(times)
	for _, at := range times {
		to = binary.LittleEndian.AppendUint64(to, at)
	}
	b.times = times
	return to
}
