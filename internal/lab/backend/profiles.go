package backend

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlpprofiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
)

// Profiles is what profiles tell: how often what was seen with which stack, and the frames of the
// stacks.
type Profiles struct {
	Samples   map[Sample]uint64
	Waits     map[Wait]uint64    // ns
	Stacks    map[string][]Frame // leaf first, by stack-trace-id
	Intervals []Interval         // of the profiles, as they came
	Mixed     bool               // a request had both samples and waits
}

// Interval is what a profile is of, ns since 1970.
type Interval struct{ Start, End uint64 }

// Sample identifies a process, thread, span and stack. Ids are in hexadecimal digits, or empty.
type Sample struct {
	Service, Environment, PID, Executable, HostID, ContainerID string
	Version, InstanceID, SDKName, SDKLanguage, SDKVersion      string

	TraceID, SpanID, TransactionID string // TransactionID only where it is not the SpanID
	TID                            int64
	Thread                         string
	Stack                          string // stack-trace-id, as backends print it
}

// Wait identifies waits: a sample of them, and what for.
type Wait struct {
	Sample
	Kind, Peer, Path, Waker, WakerThread, WakerTraceID, WakerTransactionID string
}

// Frame is a frame as it was sent.
type Frame struct {
	Type    string // profile.frame.type
	File    string // empty: of no file
	FileID  string // 32 hexadecimal digits
	Address uint64

	// Of the innermost line, empty without lines.
	Function, SourceFile string
	Line                 int64
}

func newProfiles() Profiles {
	return Profiles{Samples: make(map[Sample]uint64), Waits: make(map[Wait]uint64), Stacks: make(map[string][]Frame)}
}

// Profiles returns what was received so far.
func (b *Backend) Profiles() Profiles {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Profiles{Samples: maps.Clone(b.profiles.Samples), Waits: maps.Clone(b.profiles.Waits),
		Stacks: maps.Clone(b.profiles.Stacks),
		Mixed:  b.profiles.Mixed, Intervals: slices.Clone(b.profiles.Intervals)}
}

// add adds a request. With an error, a part of the request may have been added.
func (p *Profiles) add(request *collector.ExportProfilesServiceRequest) (err error) {
	defer func() { // an index outside of its table
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("profile refers to an entry that does not exist: %v", wrong)
		}
	}()
	d := dictionary{request.Dictionary}
	kinds := make(map[bool]bool)
	for _, ofResource := range request.ResourceProfiles {
		about := resourceAttributes(ofResource.Resource)
		for _, ofScope := range ofResource.ScopeProfiles {
			for _, profile := range ofScope.Profiles {
				waits, err := d.waits(profile)
				if err != nil {
					return err
				}
				kinds[waits] = true
				p.Mixed = p.Mixed || len(kinds) > 1
				at := profile.TimeUnixNano
				p.Intervals = append(p.Intervals, Interval{Start: at, End: at + profile.DurationNano})
				for _, sample := range profile.Samples {
					if err := p.addSample(d, about, profile, sample, waits); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (p *Profiles) addSample(d dictionary, about map[string]string, profile *otlpprofiles.Profile,
	s *otlpprofiles.Sample, waits bool) error {
	if len(s.TimestampsUnixNano) == 0 || len(s.Values) != 0 && len(s.Values) != len(s.TimestampsUnixNano) {
		return fmt.Errorf("sample with %d values and %d timestamps", len(s.Values), len(s.TimestampsUnixNano))
	}
	attributes := d.attributes(s.AttributeIndices)
	link := d.LinkTable[s.LinkIndex]
	sample := Sample{
		Service: about["service.name"], Environment: about["deployment.environment.name"], PID: about["process.pid"],
		Executable: about["process.executable.path"], HostID: about["host.id"], ContainerID: about["container.id"],
		Version: about["service.version"], InstanceID: about["service.instance.id"],
		SDKName: about["telemetry.sdk.name"], SDKLanguage: about["telemetry.sdk.language"],
		SDKVersion: about["telemetry.sdk.version"],
		TraceID:    id(link.TraceId), SpanID: id(link.SpanId),
		TransactionID: attributes["transaction.id"].GetStringValue(),
		TID:           attributes["thread.id"].GetIntValue(), Thread: attributes["thread.name"].GetStringValue(),
	}
	frames, stack, err := d.stack(s.StackIndex)
	if err != nil {
		return err
	}
	sample.Stack = stack
	p.Stacks[stack] = frames
	for i, at := range s.TimestampsUnixNano {
		if at < profile.TimeUnixNano || at >= profile.TimeUnixNano+profile.DurationNano {
			return fmt.Errorf("sample at %d outside of its profile", at)
		}
		if waits {
			text := func(key string) string { return attributes[key].GetStringValue() }
			p.Waits[Wait{sample, text("wait.kind"), text("network.peer.address"), text("wait.file.name"),
				text("wait.waker"),
				text("wait.waker.thread.name"), text("wait.waker.trace_id"), text("wait.waker.transaction.id"),
			}] += uint64(s.Values[i])
		} else if len(s.Values) > 0 {
			p.Samples[sample] += uint64(s.Values[i])
		} else {
			p.Samples[sample]++ // a timestamp alone stands for one
		}
	}
	return nil
}

type dictionary struct {
	*otlpprofiles.ProfilesDictionary
}

// waits reports whether p is a profile of waits. It returns an error unless it is that, or of CPU samples, which alone
// backends take that store stacks by id.
func (d dictionary) waits(p *otlpprofiles.Profile) (bool, error) {
	name := func(t *otlpprofiles.ValueType) string {
		return d.StringTable[t.GetTypeStrindex()] + " in " + d.StringTable[t.GetUnitStrindex()]
	}
	switch samples, period := name(p.SampleType), name(p.PeriodType); samples + ", " + period {
	case "samples in count, cpu in nanoseconds":
		return false, nil
	case "off_cpu in nanoseconds, context_switch in count":
		for _, s := range p.Samples {
			if len(s.Values) != 1 {
				return true, fmt.Errorf("a wait with %d values", len(s.Values))
			}
		}
		return true, nil
	default:
		return false, fmt.Errorf("profile of %s, every %s", samples, period)
	}
}

func (d dictionary) attributes(indices []int32) map[string]*common.AnyValue {
	found := make(map[string]*common.AnyValue)
	for _, i := range indices {
		attribute := d.AttributeTable[i]
		found[d.StringTable[attribute.KeyStrindex]] = attribute.Value
	}
	return found
}

// stack returns a stack's frames, and its id: FNV-1a with 128 bits over the file id and the decimal
// digits of the address of each frame.
func (d dictionary) stack(index int32) (frames []Frame, id string, err error) {
	hash := fnv.New128a()
	for _, i := range d.StackTable[index].LocationIndices {
		location := d.LocationTable[i]
		frame, err := d.frame(location)
		if err != nil {
			return nil, "", err
		}
		content, err := hex.DecodeString(frame.FileID)
		if err != nil || len(content) != 16 {
			return nil, "", fmt.Errorf("file id %q", frame.FileID)
		}
		hash.Write(strconv.AppendUint(content, frame.Address, 10))
		frames = append(frames, frame)
	}
	if len(frames) == 0 {
		return nil, "", fmt.Errorf("stack %d has no frames", index)
	}
	return frames, base64.RawURLEncoding.EncodeToString(hash.Sum(nil)), nil
}

func (d dictionary) frame(l *otlpprofiles.Location) (Frame, error) {
	mapping := d.MappingTable[l.MappingIndex]
	if mapping.MemoryLimit != 0 && (l.Address < mapping.MemoryStart || l.Address >= mapping.MemoryLimit) {
		return Frame{}, fmt.Errorf("address %#x is not in its mapping, %#x to %#x", l.Address, mapping.MemoryStart,
			mapping.MemoryLimit)
	}
	frame := Frame{
		Type: d.attributes(l.AttributeIndices)["profile.frame.type"].GetStringValue(),
		File: d.StringTable[mapping.FilenameStrindex], FileID: d.lineID(l.Lines), Address: l.Address,
	}
	if htlhash := d.attributes(mapping.AttributeIndices)["process.executable.build_id.htlhash"]; htlhash != nil {
		frame.FileID = htlhash.GetStringValue()
	}
	if len(l.Lines) > 0 {
		function := d.FunctionTable[l.Lines[0].FunctionIndex]
		frame.Function, frame.Line = d.StringTable[function.NameStrindex], l.Lines[0].Line
		frame.SourceFile = d.StringTable[function.FilenameStrindex]
	}
	return frame, nil
}

// lineID is the file id of a location of no file: xxh64 over name, file, line and column of its
// lines, twice. Without lines it is that of no bytes.
func (d dictionary) lineID(lines []*otlpprofiles.Line) string {
	var content []byte
	for _, line := range lines {
		function := d.FunctionTable[line.FunctionIndex]
		content = append(content, d.StringTable[function.NameStrindex]...)
		content = append(content, d.StringTable[function.FilenameStrindex]...)
		content = binary.BigEndian.AppendUint64(content, uint64(line.Line))
		content = binary.BigEndian.AppendUint64(content, uint64(line.Column))
	}
	half := fmt.Sprintf("%016x", xxhash.Sum64(content))
	return half + half
}

// FileID computes the id of a file, as frames in it have it: the first half of SHA-256 over its
// first and its last 4096 bytes, and its length as 8 bytes big-endian.
func FileID(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading a file for its id: %w", err)
	}
	const piece = 4096
	hash := sha256.New()
	hash.Write(content[:min(piece, len(content))])
	hash.Write(content[max(0, len(content)-piece):])
	hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(content))))
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

func resourceAttributes(r *resource.Resource) map[string]string {
	found := make(map[string]string)
	for _, attribute := range r.GetAttributes() {
		switch value := attribute.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			found[attribute.Key] = value.StringValue
		case *common.AnyValue_IntValue:
			found[attribute.Key] = strconv.FormatInt(value.IntValue, 10)
		}
	}
	return found
}
