// Code generated from live.dots by correlator/dots/generate. DO NOT EDIT.

package types

import (
	"fmt"
	"math/bits"
	"strconv"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// CorrelatorContext is an enum; its values are the tags.
//
// By which standard a thread publishes what it works on.
type CorrelatorContext uint32

const (
	CorrelatorContextElastic       CorrelatorContext = 1
	CorrelatorContextOpentelemetry CorrelatorContext = 2
)

// String returns the name in the description.
func (x CorrelatorContext) String() string {
	switch x {
	case CorrelatorContextElastic:
		return "elastic"
	case CorrelatorContextOpentelemetry:
		return "opentelemetry"
	}
	return "CorrelatorContext(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (CorrelatorContext) Descriptor() *schema.Enum {
	return descriptorCorrelatorContext
}

var descriptorCorrelatorContext = schema.MustEnum("CorrelatorContext",
	schema.Element{Name: "elastic", Tag: 1, Value: 0},
	schema.Element{Name: "opentelemetry", Tag: 2, Value: 1},
)

func decodeCorrelatorContext(r *cbor.Reader) CorrelatorContext {
	x := CorrelatorContext(r.Uint(32))
	switch x {
	case CorrelatorContextElastic, CorrelatorContextOpentelemetry:
		return x
	}
	r.Fail(fmt.Errorf("enumerator CorrelatorContext %d: %w", x, cbor.ErrRange))
	return x
}

// CorrelatorHost is a struct; any property may be unset.
//
// A host that an agent watches.
type CorrelatorHost struct {
	Host             value.Opt[string] // key: the agent's host id, or else the host's name
	Name             value.Opt[string]
	AgentVersion     value.Opt[string]
	AgentSince       value.Opt[value.Timepoint]
	Cpus             value.Opt[uint32]
	SamplesPerSecond value.Opt[uint32]  // of every CPU
	Processes        value.Opt[uint32]  // that take part
	CPU              value.Opt[float64] // CPUs that they use together
	AgentCPU         value.Opt[float64] // CPUs that the agent uses
	AllProcesses     value.Opt[bool]    // processes of any kind are published, threads that run, CorrelatorProcessStacks
	NoTimelines      value.Opt[string]  // why there are no CorrelatorTransactionTimelines; unset: there are
}

// Properties of CorrelatorHost.
const (
	CorrelatorHostHost             value.PropertySet = 1 << 1
	CorrelatorHostName             value.PropertySet = 1 << 2
	CorrelatorHostAgentVersion     value.PropertySet = 1 << 3
	CorrelatorHostAgentSince       value.PropertySet = 1 << 4
	CorrelatorHostCpus             value.PropertySet = 1 << 5
	CorrelatorHostSamplesPerSecond value.PropertySet = 1 << 6
	CorrelatorHostProcesses        value.PropertySet = 1 << 7
	CorrelatorHostCPU              value.PropertySet = 1 << 8
	CorrelatorHostAgentCPU         value.PropertySet = 1 << 9
	CorrelatorHostAllProcesses     value.PropertySet = 1 << 10
	CorrelatorHostNoTimelines      value.PropertySet = 1 << 11
)

// CorrelatorHostKey is the key of objects of type CorrelatorHost.
type CorrelatorHostKey struct {
	Host string
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorHost) Key() CorrelatorHostKey {
	return CorrelatorHostKey{Host: x.Host.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorHost) Descriptor() *schema.Struct {
	return descriptorCorrelatorHost
}

var descriptorCorrelatorHost = schema.MustStruct("CorrelatorHost", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "name", Tag: 2, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "agentVersion", Tag: 3, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "agentSince", Tag: 4, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "cpus", Tag: 5, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "samplesPerSecond", Tag: 6, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "processes", Tag: 7, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "cpu", Tag: 8, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "agentCpu", Tag: 9, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "allProcesses", Tag: 10, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "noTimelines", Tag: 11, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *CorrelatorHost) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorHostHost
	}
	if x.Name.IsSet() {
		set |= CorrelatorHostName
	}
	if x.AgentVersion.IsSet() {
		set |= CorrelatorHostAgentVersion
	}
	if x.AgentSince.IsSet() {
		set |= CorrelatorHostAgentSince
	}
	if x.Cpus.IsSet() {
		set |= CorrelatorHostCpus
	}
	if x.SamplesPerSecond.IsSet() {
		set |= CorrelatorHostSamplesPerSecond
	}
	if x.Processes.IsSet() {
		set |= CorrelatorHostProcesses
	}
	if x.CPU.IsSet() {
		set |= CorrelatorHostCPU
	}
	if x.AgentCPU.IsSet() {
		set |= CorrelatorHostAgentCPU
	}
	if x.AllProcesses.IsSet() {
		set |= CorrelatorHostAllProcesses
	}
	if x.NoTimelines.IsSet() {
		set |= CorrelatorHostNoTimelines
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorHost) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorHostHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorHostName != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	if props&CorrelatorHostAgentVersion != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.AgentVersion.Value())
	}
	if props&CorrelatorHostAgentSince != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendFloat64(dst, float64(x.AgentSince.Value()))
	}
	if props&CorrelatorHostCpus != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendUint(dst, uint64(x.Cpus.Value()))
	}
	if props&CorrelatorHostSamplesPerSecond != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendUint(dst, uint64(x.SamplesPerSecond.Value()))
	}
	if props&CorrelatorHostProcesses != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendUint(dst, uint64(x.Processes.Value()))
	}
	if props&CorrelatorHostCPU != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendFloat64(dst, x.CPU.Value())
	}
	if props&CorrelatorHostAgentCPU != 0 {
		dst = append(dst, 9)
		dst = cbor.AppendFloat64(dst, x.AgentCPU.Value())
	}
	if props&CorrelatorHostAllProcesses != 0 {
		dst = append(dst, 10)
		dst = cbor.AppendBool(dst, x.AllProcesses.Value())
	}
	if props&CorrelatorHostNoTimelines != 0 {
		dst = append(dst, 11)
		dst = cbor.AppendString(dst, x.NoTimelines.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorHost) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorHost{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.Name.Set(r.String())
		case 3:
			x.AgentVersion.Set(r.String())
		case 4:
			x.AgentSince.Set(value.Timepoint(r.Float64()))
		case 5:
			x.Cpus.Set(uint32(r.Uint(32)))
		case 6:
			x.SamplesPerSecond.Set(uint32(r.Uint(32)))
		case 7:
			x.Processes.Set(uint32(r.Uint(32)))
		case 8:
			x.CPU.Set(r.Float64())
		case 9:
			x.AgentCPU.Set(r.Float64())
		case 10:
			x.AllProcesses.Set(r.Bool())
		case 11:
			x.NoTimelines.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorHost) Merge(from *CorrelatorHost, props value.PropertySet) {
	if props&CorrelatorHostName != 0 {
		x.Name = from.Name
	}
	if props&CorrelatorHostAgentVersion != 0 {
		x.AgentVersion = from.AgentVersion
	}
	if props&CorrelatorHostAgentSince != 0 {
		x.AgentSince = from.AgentSince
	}
	if props&CorrelatorHostCpus != 0 {
		x.Cpus = from.Cpus
	}
	if props&CorrelatorHostSamplesPerSecond != 0 {
		x.SamplesPerSecond = from.SamplesPerSecond
	}
	if props&CorrelatorHostProcesses != 0 {
		x.Processes = from.Processes
	}
	if props&CorrelatorHostCPU != 0 {
		x.CPU = from.CPU
	}
	if props&CorrelatorHostAgentCPU != 0 {
		x.AgentCPU = from.AgentCPU
	}
	if props&CorrelatorHostAllProcesses != 0 {
		x.AllProcesses = from.AllProcesses
	}
	if props&CorrelatorHostNoTimelines != 0 {
		x.NoTimelines = from.NoTimelines
	}
}

// CorrelatorProcess is a struct; any property may be unset.
//
// A process that takes part, or would but for an error.
type CorrelatorProcess struct {
	Host        value.Opt[string] // key
	Pid         value.Opt[uint32] // key
	StartTime   value.Opt[value.Timepoint]
	State       value.Opt[string] // as "correlator status" shows it
	Service     value.Opt[string]
	Environment value.Opt[string]
	ContainerID value.Opt[string]
	Contexts    value.Opt[[]string] // by which standards it publishes: elastic, opentelemetry
	CPU         value.Opt[float64]  // CPUs that it uses
	TracedCPU   value.Opt[float64]  // of them, those in transactions
	LastError   value.Opt[string]
	Command     value.Opt[string]          // name of its first thread, by default that of the program
	StacksSince value.Opt[value.Timepoint] // since when its CorrelatorProcessStacks are counted; unset: they are not
	StacksLost  value.Opt[value.Duration]  // its CPU time since then without a stack that there was room for
	Waiting     value.Opt[float64]         // its CorrelatorThreads that were found to work on transactions when they were read last, less the CPUs that they use; unset: none are read
}

// Properties of CorrelatorProcess.
const (
	CorrelatorProcessHost        value.PropertySet = 1 << 1
	CorrelatorProcessPid         value.PropertySet = 1 << 2
	CorrelatorProcessStartTime   value.PropertySet = 1 << 3
	CorrelatorProcessState       value.PropertySet = 1 << 4
	CorrelatorProcessService     value.PropertySet = 1 << 5
	CorrelatorProcessEnvironment value.PropertySet = 1 << 6
	CorrelatorProcessContainerID value.PropertySet = 1 << 7
	CorrelatorProcessContexts    value.PropertySet = 1 << 8
	CorrelatorProcessCPU         value.PropertySet = 1 << 9
	CorrelatorProcessTracedCPU   value.PropertySet = 1 << 10
	CorrelatorProcessLastError   value.PropertySet = 1 << 11
	CorrelatorProcessCommand     value.PropertySet = 1 << 12
	CorrelatorProcessStacksSince value.PropertySet = 1 << 13
	CorrelatorProcessStacksLost  value.PropertySet = 1 << 14
	CorrelatorProcessWaiting     value.PropertySet = 1 << 15
)

// CorrelatorProcessKey is the key of objects of type CorrelatorProcess.
type CorrelatorProcessKey struct {
	Host string
	Pid  uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorProcess) Key() CorrelatorProcessKey {
	return CorrelatorProcessKey{Host: x.Host.Value(), Pid: x.Pid.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorProcess) Descriptor() *schema.Struct {
	return descriptorCorrelatorProcess
}

var descriptorCorrelatorProcess = schema.MustStruct("CorrelatorProcess", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "pid", Tag: 2, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "startTime", Tag: 3, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "state", Tag: 4, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "service", Tag: 5, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "environment", Tag: 6, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "containerId", Tag: 7, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "contexts", Tag: 8, Type: schema.MustVector(schema.Builtin(schema.String))},
	schema.Property{Name: "cpu", Tag: 9, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "tracedCpu", Tag: 10, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "lastError", Tag: 11, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "command", Tag: 12, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "stacksSince", Tag: 13, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "stacksLost", Tag: 14, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "waiting", Tag: 15, Type: schema.Builtin(schema.Float64)},
)

// Valid returns the properties that are set.
func (x *CorrelatorProcess) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorProcessHost
	}
	if x.Pid.IsSet() {
		set |= CorrelatorProcessPid
	}
	if x.StartTime.IsSet() {
		set |= CorrelatorProcessStartTime
	}
	if x.State.IsSet() {
		set |= CorrelatorProcessState
	}
	if x.Service.IsSet() {
		set |= CorrelatorProcessService
	}
	if x.Environment.IsSet() {
		set |= CorrelatorProcessEnvironment
	}
	if x.ContainerID.IsSet() {
		set |= CorrelatorProcessContainerID
	}
	if x.Contexts.IsSet() {
		set |= CorrelatorProcessContexts
	}
	if x.CPU.IsSet() {
		set |= CorrelatorProcessCPU
	}
	if x.TracedCPU.IsSet() {
		set |= CorrelatorProcessTracedCPU
	}
	if x.LastError.IsSet() {
		set |= CorrelatorProcessLastError
	}
	if x.Command.IsSet() {
		set |= CorrelatorProcessCommand
	}
	if x.StacksSince.IsSet() {
		set |= CorrelatorProcessStacksSince
	}
	if x.StacksLost.IsSet() {
		set |= CorrelatorProcessStacksLost
	}
	if x.Waiting.IsSet() {
		set |= CorrelatorProcessWaiting
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorProcess) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorProcessHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorProcessPid != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Pid.Value()))
	}
	if props&CorrelatorProcessStartTime != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendFloat64(dst, float64(x.StartTime.Value()))
	}
	if props&CorrelatorProcessState != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.State.Value())
	}
	if props&CorrelatorProcessService != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendString(dst, x.Service.Value())
	}
	if props&CorrelatorProcessEnvironment != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendString(dst, x.Environment.Value())
	}
	if props&CorrelatorProcessContainerID != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendString(dst, x.ContainerID.Value())
	}
	if props&CorrelatorProcessContexts != 0 {
		dst = append(dst, 8)
		v := x.Contexts.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendString(dst, v[i])
		}
	}
	if props&CorrelatorProcessCPU != 0 {
		dst = append(dst, 9)
		dst = cbor.AppendFloat64(dst, x.CPU.Value())
	}
	if props&CorrelatorProcessTracedCPU != 0 {
		dst = append(dst, 10)
		dst = cbor.AppendFloat64(dst, x.TracedCPU.Value())
	}
	if props&CorrelatorProcessLastError != 0 {
		dst = append(dst, 11)
		dst = cbor.AppendString(dst, x.LastError.Value())
	}
	if props&CorrelatorProcessCommand != 0 {
		dst = append(dst, 12)
		dst = cbor.AppendString(dst, x.Command.Value())
	}
	if props&CorrelatorProcessStacksSince != 0 {
		dst = append(dst, 13)
		dst = cbor.AppendFloat64(dst, float64(x.StacksSince.Value()))
	}
	if props&CorrelatorProcessStacksLost != 0 {
		dst = append(dst, 14)
		dst = cbor.AppendFloat64(dst, float64(x.StacksLost.Value()))
	}
	if props&CorrelatorProcessWaiting != 0 {
		dst = append(dst, 15)
		dst = cbor.AppendFloat64(dst, x.Waiting.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorProcess) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorProcess{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.Pid.Set(uint32(r.Uint(32)))
		case 3:
			x.StartTime.Set(value.Timepoint(r.Float64()))
		case 4:
			x.State.Set(r.String())
		case 5:
			x.Service.Set(r.String())
		case 6:
			x.Environment.Set(r.String())
		case 7:
			x.ContainerID.Set(r.String())
		case 8:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.Contexts.Set(v)
		case 9:
			x.CPU.Set(r.Float64())
		case 10:
			x.TracedCPU.Set(r.Float64())
		case 11:
			x.LastError.Set(r.String())
		case 12:
			x.Command.Set(r.String())
		case 13:
			x.StacksSince.Set(value.Timepoint(r.Float64()))
		case 14:
			x.StacksLost.Set(value.Duration(r.Float64()))
		case 15:
			x.Waiting.Set(r.Float64())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorProcess) Merge(from *CorrelatorProcess, props value.PropertySet) {
	if props&CorrelatorProcessStartTime != 0 {
		x.StartTime = from.StartTime
	}
	if props&CorrelatorProcessState != 0 {
		x.State = from.State
	}
	if props&CorrelatorProcessService != 0 {
		x.Service = from.Service
	}
	if props&CorrelatorProcessEnvironment != 0 {
		x.Environment = from.Environment
	}
	if props&CorrelatorProcessContainerID != 0 {
		x.ContainerID = from.ContainerID
	}
	if props&CorrelatorProcessContexts != 0 {
		x.Contexts = from.Contexts
	}
	if props&CorrelatorProcessCPU != 0 {
		x.CPU = from.CPU
	}
	if props&CorrelatorProcessTracedCPU != 0 {
		x.TracedCPU = from.TracedCPU
	}
	if props&CorrelatorProcessLastError != 0 {
		x.LastError = from.LastError
	}
	if props&CorrelatorProcessCommand != 0 {
		x.Command = from.Command
	}
	if props&CorrelatorProcessStacksSince != 0 {
		x.StacksSince = from.StacksSince
	}
	if props&CorrelatorProcessStacksLost != 0 {
		x.StacksLost = from.StacksLost
	}
	if props&CorrelatorProcessWaiting != 0 {
		x.Waiting = from.Waiting
	}
}

// CorrelatorThread is a struct; any property may be unset.
//
// A thread that works on a transaction; of a host with allProcesses, also one that runs.
type CorrelatorThread struct {
	Host          value.Opt[string] // key
	Pid           value.Opt[uint32] // key
	Tid           value.Opt[uint32] // key
	Name          value.Opt[string]
	TraceID       value.Opt[string] // hexadecimal, as the other ids; unset: it works on no transaction
	TransactionID value.Opt[string]
	SpanID        value.Opt[string] // unset: no span but the transaction
	Context       value.Opt[CorrelatorContext]
	Since         value.Opt[value.Timepoint] // when it was first seen in this transaction
	LastRun       value.Opt[value.Timepoint] // when it was last seen on a CPU in it
	CPU           value.Opt[float64]         // share of a CPU that it uses
}

// Properties of CorrelatorThread.
const (
	CorrelatorThreadHost          value.PropertySet = 1 << 1
	CorrelatorThreadPid           value.PropertySet = 1 << 2
	CorrelatorThreadTid           value.PropertySet = 1 << 3
	CorrelatorThreadName          value.PropertySet = 1 << 4
	CorrelatorThreadTraceID       value.PropertySet = 1 << 5
	CorrelatorThreadTransactionID value.PropertySet = 1 << 6
	CorrelatorThreadSpanID        value.PropertySet = 1 << 7
	CorrelatorThreadContext       value.PropertySet = 1 << 8
	CorrelatorThreadSince         value.PropertySet = 1 << 9
	CorrelatorThreadLastRun       value.PropertySet = 1 << 10
	CorrelatorThreadCPU           value.PropertySet = 1 << 11
)

// CorrelatorThreadKey is the key of objects of type CorrelatorThread.
type CorrelatorThreadKey struct {
	Host string
	Pid  uint32
	Tid  uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorThread) Key() CorrelatorThreadKey {
	return CorrelatorThreadKey{Host: x.Host.Value(), Pid: x.Pid.Value(), Tid: x.Tid.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorThread) Descriptor() *schema.Struct {
	return descriptorCorrelatorThread
}

var descriptorCorrelatorThread = schema.MustStruct("CorrelatorThread", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "pid", Tag: 2, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "tid", Tag: 3, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "name", Tag: 4, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "traceId", Tag: 5, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "transactionId", Tag: 6, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "spanId", Tag: 7, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "context", Tag: 8, Type: schema.OfEnum(descriptorCorrelatorContext)},
	schema.Property{Name: "since", Tag: 9, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "lastRun", Tag: 10, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "cpu", Tag: 11, Type: schema.Builtin(schema.Float64)},
)

// Valid returns the properties that are set.
func (x *CorrelatorThread) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorThreadHost
	}
	if x.Pid.IsSet() {
		set |= CorrelatorThreadPid
	}
	if x.Tid.IsSet() {
		set |= CorrelatorThreadTid
	}
	if x.Name.IsSet() {
		set |= CorrelatorThreadName
	}
	if x.TraceID.IsSet() {
		set |= CorrelatorThreadTraceID
	}
	if x.TransactionID.IsSet() {
		set |= CorrelatorThreadTransactionID
	}
	if x.SpanID.IsSet() {
		set |= CorrelatorThreadSpanID
	}
	if x.Context.IsSet() {
		set |= CorrelatorThreadContext
	}
	if x.Since.IsSet() {
		set |= CorrelatorThreadSince
	}
	if x.LastRun.IsSet() {
		set |= CorrelatorThreadLastRun
	}
	if x.CPU.IsSet() {
		set |= CorrelatorThreadCPU
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorThread) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorThreadHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorThreadPid != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Pid.Value()))
	}
	if props&CorrelatorThreadTid != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendUint(dst, uint64(x.Tid.Value()))
	}
	if props&CorrelatorThreadName != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	if props&CorrelatorThreadTraceID != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendString(dst, x.TraceID.Value())
	}
	if props&CorrelatorThreadTransactionID != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendString(dst, x.TransactionID.Value())
	}
	if props&CorrelatorThreadSpanID != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendString(dst, x.SpanID.Value())
	}
	if props&CorrelatorThreadContext != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendUint(dst, uint64(x.Context.Value()))
	}
	if props&CorrelatorThreadSince != 0 {
		dst = append(dst, 9)
		dst = cbor.AppendFloat64(dst, float64(x.Since.Value()))
	}
	if props&CorrelatorThreadLastRun != 0 {
		dst = append(dst, 10)
		dst = cbor.AppendFloat64(dst, float64(x.LastRun.Value()))
	}
	if props&CorrelatorThreadCPU != 0 {
		dst = append(dst, 11)
		dst = cbor.AppendFloat64(dst, x.CPU.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorThread) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorThread{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.Pid.Set(uint32(r.Uint(32)))
		case 3:
			x.Tid.Set(uint32(r.Uint(32)))
		case 4:
			x.Name.Set(r.String())
		case 5:
			x.TraceID.Set(r.String())
		case 6:
			x.TransactionID.Set(r.String())
		case 7:
			x.SpanID.Set(r.String())
		case 8:
			x.Context.Set(decodeCorrelatorContext(r))
		case 9:
			x.Since.Set(value.Timepoint(r.Float64()))
		case 10:
			x.LastRun.Set(value.Timepoint(r.Float64()))
		case 11:
			x.CPU.Set(r.Float64())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorThread) Merge(from *CorrelatorThread, props value.PropertySet) {
	if props&CorrelatorThreadName != 0 {
		x.Name = from.Name
	}
	if props&CorrelatorThreadTraceID != 0 {
		x.TraceID = from.TraceID
	}
	if props&CorrelatorThreadTransactionID != 0 {
		x.TransactionID = from.TransactionID
	}
	if props&CorrelatorThreadSpanID != 0 {
		x.SpanID = from.SpanID
	}
	if props&CorrelatorThreadContext != 0 {
		x.Context = from.Context
	}
	if props&CorrelatorThreadSince != 0 {
		x.Since = from.Since
	}
	if props&CorrelatorThreadLastRun != 0 {
		x.LastRun = from.LastRun
	}
	if props&CorrelatorThreadCPU != 0 {
		x.CPU = from.CPU
	}
}

// CorrelatorTransaction is a struct; any property may be unset.
//
// One of the transactions that use the CPU most.
type CorrelatorTransaction struct {
	Host          value.Opt[string] // key
	TraceID       value.Opt[string] // key
	TransactionID value.Opt[string] // key
	Pid           value.Opt[uint32]
	Service       value.Opt[string]
	Since         value.Opt[value.Timepoint] // when it was first seen, or again after it was forgotten: ten seconds after lastRun, unless one of the CorrelatorThreads waits in it
	LastRun       value.Opt[value.Timepoint]
	CPU           value.Opt[float64]        // CPUs that it uses
	CPUTime       value.Opt[value.Duration] // that it has used since then
	Threads       value.Opt[uint32]         // that have worked on it
	Context       value.Opt[CorrelatorContext]
	StacksSince   value.Opt[value.Timepoint] // since when its stacks are counted; unset: they are not
	StacksLost    value.Opt[value.Duration]  // its CPU time since then without a stack that there was room for
	Name          value.Opt[string]          // what its threads publish as http.route, or else as span_name
}

// Properties of CorrelatorTransaction.
const (
	CorrelatorTransactionHost          value.PropertySet = 1 << 1
	CorrelatorTransactionTraceID       value.PropertySet = 1 << 2
	CorrelatorTransactionTransactionID value.PropertySet = 1 << 3
	CorrelatorTransactionPid           value.PropertySet = 1 << 4
	CorrelatorTransactionService       value.PropertySet = 1 << 5
	CorrelatorTransactionSince         value.PropertySet = 1 << 6
	CorrelatorTransactionLastRun       value.PropertySet = 1 << 7
	CorrelatorTransactionCPU           value.PropertySet = 1 << 8
	CorrelatorTransactionCPUTime       value.PropertySet = 1 << 9
	CorrelatorTransactionThreads       value.PropertySet = 1 << 10
	CorrelatorTransactionContext       value.PropertySet = 1 << 11
	CorrelatorTransactionStacksSince   value.PropertySet = 1 << 12
	CorrelatorTransactionStacksLost    value.PropertySet = 1 << 13
	CorrelatorTransactionName          value.PropertySet = 1 << 14
)

// CorrelatorTransactionKey is the key of objects of type CorrelatorTransaction.
type CorrelatorTransactionKey struct {
	Host          string
	TraceID       string
	TransactionID string
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorTransaction) Key() CorrelatorTransactionKey {
	return CorrelatorTransactionKey{Host: x.Host.Value(), TraceID: x.TraceID.Value(), TransactionID: x.TransactionID.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorTransaction) Descriptor() *schema.Struct {
	return descriptorCorrelatorTransaction
}

var descriptorCorrelatorTransaction = schema.MustStruct("CorrelatorTransaction", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "traceId", Tag: 2, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "transactionId", Tag: 3, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "pid", Tag: 4, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "service", Tag: 5, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "since", Tag: 6, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "lastRun", Tag: 7, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "cpu", Tag: 8, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "cpuTime", Tag: 9, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "threads", Tag: 10, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "context", Tag: 11, Type: schema.OfEnum(descriptorCorrelatorContext)},
	schema.Property{Name: "stacksSince", Tag: 12, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "stacksLost", Tag: 13, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "name", Tag: 14, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *CorrelatorTransaction) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorTransactionHost
	}
	if x.TraceID.IsSet() {
		set |= CorrelatorTransactionTraceID
	}
	if x.TransactionID.IsSet() {
		set |= CorrelatorTransactionTransactionID
	}
	if x.Pid.IsSet() {
		set |= CorrelatorTransactionPid
	}
	if x.Service.IsSet() {
		set |= CorrelatorTransactionService
	}
	if x.Since.IsSet() {
		set |= CorrelatorTransactionSince
	}
	if x.LastRun.IsSet() {
		set |= CorrelatorTransactionLastRun
	}
	if x.CPU.IsSet() {
		set |= CorrelatorTransactionCPU
	}
	if x.CPUTime.IsSet() {
		set |= CorrelatorTransactionCPUTime
	}
	if x.Threads.IsSet() {
		set |= CorrelatorTransactionThreads
	}
	if x.Context.IsSet() {
		set |= CorrelatorTransactionContext
	}
	if x.StacksSince.IsSet() {
		set |= CorrelatorTransactionStacksSince
	}
	if x.StacksLost.IsSet() {
		set |= CorrelatorTransactionStacksLost
	}
	if x.Name.IsSet() {
		set |= CorrelatorTransactionName
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorTransaction) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorTransactionHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorTransactionTraceID != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.TraceID.Value())
	}
	if props&CorrelatorTransactionTransactionID != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.TransactionID.Value())
	}
	if props&CorrelatorTransactionPid != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendUint(dst, uint64(x.Pid.Value()))
	}
	if props&CorrelatorTransactionService != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendString(dst, x.Service.Value())
	}
	if props&CorrelatorTransactionSince != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendFloat64(dst, float64(x.Since.Value()))
	}
	if props&CorrelatorTransactionLastRun != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendFloat64(dst, float64(x.LastRun.Value()))
	}
	if props&CorrelatorTransactionCPU != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendFloat64(dst, x.CPU.Value())
	}
	if props&CorrelatorTransactionCPUTime != 0 {
		dst = append(dst, 9)
		dst = cbor.AppendFloat64(dst, float64(x.CPUTime.Value()))
	}
	if props&CorrelatorTransactionThreads != 0 {
		dst = append(dst, 10)
		dst = cbor.AppendUint(dst, uint64(x.Threads.Value()))
	}
	if props&CorrelatorTransactionContext != 0 {
		dst = append(dst, 11)
		dst = cbor.AppendUint(dst, uint64(x.Context.Value()))
	}
	if props&CorrelatorTransactionStacksSince != 0 {
		dst = append(dst, 12)
		dst = cbor.AppendFloat64(dst, float64(x.StacksSince.Value()))
	}
	if props&CorrelatorTransactionStacksLost != 0 {
		dst = append(dst, 13)
		dst = cbor.AppendFloat64(dst, float64(x.StacksLost.Value()))
	}
	if props&CorrelatorTransactionName != 0 {
		dst = append(dst, 14)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorTransaction) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorTransaction{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.TraceID.Set(r.String())
		case 3:
			x.TransactionID.Set(r.String())
		case 4:
			x.Pid.Set(uint32(r.Uint(32)))
		case 5:
			x.Service.Set(r.String())
		case 6:
			x.Since.Set(value.Timepoint(r.Float64()))
		case 7:
			x.LastRun.Set(value.Timepoint(r.Float64()))
		case 8:
			x.CPU.Set(r.Float64())
		case 9:
			x.CPUTime.Set(value.Duration(r.Float64()))
		case 10:
			x.Threads.Set(uint32(r.Uint(32)))
		case 11:
			x.Context.Set(decodeCorrelatorContext(r))
		case 12:
			x.StacksSince.Set(value.Timepoint(r.Float64()))
		case 13:
			x.StacksLost.Set(value.Duration(r.Float64()))
		case 14:
			x.Name.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorTransaction) Merge(from *CorrelatorTransaction, props value.PropertySet) {
	if props&CorrelatorTransactionPid != 0 {
		x.Pid = from.Pid
	}
	if props&CorrelatorTransactionService != 0 {
		x.Service = from.Service
	}
	if props&CorrelatorTransactionSince != 0 {
		x.Since = from.Since
	}
	if props&CorrelatorTransactionLastRun != 0 {
		x.LastRun = from.LastRun
	}
	if props&CorrelatorTransactionCPU != 0 {
		x.CPU = from.CPU
	}
	if props&CorrelatorTransactionCPUTime != 0 {
		x.CPUTime = from.CPUTime
	}
	if props&CorrelatorTransactionThreads != 0 {
		x.Threads = from.Threads
	}
	if props&CorrelatorTransactionContext != 0 {
		x.Context = from.Context
	}
	if props&CorrelatorTransactionStacksSince != 0 {
		x.StacksSince = from.StacksSince
	}
	if props&CorrelatorTransactionStacksLost != 0 {
		x.StacksLost = from.StacksLost
	}
	if props&CorrelatorTransactionName != 0 {
		x.Name = from.Name
	}
}

// CorrelatorTransactionStack is a struct; any property may be unset.
//
// How much of the CPU time of a transaction was used with a stack, since its stacksSince. Stacks are
// collected only of transactions that guests have joined: with a filter on host, traceId and transactionId
// of the one whose stacks are to be known, or, without a filter, of all.
type CorrelatorTransactionStack struct {
	Host          value.Opt[string] // key
	TraceID       value.Opt[string] // key
	TransactionID value.Opt[string] // key
	StackID       value.Opt[string] // key
	CPUTime       value.Opt[value.Duration]
}

// Properties of CorrelatorTransactionStack.
const (
	CorrelatorTransactionStackHost          value.PropertySet = 1 << 1
	CorrelatorTransactionStackTraceID       value.PropertySet = 1 << 2
	CorrelatorTransactionStackTransactionID value.PropertySet = 1 << 3
	CorrelatorTransactionStackStackID       value.PropertySet = 1 << 4
	CorrelatorTransactionStackCPUTime       value.PropertySet = 1 << 5
)

// CorrelatorTransactionStackKey is the key of objects of type CorrelatorTransactionStack.
type CorrelatorTransactionStackKey struct {
	Host          string
	TraceID       string
	TransactionID string
	StackID       string
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorTransactionStack) Key() CorrelatorTransactionStackKey {
	return CorrelatorTransactionStackKey{Host: x.Host.Value(), TraceID: x.TraceID.Value(), TransactionID: x.TransactionID.Value(), StackID: x.StackID.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorTransactionStack) Descriptor() *schema.Struct {
	return descriptorCorrelatorTransactionStack
}

var descriptorCorrelatorTransactionStack = schema.MustStruct("CorrelatorTransactionStack", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "traceId", Tag: 2, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "transactionId", Tag: 3, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "stackId", Tag: 4, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "cpuTime", Tag: 5, Type: schema.Builtin(schema.Duration)},
)

// Valid returns the properties that are set.
func (x *CorrelatorTransactionStack) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorTransactionStackHost
	}
	if x.TraceID.IsSet() {
		set |= CorrelatorTransactionStackTraceID
	}
	if x.TransactionID.IsSet() {
		set |= CorrelatorTransactionStackTransactionID
	}
	if x.StackID.IsSet() {
		set |= CorrelatorTransactionStackStackID
	}
	if x.CPUTime.IsSet() {
		set |= CorrelatorTransactionStackCPUTime
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorTransactionStack) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorTransactionStackHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorTransactionStackTraceID != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.TraceID.Value())
	}
	if props&CorrelatorTransactionStackTransactionID != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.TransactionID.Value())
	}
	if props&CorrelatorTransactionStackStackID != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.StackID.Value())
	}
	if props&CorrelatorTransactionStackCPUTime != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendFloat64(dst, float64(x.CPUTime.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorTransactionStack) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorTransactionStack{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.TraceID.Set(r.String())
		case 3:
			x.TransactionID.Set(r.String())
		case 4:
			x.StackID.Set(r.String())
		case 5:
			x.CPUTime.Set(value.Duration(r.Float64()))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorTransactionStack) Merge(from *CorrelatorTransactionStack, props value.PropertySet) {
	if props&CorrelatorTransactionStackCPUTime != 0 {
		x.CPUTime = from.CPUTime
	}
}

// CorrelatorTransactionWait is a struct; any property may be unset.
//
// What the threads of a transaction did, in one state of threads (docs/waits.md) or at one place in it, since its
// stacksSince. States are collected and published as stacks are, of the transactions that guests have joined here.
type CorrelatorTransactionWait struct {
	Host          value.Opt[string]         // key
	TraceID       value.Opt[string]         // key
	TransactionID value.Opt[string]         // key
	State         value.Opt[string]         // key: on_cpu, runnable, throttled, futex, sleep, net, and so on
	Place         value.Opt[string]         // key: of waits with a stack, and for what; empty: all of the state
	Text          value.Opt[string]         // the same in words, for people
	Time          value.Opt[value.Duration] // of a state exactly; of places shares of it, of those with most
	Times         value.Opt[uint32]
	Longest       value.Opt[value.Duration] // unset: not known
	EndedBy       value.Opt[string]         // who ended most of the waits, in words
	WholeTrace    value.Opt[bool]           // of the whole trace in the process: the context does not tell the transaction
}

// Properties of CorrelatorTransactionWait.
const (
	CorrelatorTransactionWaitHost          value.PropertySet = 1 << 1
	CorrelatorTransactionWaitTraceID       value.PropertySet = 1 << 2
	CorrelatorTransactionWaitTransactionID value.PropertySet = 1 << 3
	CorrelatorTransactionWaitState         value.PropertySet = 1 << 4
	CorrelatorTransactionWaitPlace         value.PropertySet = 1 << 5
	CorrelatorTransactionWaitText          value.PropertySet = 1 << 6
	CorrelatorTransactionWaitTime          value.PropertySet = 1 << 7
	CorrelatorTransactionWaitTimes         value.PropertySet = 1 << 8
	CorrelatorTransactionWaitLongest       value.PropertySet = 1 << 9
	CorrelatorTransactionWaitEndedBy       value.PropertySet = 1 << 10
	CorrelatorTransactionWaitWholeTrace    value.PropertySet = 1 << 11
)

// CorrelatorTransactionWaitKey is the key of objects of type CorrelatorTransactionWait.
type CorrelatorTransactionWaitKey struct {
	Host          string
	TraceID       string
	TransactionID string
	State         string
	Place         string
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorTransactionWait) Key() CorrelatorTransactionWaitKey {
	return CorrelatorTransactionWaitKey{Host: x.Host.Value(), TraceID: x.TraceID.Value(), TransactionID: x.TransactionID.Value(), State: x.State.Value(), Place: x.Place.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorTransactionWait) Descriptor() *schema.Struct {
	return descriptorCorrelatorTransactionWait
}

var descriptorCorrelatorTransactionWait = schema.MustStruct("CorrelatorTransactionWait", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "traceId", Tag: 2, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "transactionId", Tag: 3, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "state", Tag: 4, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "place", Tag: 5, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "text", Tag: 6, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "time", Tag: 7, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "times", Tag: 8, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "longest", Tag: 9, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "endedBy", Tag: 10, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "wholeTrace", Tag: 11, Type: schema.Builtin(schema.Bool)},
)

// Valid returns the properties that are set.
func (x *CorrelatorTransactionWait) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorTransactionWaitHost
	}
	if x.TraceID.IsSet() {
		set |= CorrelatorTransactionWaitTraceID
	}
	if x.TransactionID.IsSet() {
		set |= CorrelatorTransactionWaitTransactionID
	}
	if x.State.IsSet() {
		set |= CorrelatorTransactionWaitState
	}
	if x.Place.IsSet() {
		set |= CorrelatorTransactionWaitPlace
	}
	if x.Text.IsSet() {
		set |= CorrelatorTransactionWaitText
	}
	if x.Time.IsSet() {
		set |= CorrelatorTransactionWaitTime
	}
	if x.Times.IsSet() {
		set |= CorrelatorTransactionWaitTimes
	}
	if x.Longest.IsSet() {
		set |= CorrelatorTransactionWaitLongest
	}
	if x.EndedBy.IsSet() {
		set |= CorrelatorTransactionWaitEndedBy
	}
	if x.WholeTrace.IsSet() {
		set |= CorrelatorTransactionWaitWholeTrace
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorTransactionWait) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorTransactionWaitHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorTransactionWaitTraceID != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.TraceID.Value())
	}
	if props&CorrelatorTransactionWaitTransactionID != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.TransactionID.Value())
	}
	if props&CorrelatorTransactionWaitState != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.State.Value())
	}
	if props&CorrelatorTransactionWaitPlace != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendString(dst, x.Place.Value())
	}
	if props&CorrelatorTransactionWaitText != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendString(dst, x.Text.Value())
	}
	if props&CorrelatorTransactionWaitTime != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendFloat64(dst, float64(x.Time.Value()))
	}
	if props&CorrelatorTransactionWaitTimes != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendUint(dst, uint64(x.Times.Value()))
	}
	if props&CorrelatorTransactionWaitLongest != 0 {
		dst = append(dst, 9)
		dst = cbor.AppendFloat64(dst, float64(x.Longest.Value()))
	}
	if props&CorrelatorTransactionWaitEndedBy != 0 {
		dst = append(dst, 10)
		dst = cbor.AppendString(dst, x.EndedBy.Value())
	}
	if props&CorrelatorTransactionWaitWholeTrace != 0 {
		dst = append(dst, 11)
		dst = cbor.AppendBool(dst, x.WholeTrace.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorTransactionWait) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorTransactionWait{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.TraceID.Set(r.String())
		case 3:
			x.TransactionID.Set(r.String())
		case 4:
			x.State.Set(r.String())
		case 5:
			x.Place.Set(r.String())
		case 6:
			x.Text.Set(r.String())
		case 7:
			x.Time.Set(value.Duration(r.Float64()))
		case 8:
			x.Times.Set(uint32(r.Uint(32)))
		case 9:
			x.Longest.Set(value.Duration(r.Float64()))
		case 10:
			x.EndedBy.Set(r.String())
		case 11:
			x.WholeTrace.Set(r.Bool())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorTransactionWait) Merge(from *CorrelatorTransactionWait, props value.PropertySet) {
	if props&CorrelatorTransactionWaitText != 0 {
		x.Text = from.Text
	}
	if props&CorrelatorTransactionWaitTime != 0 {
		x.Time = from.Time
	}
	if props&CorrelatorTransactionWaitTimes != 0 {
		x.Times = from.Times
	}
	if props&CorrelatorTransactionWaitLongest != 0 {
		x.Longest = from.Longest
	}
	if props&CorrelatorTransactionWaitEndedBy != 0 {
		x.EndedBy = from.EndedBy
	}
	if props&CorrelatorTransactionWaitWholeTrace != 0 {
		x.WholeTrace = from.WholeTrace
	}
}

// CorrelatorTransactionTimeline is a struct; any property may be unset.
//
// When the threads of a transaction did what: a part of a text, for a page. Those of a transaction with the same version
// are one, by ascending part. They are published as stacks are, of a few transactions at a time, to guests of the agent
// alone.
type CorrelatorTransactionTimeline struct {
	Host          value.Opt[string] // key
	TraceID       value.Opt[string] // key
	TransactionID value.Opt[string] // key
	Part          value.Opt[uint32] // key: from 0 on
	Parts         value.Opt[uint32]
	Version       value.Opt[uint32]
	Text          value.Opt[string] // all together are JSON, of which each version of an agent has its own
}

// Properties of CorrelatorTransactionTimeline.
const (
	CorrelatorTransactionTimelineHost          value.PropertySet = 1 << 1
	CorrelatorTransactionTimelineTraceID       value.PropertySet = 1 << 2
	CorrelatorTransactionTimelineTransactionID value.PropertySet = 1 << 3
	CorrelatorTransactionTimelinePart          value.PropertySet = 1 << 4
	CorrelatorTransactionTimelineParts         value.PropertySet = 1 << 5
	CorrelatorTransactionTimelineVersion       value.PropertySet = 1 << 6
	CorrelatorTransactionTimelineText          value.PropertySet = 1 << 7
)

// CorrelatorTransactionTimelineKey is the key of objects of type CorrelatorTransactionTimeline.
type CorrelatorTransactionTimelineKey struct {
	Host          string
	TraceID       string
	TransactionID string
	Part          uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorTransactionTimeline) Key() CorrelatorTransactionTimelineKey {
	return CorrelatorTransactionTimelineKey{Host: x.Host.Value(), TraceID: x.TraceID.Value(), TransactionID: x.TransactionID.Value(), Part: x.Part.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorTransactionTimeline) Descriptor() *schema.Struct {
	return descriptorCorrelatorTransactionTimeline
}

var descriptorCorrelatorTransactionTimeline = schema.MustStruct("CorrelatorTransactionTimeline", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "traceId", Tag: 2, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "transactionId", Tag: 3, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "part", Tag: 4, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "parts", Tag: 5, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "version", Tag: 6, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "text", Tag: 7, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *CorrelatorTransactionTimeline) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorTransactionTimelineHost
	}
	if x.TraceID.IsSet() {
		set |= CorrelatorTransactionTimelineTraceID
	}
	if x.TransactionID.IsSet() {
		set |= CorrelatorTransactionTimelineTransactionID
	}
	if x.Part.IsSet() {
		set |= CorrelatorTransactionTimelinePart
	}
	if x.Parts.IsSet() {
		set |= CorrelatorTransactionTimelineParts
	}
	if x.Version.IsSet() {
		set |= CorrelatorTransactionTimelineVersion
	}
	if x.Text.IsSet() {
		set |= CorrelatorTransactionTimelineText
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorTransactionTimeline) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorTransactionTimelineHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorTransactionTimelineTraceID != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.TraceID.Value())
	}
	if props&CorrelatorTransactionTimelineTransactionID != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.TransactionID.Value())
	}
	if props&CorrelatorTransactionTimelinePart != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendUint(dst, uint64(x.Part.Value()))
	}
	if props&CorrelatorTransactionTimelineParts != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendUint(dst, uint64(x.Parts.Value()))
	}
	if props&CorrelatorTransactionTimelineVersion != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendUint(dst, uint64(x.Version.Value()))
	}
	if props&CorrelatorTransactionTimelineText != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendString(dst, x.Text.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorTransactionTimeline) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorTransactionTimeline{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.TraceID.Set(r.String())
		case 3:
			x.TransactionID.Set(r.String())
		case 4:
			x.Part.Set(uint32(r.Uint(32)))
		case 5:
			x.Parts.Set(uint32(r.Uint(32)))
		case 6:
			x.Version.Set(uint32(r.Uint(32)))
		case 7:
			x.Text.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorTransactionTimeline) Merge(from *CorrelatorTransactionTimeline, props value.PropertySet) {
	if props&CorrelatorTransactionTimelineParts != 0 {
		x.Parts = from.Parts
	}
	if props&CorrelatorTransactionTimelineVersion != 0 {
		x.Version = from.Version
	}
	if props&CorrelatorTransactionTimelineText != 0 {
		x.Text = from.Text
	}
}

// CorrelatorStack is a struct; any property may be unset.
//
// A stack of a CorrelatorTransactionStack, or several of the same functions: there while that is.
type CorrelatorStack struct {
	Host   value.Opt[string]   // key
	ID     value.Opt[string]   // key: stack-trace-id@pid: its names are those of a process
	Frames value.Opt[[]string] // names, the innermost first
}

// Properties of CorrelatorStack.
const (
	CorrelatorStackHost   value.PropertySet = 1 << 1
	CorrelatorStackID     value.PropertySet = 1 << 2
	CorrelatorStackFrames value.PropertySet = 1 << 3
)

// CorrelatorStackKey is the key of objects of type CorrelatorStack.
type CorrelatorStackKey struct {
	Host string
	ID   string
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorStack) Key() CorrelatorStackKey {
	return CorrelatorStackKey{Host: x.Host.Value(), ID: x.ID.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorStack) Descriptor() *schema.Struct {
	return descriptorCorrelatorStack
}

var descriptorCorrelatorStack = schema.MustStruct("CorrelatorStack", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "id", Tag: 2, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "frames", Tag: 3, Type: schema.MustVector(schema.Builtin(schema.String))},
)

// Valid returns the properties that are set.
func (x *CorrelatorStack) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorStackHost
	}
	if x.ID.IsSet() {
		set |= CorrelatorStackID
	}
	if x.Frames.IsSet() {
		set |= CorrelatorStackFrames
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorStack) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorStackHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorStackID != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.ID.Value())
	}
	if props&CorrelatorStackFrames != 0 {
		dst = append(dst, 3)
		v := x.Frames.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendString(dst, v[i])
		}
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorStack) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorStack{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.ID.Set(r.String())
		case 3:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.Frames.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorStack) Merge(from *CorrelatorStack, props value.PropertySet) {
	if props&CorrelatorStackFrames != 0 {
		x.Frames = from.Frames
	}
}

// CorrelatorProcessStack is a struct; any property may be unset.
//
// How much of the CPU time of a process, in transactions or not, was used with a stack, since its stacksSince: of the
// processes that guests have joined here, by a filter on host and pid, on hosts with allProcesses.
type CorrelatorProcessStack struct {
	Host    value.Opt[string] // key
	Pid     value.Opt[uint32] // key
	StackID value.Opt[string] // key: of a CorrelatorStack
	CPUTime value.Opt[value.Duration]
}

// Properties of CorrelatorProcessStack.
const (
	CorrelatorProcessStackHost    value.PropertySet = 1 << 1
	CorrelatorProcessStackPid     value.PropertySet = 1 << 2
	CorrelatorProcessStackStackID value.PropertySet = 1 << 3
	CorrelatorProcessStackCPUTime value.PropertySet = 1 << 4
)

// CorrelatorProcessStackKey is the key of objects of type CorrelatorProcessStack.
type CorrelatorProcessStackKey struct {
	Host    string
	Pid     uint32
	StackID string
}

// Key returns the key; properties that are unset count as zero.
func (x *CorrelatorProcessStack) Key() CorrelatorProcessStackKey {
	return CorrelatorProcessStackKey{Host: x.Host.Value(), Pid: x.Pid.Value(), StackID: x.StackID.Value()}
}

// Descriptor returns the description of the type.
func (*CorrelatorProcessStack) Descriptor() *schema.Struct {
	return descriptorCorrelatorProcessStack
}

var descriptorCorrelatorProcessStack = schema.MustStruct("CorrelatorProcessStack", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "host", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "pid", Tag: 2, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "stackId", Tag: 3, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "cpuTime", Tag: 4, Type: schema.Builtin(schema.Duration)},
)

// Valid returns the properties that are set.
func (x *CorrelatorProcessStack) Valid() (set value.PropertySet) {
	if x.Host.IsSet() {
		set |= CorrelatorProcessStackHost
	}
	if x.Pid.IsSet() {
		set |= CorrelatorProcessStackPid
	}
	if x.StackID.IsSet() {
		set |= CorrelatorProcessStackStackID
	}
	if x.CPUTime.IsSet() {
		set |= CorrelatorProcessStackCPUTime
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *CorrelatorProcessStack) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&CorrelatorProcessStackHost != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Host.Value())
	}
	if props&CorrelatorProcessStackPid != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Pid.Value()))
	}
	if props&CorrelatorProcessStackStackID != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.StackID.Value())
	}
	if props&CorrelatorProcessStackCPUTime != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendFloat64(dst, float64(x.CPUTime.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *CorrelatorProcessStack) DecodeInstance(r *cbor.Reader) {
	*x = CorrelatorProcessStack{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Host.Set(r.String())
		case 2:
			x.Pid.Set(uint32(r.Uint(32)))
		case 3:
			x.StackID.Set(r.String())
		case 4:
			x.CPUTime.Set(value.Duration(r.Float64()))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *CorrelatorProcessStack) Merge(from *CorrelatorProcessStack, props value.PropertySet) {
	if props&CorrelatorProcessStackCPUTime != 0 {
		x.CPUTime = from.CPUTime
	}
}
