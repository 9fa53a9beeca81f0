// Code generated from system.dots by correlator/dots/generate. DO NOT EDIT.

package system

import (
	"fmt"
	"math/bits"
	"strconv"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// DotsConnectionState is an enum; its values are the tags.
type DotsConnectionState uint32

const (
	DotsConnectionStateConnecting     DotsConnectionState = 1
	DotsConnectionStateEarlySubscribe DotsConnectionState = 2
	DotsConnectionStateConnected      DotsConnectionState = 3
	DotsConnectionStateSuspended      DotsConnectionState = 4
	DotsConnectionStateClosed         DotsConnectionState = 5
)

// String returns the name in the description.
func (x DotsConnectionState) String() string {
	switch x {
	case DotsConnectionStateConnecting:
		return "connecting"
	case DotsConnectionStateEarlySubscribe:
		return "early_subscribe"
	case DotsConnectionStateConnected:
		return "connected"
	case DotsConnectionStateSuspended:
		return "suspended"
	case DotsConnectionStateClosed:
		return "closed"
	}
	return "DotsConnectionState(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (DotsConnectionState) Descriptor() *schema.Enum {
	return descriptorDotsConnectionState
}

var descriptorDotsConnectionState = schema.MustEnum("DotsConnectionState",
	schema.Element{Name: "connecting", Tag: 1, Value: 0},
	schema.Element{Name: "early_subscribe", Tag: 2, Value: 1},
	schema.Element{Name: "connected", Tag: 3, Value: 2},
	schema.Element{Name: "suspended", Tag: 4, Value: 3},
	schema.Element{Name: "closed", Tag: 5, Value: 4},
)

func decodeDotsConnectionState(r *cbor.Reader) DotsConnectionState {
	x := DotsConnectionState(r.Uint(32))
	switch x {
	case DotsConnectionStateConnecting, DotsConnectionStateEarlySubscribe, DotsConnectionStateConnected, DotsConnectionStateSuspended, DotsConnectionStateClosed:
		return x
	}
	r.Fail(fmt.Errorf("enumerator DotsConnectionState %d: %w", x, cbor.ErrRange))
	return x
}

// DotsMemberEvent is an enum; its values are the tags.
type DotsMemberEvent uint32

const (
	DotsMemberEventJoin  DotsMemberEvent = 1
	DotsMemberEventLeave DotsMemberEvent = 2
	DotsMemberEventKill  DotsMemberEvent = 3
)

// String returns the name in the description.
func (x DotsMemberEvent) String() string {
	switch x {
	case DotsMemberEventJoin:
		return "join"
	case DotsMemberEventLeave:
		return "leave"
	case DotsMemberEventKill:
		return "kill"
	}
	return "DotsMemberEvent(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (DotsMemberEvent) Descriptor() *schema.Enum {
	return descriptorDotsMemberEvent
}

var descriptorDotsMemberEvent = schema.MustEnum("DotsMemberEvent",
	schema.Element{Name: "join", Tag: 1, Value: 0},
	schema.Element{Name: "leave", Tag: 2, Value: 1},
	schema.Element{Name: "kill", Tag: 3, Value: 2},
)

func decodeDotsMemberEvent(r *cbor.Reader) DotsMemberEvent {
	x := DotsMemberEvent(r.Uint(32))
	switch x {
	case DotsMemberEventJoin, DotsMemberEventLeave, DotsMemberEventKill:
		return x
	}
	r.Fail(fmt.Errorf("enumerator DotsMemberEvent %d: %w", x, cbor.ErrRange))
	return x
}

// DotsMt is an enum; its values are the tags.
type DotsMt uint32

const (
	DotsMtCreate DotsMt = 1
	DotsMtUpdate DotsMt = 2
	DotsMtRemove DotsMt = 3
)

// String returns the name in the description.
func (x DotsMt) String() string {
	switch x {
	case DotsMtCreate:
		return "create"
	case DotsMtUpdate:
		return "update"
	case DotsMtRemove:
		return "remove"
	}
	return "DotsMt(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (DotsMt) Descriptor() *schema.Enum {
	return descriptorDotsMt
}

var descriptorDotsMt = schema.MustEnum("DotsMt",
	schema.Element{Name: "create", Tag: 1, Value: 0},
	schema.Element{Name: "update", Tag: 2, Value: 1},
	schema.Element{Name: "remove", Tag: 3, Value: 2},
)

func decodeDotsMt(r *cbor.Reader) DotsMt {
	x := DotsMt(r.Uint(32))
	switch x {
	case DotsMtCreate, DotsMtUpdate, DotsMtRemove:
		return x
	}
	r.Fail(fmt.Errorf("enumerator DotsMt %d: %w", x, cbor.ErrRange))
	return x
}

// DotsStructScope is an enum; its values are the tags.
type DotsStructScope uint32

const (
	DotsStructScopeProgram DotsStructScope = 1
	DotsStructScopeServer  DotsStructScope = 2
	DotsStructScopeSite    DotsStructScope = 3
	DotsStructScopeGlobal  DotsStructScope = 4
)

// String returns the name in the description.
func (x DotsStructScope) String() string {
	switch x {
	case DotsStructScopeProgram:
		return "program"
	case DotsStructScopeServer:
		return "server"
	case DotsStructScopeSite:
		return "site"
	case DotsStructScopeGlobal:
		return "global"
	}
	return "DotsStructScope(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (DotsStructScope) Descriptor() *schema.Enum {
	return descriptorDotsStructScope
}

var descriptorDotsStructScope = schema.MustEnum("DotsStructScope",
	schema.Element{Name: "program", Tag: 1, Value: 0},
	schema.Element{Name: "server", Tag: 2, Value: 1},
	schema.Element{Name: "site", Tag: 3, Value: 2},
	schema.Element{Name: "global", Tag: 4, Value: 3},
)

func decodeDotsStructScope(r *cbor.Reader) DotsStructScope {
	x := DotsStructScope(r.Uint(32))
	switch x {
	case DotsStructScopeProgram, DotsStructScopeServer, DotsStructScopeSite, DotsStructScopeGlobal:
		return x
	}
	r.Fail(fmt.Errorf("enumerator DotsStructScope %d: %w", x, cbor.ErrRange))
	return x
}

// DotsContinuousRecorderState is an enum; its values are the tags.
//
// The state of a recorder that no program has any more.
type DotsContinuousRecorderState uint32

const (
	DotsContinuousRecorderStateIdle      DotsContinuousRecorderState = 1
	DotsContinuousRecorderStateRecording DotsContinuousRecorderState = 2
	DotsContinuousRecorderStateDumping   DotsContinuousRecorderState = 3
)

// String returns the name in the description.
func (x DotsContinuousRecorderState) String() string {
	switch x {
	case DotsContinuousRecorderStateIdle:
		return "idle"
	case DotsContinuousRecorderStateRecording:
		return "recording"
	case DotsContinuousRecorderStateDumping:
		return "dumping"
	}
	return "DotsContinuousRecorderState(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (DotsContinuousRecorderState) Descriptor() *schema.Enum {
	return descriptorDotsContinuousRecorderState
}

var descriptorDotsContinuousRecorderState = schema.MustEnum("DotsContinuousRecorderState",
	schema.Element{Name: "idle", Tag: 1, Value: 0},
	schema.Element{Name: "recording", Tag: 2, Value: 1},
	schema.Element{Name: "dumping", Tag: 3, Value: 2},
)

func decodeDotsContinuousRecorderState(r *cbor.Reader) DotsContinuousRecorderState {
	x := DotsContinuousRecorderState(r.Uint(32))
	switch x {
	case DotsContinuousRecorderStateIdle, DotsContinuousRecorderStateRecording, DotsContinuousRecorderStateDumping:
		return x
	}
	r.Fail(fmt.Errorf("enumerator DotsContinuousRecorderState %d: %w", x, cbor.ErrRange))
	return x
}

// DotsServerCapabilities is a struct; any property may be unset.
type DotsServerCapabilities struct {
	FilteredSubscriptions value.Opt[bool]
}

// Properties of DotsServerCapabilities.
const (
	DotsServerCapabilitiesFilteredSubscriptions value.PropertySet = 1 << 1
)

// DotsServerCapabilitiesKey is the key of objects of type DotsServerCapabilities.
type DotsServerCapabilitiesKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsServerCapabilities) Key() DotsServerCapabilitiesKey {
	return DotsServerCapabilitiesKey{}
}

// Descriptor returns the description of the type.
func (*DotsServerCapabilities) Descriptor() *schema.Struct {
	return descriptorDotsServerCapabilities
}

var descriptorDotsServerCapabilities = schema.MustStruct("DotsServerCapabilities", schema.Flags{Internal: true},
	schema.Property{Name: "filteredSubscriptions", Tag: 1, Type: schema.Builtin(schema.Bool)},
)

// Valid returns the properties that are set.
func (x *DotsServerCapabilities) Valid() (set value.PropertySet) {
	if x.FilteredSubscriptions.IsSet() {
		set |= DotsServerCapabilitiesFilteredSubscriptions
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsServerCapabilities) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsServerCapabilitiesFilteredSubscriptions != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendBool(dst, x.FilteredSubscriptions.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsServerCapabilities) DecodeInstance(r *cbor.Reader) {
	*x = DotsServerCapabilities{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.FilteredSubscriptions.Set(r.Bool())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsServerCapabilities) Merge(from *DotsServerCapabilities, props value.PropertySet) {
	if props&DotsServerCapabilitiesFilteredSubscriptions != 0 {
		x.FilteredSubscriptions = from.FilteredSubscriptions
	}
}

// DotsMsgHello is a struct; any property may be unset.
//
// The first message of a broker.
type DotsMsgHello struct {
	ServerName             value.Opt[string]
	AuthChallenge          value.Opt[uint64] // 0 without authentication
	AuthenticationRequired value.Opt[bool]
	Capabilities           value.Opt[DotsServerCapabilities] // sent by newer brokers
}

// Properties of DotsMsgHello.
const (
	DotsMsgHelloServerName             value.PropertySet = 1 << 1
	DotsMsgHelloAuthChallenge          value.PropertySet = 1 << 2
	DotsMsgHelloAuthenticationRequired value.PropertySet = 1 << 3
	DotsMsgHelloCapabilities           value.PropertySet = 1 << 4
)

// DotsMsgHelloKey is the key of objects of type DotsMsgHello.
type DotsMsgHelloKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsMsgHello) Key() DotsMsgHelloKey {
	return DotsMsgHelloKey{}
}

// Descriptor returns the description of the type.
func (*DotsMsgHello) Descriptor() *schema.Struct {
	return descriptorDotsMsgHello
}

var descriptorDotsMsgHello = schema.MustStruct("DotsMsgHello", schema.Flags{Internal: true},
	schema.Property{Name: "serverName", Tag: 1, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "authChallenge", Tag: 2, Type: schema.Builtin(schema.Uint64)},
	schema.Property{Name: "authenticationRequired", Tag: 3, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "capabilities", Tag: 4, Type: schema.OfStruct(descriptorDotsServerCapabilities)},
)

// Valid returns the properties that are set.
func (x *DotsMsgHello) Valid() (set value.PropertySet) {
	if x.ServerName.IsSet() {
		set |= DotsMsgHelloServerName
	}
	if x.AuthChallenge.IsSet() {
		set |= DotsMsgHelloAuthChallenge
	}
	if x.AuthenticationRequired.IsSet() {
		set |= DotsMsgHelloAuthenticationRequired
	}
	if x.Capabilities.IsSet() {
		set |= DotsMsgHelloCapabilities
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsMsgHello) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsMsgHelloServerName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.ServerName.Value())
	}
	if props&DotsMsgHelloAuthChallenge != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, x.AuthChallenge.Value())
	}
	if props&DotsMsgHelloAuthenticationRequired != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendBool(dst, x.AuthenticationRequired.Value())
	}
	if props&DotsMsgHelloCapabilities != 0 {
		dst = append(dst, 4)
		v := x.Capabilities.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsMsgHello) DecodeInstance(r *cbor.Reader) {
	*x = DotsMsgHello{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ServerName.Set(r.String())
		case 2:
			x.AuthChallenge.Set(r.Uint(64))
		case 3:
			x.AuthenticationRequired.Set(r.Bool())
		case 4:
			var v DotsServerCapabilities
			v.DecodeInstance(r)
			x.Capabilities.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsMsgHello) Merge(from *DotsMsgHello, props value.PropertySet) {
	if props&DotsMsgHelloServerName != 0 {
		x.ServerName = from.ServerName
	}
	if props&DotsMsgHelloAuthChallenge != 0 {
		x.AuthChallenge = from.AuthChallenge
	}
	if props&DotsMsgHelloAuthenticationRequired != 0 {
		x.AuthenticationRequired = from.AuthenticationRequired
	}
	if props&DotsMsgHelloCapabilities != 0 {
		x.Capabilities = from.Capabilities
	}
}

// DotsMsgConnect is a struct; any property may be unset.
//
// The first message of a guest, and the one that ends its preload.
type DotsMsgConnect struct {
	ClientName            value.Opt[string]
	PreloadCache          value.Opt[bool]
	PreloadClientFinished value.Opt[bool]
	AuthChallengeResponse value.Opt[string] // 64 hexadecimal digits
	Cnonce                value.Opt[string]
}

// Properties of DotsMsgConnect.
const (
	DotsMsgConnectClientName            value.PropertySet = 1 << 1
	DotsMsgConnectPreloadCache          value.PropertySet = 1 << 2
	DotsMsgConnectPreloadClientFinished value.PropertySet = 1 << 3
	DotsMsgConnectAuthChallengeResponse value.PropertySet = 1 << 4
	DotsMsgConnectCnonce                value.PropertySet = 1 << 5
)

// DotsMsgConnectKey is the key of objects of type DotsMsgConnect.
type DotsMsgConnectKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsMsgConnect) Key() DotsMsgConnectKey {
	return DotsMsgConnectKey{}
}

// Descriptor returns the description of the type.
func (*DotsMsgConnect) Descriptor() *schema.Struct {
	return descriptorDotsMsgConnect
}

var descriptorDotsMsgConnect = schema.MustStruct("DotsMsgConnect", schema.Flags{Internal: true},
	schema.Property{Name: "clientName", Tag: 1, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "preloadCache", Tag: 2, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "preloadClientFinished", Tag: 3, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "authChallengeResponse", Tag: 4, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "cnonce", Tag: 5, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *DotsMsgConnect) Valid() (set value.PropertySet) {
	if x.ClientName.IsSet() {
		set |= DotsMsgConnectClientName
	}
	if x.PreloadCache.IsSet() {
		set |= DotsMsgConnectPreloadCache
	}
	if x.PreloadClientFinished.IsSet() {
		set |= DotsMsgConnectPreloadClientFinished
	}
	if x.AuthChallengeResponse.IsSet() {
		set |= DotsMsgConnectAuthChallengeResponse
	}
	if x.Cnonce.IsSet() {
		set |= DotsMsgConnectCnonce
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsMsgConnect) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsMsgConnectClientName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.ClientName.Value())
	}
	if props&DotsMsgConnectPreloadCache != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendBool(dst, x.PreloadCache.Value())
	}
	if props&DotsMsgConnectPreloadClientFinished != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendBool(dst, x.PreloadClientFinished.Value())
	}
	if props&DotsMsgConnectAuthChallengeResponse != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.AuthChallengeResponse.Value())
	}
	if props&DotsMsgConnectCnonce != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendString(dst, x.Cnonce.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsMsgConnect) DecodeInstance(r *cbor.Reader) {
	*x = DotsMsgConnect{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ClientName.Set(r.String())
		case 2:
			x.PreloadCache.Set(r.Bool())
		case 3:
			x.PreloadClientFinished.Set(r.Bool())
		case 4:
			x.AuthChallengeResponse.Set(r.String())
		case 5:
			x.Cnonce.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsMsgConnect) Merge(from *DotsMsgConnect, props value.PropertySet) {
	if props&DotsMsgConnectClientName != 0 {
		x.ClientName = from.ClientName
	}
	if props&DotsMsgConnectPreloadCache != 0 {
		x.PreloadCache = from.PreloadCache
	}
	if props&DotsMsgConnectPreloadClientFinished != 0 {
		x.PreloadClientFinished = from.PreloadClientFinished
	}
	if props&DotsMsgConnectAuthChallengeResponse != 0 {
		x.AuthChallengeResponse = from.AuthChallengeResponse
	}
	if props&DotsMsgConnectCnonce != 0 {
		x.Cnonce = from.Cnonce
	}
}

// DotsMsgConnectResponse is a struct; any property may be unset.
type DotsMsgConnectResponse struct {
	ServerName      value.Opt[string]
	ClientID        value.Opt[uint32]
	Accepted        value.Opt[bool]
	Preload         value.Opt[bool]
	PreloadFinished value.Opt[bool]
}

// Properties of DotsMsgConnectResponse.
const (
	DotsMsgConnectResponseServerName      value.PropertySet = 1 << 1
	DotsMsgConnectResponseClientID        value.PropertySet = 1 << 5
	DotsMsgConnectResponseAccepted        value.PropertySet = 1 << 2
	DotsMsgConnectResponsePreload         value.PropertySet = 1 << 3
	DotsMsgConnectResponsePreloadFinished value.PropertySet = 1 << 4
)

// DotsMsgConnectResponseKey is the key of objects of type DotsMsgConnectResponse.
type DotsMsgConnectResponseKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsMsgConnectResponse) Key() DotsMsgConnectResponseKey {
	return DotsMsgConnectResponseKey{}
}

// Descriptor returns the description of the type.
func (*DotsMsgConnectResponse) Descriptor() *schema.Struct {
	return descriptorDotsMsgConnectResponse
}

var descriptorDotsMsgConnectResponse = schema.MustStruct("DotsMsgConnectResponse", schema.Flags{Internal: true},
	schema.Property{Name: "serverName", Tag: 1, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "clientId", Tag: 5, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "accepted", Tag: 2, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "preload", Tag: 3, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "preloadFinished", Tag: 4, Type: schema.Builtin(schema.Bool)},
)

// Valid returns the properties that are set.
func (x *DotsMsgConnectResponse) Valid() (set value.PropertySet) {
	if x.ServerName.IsSet() {
		set |= DotsMsgConnectResponseServerName
	}
	if x.ClientID.IsSet() {
		set |= DotsMsgConnectResponseClientID
	}
	if x.Accepted.IsSet() {
		set |= DotsMsgConnectResponseAccepted
	}
	if x.Preload.IsSet() {
		set |= DotsMsgConnectResponsePreload
	}
	if x.PreloadFinished.IsSet() {
		set |= DotsMsgConnectResponsePreloadFinished
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsMsgConnectResponse) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsMsgConnectResponseServerName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.ServerName.Value())
	}
	if props&DotsMsgConnectResponseClientID != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendUint(dst, uint64(x.ClientID.Value()))
	}
	if props&DotsMsgConnectResponseAccepted != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendBool(dst, x.Accepted.Value())
	}
	if props&DotsMsgConnectResponsePreload != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendBool(dst, x.Preload.Value())
	}
	if props&DotsMsgConnectResponsePreloadFinished != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendBool(dst, x.PreloadFinished.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsMsgConnectResponse) DecodeInstance(r *cbor.Reader) {
	*x = DotsMsgConnectResponse{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ServerName.Set(r.String())
		case 5:
			x.ClientID.Set(uint32(r.Uint(32)))
		case 2:
			x.Accepted.Set(r.Bool())
		case 3:
			x.Preload.Set(r.Bool())
		case 4:
			x.PreloadFinished.Set(r.Bool())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsMsgConnectResponse) Merge(from *DotsMsgConnectResponse, props value.PropertySet) {
	if props&DotsMsgConnectResponseServerName != 0 {
		x.ServerName = from.ServerName
	}
	if props&DotsMsgConnectResponseClientID != 0 {
		x.ClientID = from.ClientID
	}
	if props&DotsMsgConnectResponseAccepted != 0 {
		x.Accepted = from.Accepted
	}
	if props&DotsMsgConnectResponsePreload != 0 {
		x.Preload = from.Preload
	}
	if props&DotsMsgConnectResponsePreloadFinished != 0 {
		x.PreloadFinished = from.PreloadFinished
	}
}

// DotsMsgError is a struct; any property may be unset.
type DotsMsgError struct {
	ErrorCode value.Opt[int32] // 0: goodbye
	ErrorText value.Opt[string]
}

// Properties of DotsMsgError.
const (
	DotsMsgErrorErrorCode value.PropertySet = 1 << 1
	DotsMsgErrorErrorText value.PropertySet = 1 << 2
)

// DotsMsgErrorKey is the key of objects of type DotsMsgError.
type DotsMsgErrorKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsMsgError) Key() DotsMsgErrorKey {
	return DotsMsgErrorKey{}
}

// Descriptor returns the description of the type.
func (*DotsMsgError) Descriptor() *schema.Struct {
	return descriptorDotsMsgError
}

var descriptorDotsMsgError = schema.MustStruct("DotsMsgError", schema.Flags{Internal: true},
	schema.Property{Name: "errorCode", Tag: 1, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "errorText", Tag: 2, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *DotsMsgError) Valid() (set value.PropertySet) {
	if x.ErrorCode.IsSet() {
		set |= DotsMsgErrorErrorCode
	}
	if x.ErrorText.IsSet() {
		set |= DotsMsgErrorErrorText
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsMsgError) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsMsgErrorErrorCode != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendInt(dst, int64(x.ErrorCode.Value()))
	}
	if props&DotsMsgErrorErrorText != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.ErrorText.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsMsgError) DecodeInstance(r *cbor.Reader) {
	*x = DotsMsgError{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ErrorCode.Set(int32(r.Int(32)))
		case 2:
			x.ErrorText.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsMsgError) Merge(from *DotsMsgError, props value.PropertySet) {
	if props&DotsMsgErrorErrorCode != 0 {
		x.ErrorCode = from.ErrorCode
	}
	if props&DotsMsgErrorErrorText != 0 {
		x.ErrorText = from.ErrorText
	}
}

// DotsPredicateKind is an enum; its values are the tags.
type DotsPredicateKind uint32

const (
	DotsPredicateKindLeaf DotsPredicateKind = 1
	DotsPredicateKindAnd  DotsPredicateKind = 2
	DotsPredicateKindOr   DotsPredicateKind = 3
	DotsPredicateKindNot  DotsPredicateKind = 4
)

// String returns the name in the description.
func (x DotsPredicateKind) String() string {
	switch x {
	case DotsPredicateKindLeaf:
		return "leaf"
	case DotsPredicateKindAnd:
		return "and"
	case DotsPredicateKindOr:
		return "or"
	case DotsPredicateKindNot:
		return "not"
	}
	return "DotsPredicateKind(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (DotsPredicateKind) Descriptor() *schema.Enum {
	return descriptorDotsPredicateKind
}

var descriptorDotsPredicateKind = schema.MustEnum("DotsPredicateKind",
	schema.Element{Name: "leaf", Tag: 1, Value: 0},
	schema.Element{Name: "and", Tag: 2, Value: 1},
	schema.Element{Name: "or", Tag: 3, Value: 2},
	schema.Element{Name: "not", Tag: 4, Value: 3},
)

func decodeDotsPredicateKind(r *cbor.Reader) DotsPredicateKind {
	x := DotsPredicateKind(r.Uint(32))
	switch x {
	case DotsPredicateKindLeaf, DotsPredicateKindAnd, DotsPredicateKindOr, DotsPredicateKindNot:
		return x
	}
	r.Fail(fmt.Errorf("enumerator DotsPredicateKind %d: %w", x, cbor.ErrRange))
	return x
}

// DotsCompareOp is an enum; its values are the tags.
type DotsCompareOp uint32

const (
	DotsCompareOpEq      DotsCompareOp = 1
	DotsCompareOpNeq     DotsCompareOp = 2
	DotsCompareOpLt      DotsCompareOp = 3
	DotsCompareOpLe      DotsCompareOp = 4
	DotsCompareOpGt      DotsCompareOp = 5
	DotsCompareOpGe      DotsCompareOp = 6
	DotsCompareOpIsIn    DotsCompareOp = 7
	DotsCompareOpNotIn   DotsCompareOp = 8
	DotsCompareOpIsNull  DotsCompareOp = 9
	DotsCompareOpNotNull DotsCompareOp = 10
)

// String returns the name in the description.
func (x DotsCompareOp) String() string {
	switch x {
	case DotsCompareOpEq:
		return "eq"
	case DotsCompareOpNeq:
		return "neq"
	case DotsCompareOpLt:
		return "lt"
	case DotsCompareOpLe:
		return "le"
	case DotsCompareOpGt:
		return "gt"
	case DotsCompareOpGe:
		return "ge"
	case DotsCompareOpIsIn:
		return "isIn"
	case DotsCompareOpNotIn:
		return "notIn"
	case DotsCompareOpIsNull:
		return "isNull"
	case DotsCompareOpNotNull:
		return "notNull"
	}
	return "DotsCompareOp(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (DotsCompareOp) Descriptor() *schema.Enum {
	return descriptorDotsCompareOp
}

var descriptorDotsCompareOp = schema.MustEnum("DotsCompareOp",
	schema.Element{Name: "eq", Tag: 1, Value: 0},
	schema.Element{Name: "neq", Tag: 2, Value: 1},
	schema.Element{Name: "lt", Tag: 3, Value: 2},
	schema.Element{Name: "le", Tag: 4, Value: 3},
	schema.Element{Name: "gt", Tag: 5, Value: 4},
	schema.Element{Name: "ge", Tag: 6, Value: 5},
	schema.Element{Name: "isIn", Tag: 7, Value: 6},
	schema.Element{Name: "notIn", Tag: 8, Value: 7},
	schema.Element{Name: "isNull", Tag: 9, Value: 8},
	schema.Element{Name: "notNull", Tag: 10, Value: 9},
)

func decodeDotsCompareOp(r *cbor.Reader) DotsCompareOp {
	x := DotsCompareOp(r.Uint(32))
	switch x {
	case DotsCompareOpEq, DotsCompareOpNeq, DotsCompareOpLt, DotsCompareOpLe, DotsCompareOpGt, DotsCompareOpGe, DotsCompareOpIsIn, DotsCompareOpNotIn, DotsCompareOpIsNull, DotsCompareOpNotNull:
		return x
	}
	r.Fail(fmt.Errorf("enumerator DotsCompareOp %d: %w", x, cbor.ErrRange))
	return x
}

// DotsPredicateValue is a struct; any property may be unset.
//
// What a property is compared with: exactly one of these.
type DotsPredicateValue struct {
	BoolValue       value.Opt[bool]
	IntValue        value.Opt[int64]  // for all signed integers
	UintValue       value.Opt[uint64] // for all unsigned integers
	FloatValue      value.Opt[float64]
	StringValue     value.Opt[string]
	TimepointValue  value.Opt[value.Timepoint]
	DurationValue   value.Opt[value.Duration]
	UUIDValue       value.Opt[value.UUID]
	IntValues       value.Opt[[]int64]
	UintValues      value.Opt[[]uint64]
	FloatValues     value.Opt[[]float64]
	StringValues    value.Opt[[]string]
	TimepointValues value.Opt[[]value.Timepoint]
	UUIDValues      value.Opt[[]value.UUID]
}

// Properties of DotsPredicateValue.
const (
	DotsPredicateValueBoolValue       value.PropertySet = 1 << 1
	DotsPredicateValueIntValue        value.PropertySet = 1 << 2
	DotsPredicateValueUintValue       value.PropertySet = 1 << 3
	DotsPredicateValueFloatValue      value.PropertySet = 1 << 4
	DotsPredicateValueStringValue     value.PropertySet = 1 << 5
	DotsPredicateValueTimepointValue  value.PropertySet = 1 << 6
	DotsPredicateValueDurationValue   value.PropertySet = 1 << 7
	DotsPredicateValueUUIDValue       value.PropertySet = 1 << 8
	DotsPredicateValueIntValues       value.PropertySet = 1 << 20
	DotsPredicateValueUintValues      value.PropertySet = 1 << 21
	DotsPredicateValueFloatValues     value.PropertySet = 1 << 22
	DotsPredicateValueStringValues    value.PropertySet = 1 << 23
	DotsPredicateValueTimepointValues value.PropertySet = 1 << 24
	DotsPredicateValueUUIDValues      value.PropertySet = 1 << 25
)

// DotsPredicateValueKey is the key of objects of type DotsPredicateValue.
type DotsPredicateValueKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsPredicateValue) Key() DotsPredicateValueKey {
	return DotsPredicateValueKey{}
}

// Descriptor returns the description of the type.
func (*DotsPredicateValue) Descriptor() *schema.Struct {
	return descriptorDotsPredicateValue
}

var descriptorDotsPredicateValue = schema.MustStruct("DotsPredicateValue", schema.Flags{Internal: true},
	schema.Property{Name: "boolValue", Tag: 1, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "intValue", Tag: 2, Type: schema.Builtin(schema.Int64)},
	schema.Property{Name: "uintValue", Tag: 3, Type: schema.Builtin(schema.Uint64)},
	schema.Property{Name: "floatValue", Tag: 4, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "stringValue", Tag: 5, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "timepointValue", Tag: 6, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "durationValue", Tag: 7, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "uuidValue", Tag: 8, Type: schema.Builtin(schema.UUID)},
	schema.Property{Name: "intValues", Tag: 20, Type: schema.MustVector(schema.Builtin(schema.Int64))},
	schema.Property{Name: "uintValues", Tag: 21, Type: schema.MustVector(schema.Builtin(schema.Uint64))},
	schema.Property{Name: "floatValues", Tag: 22, Type: schema.MustVector(schema.Builtin(schema.Float64))},
	schema.Property{Name: "stringValues", Tag: 23, Type: schema.MustVector(schema.Builtin(schema.String))},
	schema.Property{Name: "timepointValues", Tag: 24, Type: schema.MustVector(schema.Builtin(schema.Timepoint))},
	schema.Property{Name: "uuidValues", Tag: 25, Type: schema.MustVector(schema.Builtin(schema.UUID))},
)

// Valid returns the properties that are set.
func (x *DotsPredicateValue) Valid() (set value.PropertySet) {
	if x.BoolValue.IsSet() {
		set |= DotsPredicateValueBoolValue
	}
	if x.IntValue.IsSet() {
		set |= DotsPredicateValueIntValue
	}
	if x.UintValue.IsSet() {
		set |= DotsPredicateValueUintValue
	}
	if x.FloatValue.IsSet() {
		set |= DotsPredicateValueFloatValue
	}
	if x.StringValue.IsSet() {
		set |= DotsPredicateValueStringValue
	}
	if x.TimepointValue.IsSet() {
		set |= DotsPredicateValueTimepointValue
	}
	if x.DurationValue.IsSet() {
		set |= DotsPredicateValueDurationValue
	}
	if x.UUIDValue.IsSet() {
		set |= DotsPredicateValueUUIDValue
	}
	if x.IntValues.IsSet() {
		set |= DotsPredicateValueIntValues
	}
	if x.UintValues.IsSet() {
		set |= DotsPredicateValueUintValues
	}
	if x.FloatValues.IsSet() {
		set |= DotsPredicateValueFloatValues
	}
	if x.StringValues.IsSet() {
		set |= DotsPredicateValueStringValues
	}
	if x.TimepointValues.IsSet() {
		set |= DotsPredicateValueTimepointValues
	}
	if x.UUIDValues.IsSet() {
		set |= DotsPredicateValueUUIDValues
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsPredicateValue) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsPredicateValueBoolValue != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendBool(dst, x.BoolValue.Value())
	}
	if props&DotsPredicateValueIntValue != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendInt(dst, x.IntValue.Value())
	}
	if props&DotsPredicateValueUintValue != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendUint(dst, x.UintValue.Value())
	}
	if props&DotsPredicateValueFloatValue != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendFloat64(dst, x.FloatValue.Value())
	}
	if props&DotsPredicateValueStringValue != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendString(dst, x.StringValue.Value())
	}
	if props&DotsPredicateValueTimepointValue != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendFloat64(dst, float64(x.TimepointValue.Value()))
	}
	if props&DotsPredicateValueDurationValue != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendFloat64(dst, float64(x.DurationValue.Value()))
	}
	if props&DotsPredicateValueUUIDValue != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendUUID(dst, x.UUIDValue.Value())
	}
	if props&DotsPredicateValueIntValues != 0 {
		dst = append(dst, 20)
		v := x.IntValues.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendInt(dst, v[i])
		}
	}
	if props&DotsPredicateValueUintValues != 0 {
		dst = append(dst, 21)
		v := x.UintValues.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendUint(dst, v[i])
		}
	}
	if props&DotsPredicateValueFloatValues != 0 {
		dst = append(dst, 22)
		v := x.FloatValues.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendFloat64(dst, v[i])
		}
	}
	if props&DotsPredicateValueStringValues != 0 {
		dst = append(dst, 23)
		v := x.StringValues.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendString(dst, v[i])
		}
	}
	if props&DotsPredicateValueTimepointValues != 0 {
		dst = append(dst, 24, 24)
		v := x.TimepointValues.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendFloat64(dst, float64(v[i]))
		}
	}
	if props&DotsPredicateValueUUIDValues != 0 {
		dst = append(dst, 24, 25)
		v := x.UUIDValues.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendUUID(dst, v[i])
		}
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsPredicateValue) DecodeInstance(r *cbor.Reader) {
	*x = DotsPredicateValue{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.BoolValue.Set(r.Bool())
		case 2:
			x.IntValue.Set(r.Int(64))
		case 3:
			x.UintValue.Set(r.Uint(64))
		case 4:
			x.FloatValue.Set(r.Float64())
		case 5:
			x.StringValue.Set(r.String())
		case 6:
			x.TimepointValue.Set(value.Timepoint(r.Float64()))
		case 7:
			x.DurationValue.Set(value.Duration(r.Float64()))
		case 8:
			x.UUIDValue.Set(r.Bytes16())
		case 20:
			n := r.ArrayOf(8)
			v := make([]int64, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.Int(64))
			}
			x.IntValues.Set(v)
		case 21:
			n := r.ArrayOf(8)
			v := make([]uint64, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.Uint(64))
			}
			x.UintValues.Set(v)
		case 22:
			n := r.ArrayOf(8)
			v := make([]float64, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.Float64())
			}
			x.FloatValues.Set(v)
		case 23:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.StringValues.Set(v)
		case 24:
			n := r.ArrayOf(8)
			v := make([]value.Timepoint, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, value.Timepoint(r.Float64()))
			}
			x.TimepointValues.Set(v)
		case 25:
			n := r.ArrayOf(16)
			v := make([]value.UUID, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.Bytes16())
			}
			x.UUIDValues.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsPredicateValue) Merge(from *DotsPredicateValue, props value.PropertySet) {
	if props&DotsPredicateValueBoolValue != 0 {
		x.BoolValue = from.BoolValue
	}
	if props&DotsPredicateValueIntValue != 0 {
		x.IntValue = from.IntValue
	}
	if props&DotsPredicateValueUintValue != 0 {
		x.UintValue = from.UintValue
	}
	if props&DotsPredicateValueFloatValue != 0 {
		x.FloatValue = from.FloatValue
	}
	if props&DotsPredicateValueStringValue != 0 {
		x.StringValue = from.StringValue
	}
	if props&DotsPredicateValueTimepointValue != 0 {
		x.TimepointValue = from.TimepointValue
	}
	if props&DotsPredicateValueDurationValue != 0 {
		x.DurationValue = from.DurationValue
	}
	if props&DotsPredicateValueUUIDValue != 0 {
		x.UUIDValue = from.UUIDValue
	}
	if props&DotsPredicateValueIntValues != 0 {
		x.IntValues = from.IntValues
	}
	if props&DotsPredicateValueUintValues != 0 {
		x.UintValues = from.UintValues
	}
	if props&DotsPredicateValueFloatValues != 0 {
		x.FloatValues = from.FloatValues
	}
	if props&DotsPredicateValueStringValues != 0 {
		x.StringValues = from.StringValues
	}
	if props&DotsPredicateValueTimepointValues != 0 {
		x.TimepointValues = from.TimepointValues
	}
	if props&DotsPredicateValueUUIDValues != 0 {
		x.UUIDValues = from.UUIDValues
	}
}

// DotsPredicateLeaf is a struct; any property may be unset.
type DotsPredicateLeaf struct {
	PropertyTag value.Opt[uint32]
	Op          value.Opt[DotsCompareOp]
	Value       value.Opt[DotsPredicateValue]
}

// Properties of DotsPredicateLeaf.
const (
	DotsPredicateLeafPropertyTag value.PropertySet = 1 << 1
	DotsPredicateLeafOp          value.PropertySet = 1 << 2
	DotsPredicateLeafValue       value.PropertySet = 1 << 3
)

// DotsPredicateLeafKey is the key of objects of type DotsPredicateLeaf.
type DotsPredicateLeafKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsPredicateLeaf) Key() DotsPredicateLeafKey {
	return DotsPredicateLeafKey{}
}

// Descriptor returns the description of the type.
func (*DotsPredicateLeaf) Descriptor() *schema.Struct {
	return descriptorDotsPredicateLeaf
}

var descriptorDotsPredicateLeaf = schema.MustStruct("DotsPredicateLeaf", schema.Flags{Internal: true},
	schema.Property{Name: "propertyTag", Tag: 1, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "op", Tag: 2, Type: schema.OfEnum(descriptorDotsCompareOp)},
	schema.Property{Name: "value", Tag: 3, Type: schema.OfStruct(descriptorDotsPredicateValue)},
)

// Valid returns the properties that are set.
func (x *DotsPredicateLeaf) Valid() (set value.PropertySet) {
	if x.PropertyTag.IsSet() {
		set |= DotsPredicateLeafPropertyTag
	}
	if x.Op.IsSet() {
		set |= DotsPredicateLeafOp
	}
	if x.Value.IsSet() {
		set |= DotsPredicateLeafValue
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsPredicateLeaf) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsPredicateLeafPropertyTag != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.PropertyTag.Value()))
	}
	if props&DotsPredicateLeafOp != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Op.Value()))
	}
	if props&DotsPredicateLeafValue != 0 {
		dst = append(dst, 3)
		v := x.Value.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsPredicateLeaf) DecodeInstance(r *cbor.Reader) {
	*x = DotsPredicateLeaf{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.PropertyTag.Set(uint32(r.Uint(32)))
		case 2:
			x.Op.Set(decodeDotsCompareOp(r))
		case 3:
			var v DotsPredicateValue
			v.DecodeInstance(r)
			x.Value.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsPredicateLeaf) Merge(from *DotsPredicateLeaf, props value.PropertySet) {
	if props&DotsPredicateLeafPropertyTag != 0 {
		x.PropertyTag = from.PropertyTag
	}
	if props&DotsPredicateLeafOp != 0 {
		x.Op = from.Op
	}
	if props&DotsPredicateLeafValue != 0 {
		x.Value = from.Value
	}
}

// DotsPredicateNode is a struct; any property may be unset.
type DotsPredicateNode struct {
	Kind  value.Opt[DotsPredicateKind]
	Leaf  value.Opt[DotsPredicateLeaf]
	Arity value.Opt[uint32] // number of subtrees that follow
}

// Properties of DotsPredicateNode.
const (
	DotsPredicateNodeKind  value.PropertySet = 1 << 1
	DotsPredicateNodeLeaf  value.PropertySet = 1 << 2
	DotsPredicateNodeArity value.PropertySet = 1 << 3
)

// DotsPredicateNodeKey is the key of objects of type DotsPredicateNode.
type DotsPredicateNodeKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsPredicateNode) Key() DotsPredicateNodeKey {
	return DotsPredicateNodeKey{}
}

// Descriptor returns the description of the type.
func (*DotsPredicateNode) Descriptor() *schema.Struct {
	return descriptorDotsPredicateNode
}

var descriptorDotsPredicateNode = schema.MustStruct("DotsPredicateNode", schema.Flags{Internal: true},
	schema.Property{Name: "kind", Tag: 1, Type: schema.OfEnum(descriptorDotsPredicateKind)},
	schema.Property{Name: "leaf", Tag: 2, Type: schema.OfStruct(descriptorDotsPredicateLeaf)},
	schema.Property{Name: "arity", Tag: 3, Type: schema.Builtin(schema.Uint32)},
)

// Valid returns the properties that are set.
func (x *DotsPredicateNode) Valid() (set value.PropertySet) {
	if x.Kind.IsSet() {
		set |= DotsPredicateNodeKind
	}
	if x.Leaf.IsSet() {
		set |= DotsPredicateNodeLeaf
	}
	if x.Arity.IsSet() {
		set |= DotsPredicateNodeArity
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsPredicateNode) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsPredicateNodeKind != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.Kind.Value()))
	}
	if props&DotsPredicateNodeLeaf != 0 {
		dst = append(dst, 2)
		v := x.Leaf.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DotsPredicateNodeArity != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendUint(dst, uint64(x.Arity.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsPredicateNode) DecodeInstance(r *cbor.Reader) {
	*x = DotsPredicateNode{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Kind.Set(decodeDotsPredicateKind(r))
		case 2:
			var v DotsPredicateLeaf
			v.DecodeInstance(r)
			x.Leaf.Set(v)
		case 3:
			x.Arity.Set(uint32(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsPredicateNode) Merge(from *DotsPredicateNode, props value.PropertySet) {
	if props&DotsPredicateNodeKind != 0 {
		x.Kind = from.Kind
	}
	if props&DotsPredicateNodeLeaf != 0 {
		x.Leaf = from.Leaf
	}
	if props&DotsPredicateNodeArity != 0 {
		x.Arity = from.Arity
	}
}

// DotsPredicate is a struct; any property may be unset.
//
// A tree in pre-order; without nodes it matches everything.
type DotsPredicate struct {
	Nodes value.Opt[[]DotsPredicateNode]
}

// Properties of DotsPredicate.
const (
	DotsPredicateNodes value.PropertySet = 1 << 1
)

// DotsPredicateKey is the key of objects of type DotsPredicate.
type DotsPredicateKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsPredicate) Key() DotsPredicateKey {
	return DotsPredicateKey{}
}

// Descriptor returns the description of the type.
func (*DotsPredicate) Descriptor() *schema.Struct {
	return descriptorDotsPredicate
}

var descriptorDotsPredicate = schema.MustStruct("DotsPredicate", schema.Flags{Internal: true},
	schema.Property{Name: "nodes", Tag: 1, Type: schema.MustVector(schema.OfStruct(descriptorDotsPredicateNode))},
)

// Valid returns the properties that are set.
func (x *DotsPredicate) Valid() (set value.PropertySet) {
	if x.Nodes.IsSet() {
		set |= DotsPredicateNodes
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsPredicate) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsPredicateNodes != 0 {
		dst = append(dst, 1)
		v := x.Nodes.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = v[i].AppendInstance(dst, ^value.PropertySet(0))
		}
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsPredicate) DecodeInstance(r *cbor.Reader) {
	*x = DotsPredicate{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			var v []DotsPredicateNode
			for range r.ArrayOf(400) {
				if r.Err() != nil {
					return
				}
				v = append(v, DotsPredicateNode{})
				v[len(v)-1].DecodeInstance(r)
			}
			x.Nodes.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsPredicate) Merge(from *DotsPredicate, props value.PropertySet) {
	if props&DotsPredicateNodes != 0 {
		x.Nodes = from.Nodes
	}
}

// DotsFilter is a struct; any property may be unset.
type DotsFilter struct {
	Predicate    value.Opt[DotsPredicate]
	PropertyMask value.Opt[value.PropertySet]
}

// Properties of DotsFilter.
const (
	DotsFilterPredicate    value.PropertySet = 1 << 1
	DotsFilterPropertyMask value.PropertySet = 1 << 2
)

// DotsFilterKey is the key of objects of type DotsFilter.
type DotsFilterKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsFilter) Key() DotsFilterKey {
	return DotsFilterKey{}
}

// Descriptor returns the description of the type.
func (*DotsFilter) Descriptor() *schema.Struct {
	return descriptorDotsFilter
}

var descriptorDotsFilter = schema.MustStruct("DotsFilter", schema.Flags{Internal: true},
	schema.Property{Name: "predicate", Tag: 1, Type: schema.OfStruct(descriptorDotsPredicate)},
	schema.Property{Name: "propertyMask", Tag: 2, Type: schema.Builtin(schema.PropertySet)},
)

// Valid returns the properties that are set.
func (x *DotsFilter) Valid() (set value.PropertySet) {
	if x.Predicate.IsSet() {
		set |= DotsFilterPredicate
	}
	if x.PropertyMask.IsSet() {
		set |= DotsFilterPropertyMask
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsFilter) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsFilterPredicate != 0 {
		dst = append(dst, 1)
		v := x.Predicate.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DotsFilterPropertyMask != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.PropertyMask.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsFilter) DecodeInstance(r *cbor.Reader) {
	*x = DotsFilter{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			var v DotsPredicate
			v.DecodeInstance(r)
			x.Predicate.Set(v)
		case 2:
			x.PropertyMask.Set(value.PropertySet(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsFilter) Merge(from *DotsFilter, props value.PropertySet) {
	if props&DotsFilterPredicate != 0 {
		x.Predicate = from.Predicate
	}
	if props&DotsFilterPropertyMask != 0 {
		x.PropertyMask = from.PropertyMask
	}
}

// DotsMember is a struct; any property may be unset.
//
// Joins or leaves a group.
type DotsMember struct {
	GroupName      value.Opt[string]
	Event          value.Opt[DotsMemberEvent]
	Client         value.Opt[uint32] // ignored
	SubscriptionID value.Opt[uint32] // of a filtered subscription
	Filter         value.Opt[DotsFilter]
}

// Properties of DotsMember.
const (
	DotsMemberGroupName      value.PropertySet = 1 << 1
	DotsMemberEventProperty  value.PropertySet = 1 << 2
	DotsMemberClient         value.PropertySet = 1 << 3
	DotsMemberSubscriptionID value.PropertySet = 1 << 4
	DotsMemberFilter         value.PropertySet = 1 << 5
)

// DotsMemberKey is the key of objects of type DotsMember.
type DotsMemberKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsMember) Key() DotsMemberKey {
	return DotsMemberKey{}
}

// Descriptor returns the description of the type.
func (*DotsMember) Descriptor() *schema.Struct {
	return descriptorDotsMember
}

var descriptorDotsMember = schema.MustStruct("DotsMember", schema.Flags{Internal: true},
	schema.Property{Name: "groupName", Tag: 1, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "event", Tag: 2, Type: schema.OfEnum(descriptorDotsMemberEvent)},
	schema.Property{Name: "client", Tag: 3, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "subscriptionId", Tag: 4, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "filter", Tag: 5, Type: schema.OfStruct(descriptorDotsFilter)},
)

// Valid returns the properties that are set.
func (x *DotsMember) Valid() (set value.PropertySet) {
	if x.GroupName.IsSet() {
		set |= DotsMemberGroupName
	}
	if x.Event.IsSet() {
		set |= DotsMemberEventProperty
	}
	if x.Client.IsSet() {
		set |= DotsMemberClient
	}
	if x.SubscriptionID.IsSet() {
		set |= DotsMemberSubscriptionID
	}
	if x.Filter.IsSet() {
		set |= DotsMemberFilter
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsMember) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsMemberGroupName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.GroupName.Value())
	}
	if props&DotsMemberEventProperty != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Event.Value()))
	}
	if props&DotsMemberClient != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendUint(dst, uint64(x.Client.Value()))
	}
	if props&DotsMemberSubscriptionID != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendUint(dst, uint64(x.SubscriptionID.Value()))
	}
	if props&DotsMemberFilter != 0 {
		dst = append(dst, 5)
		v := x.Filter.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsMember) DecodeInstance(r *cbor.Reader) {
	*x = DotsMember{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.GroupName.Set(r.String())
		case 2:
			x.Event.Set(decodeDotsMemberEvent(r))
		case 3:
			x.Client.Set(uint32(r.Uint(32)))
		case 4:
			x.SubscriptionID.Set(uint32(r.Uint(32)))
		case 5:
			var v DotsFilter
			v.DecodeInstance(r)
			x.Filter.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsMember) Merge(from *DotsMember, props value.PropertySet) {
	if props&DotsMemberGroupName != 0 {
		x.GroupName = from.GroupName
	}
	if props&DotsMemberEventProperty != 0 {
		x.Event = from.Event
	}
	if props&DotsMemberClient != 0 {
		x.Client = from.Client
	}
	if props&DotsMemberSubscriptionID != 0 {
		x.SubscriptionID = from.SubscriptionID
	}
	if props&DotsMemberFilter != 0 {
		x.Filter = from.Filter
	}
}

// DotsCacheInfo is a struct; any property may be unset.
type DotsCacheInfo struct {
	TypeName             value.Opt[string]
	StartTransmission    value.Opt[bool] // never used
	EndTransmission      value.Opt[bool]
	EndDescriptorRequest value.Opt[bool]
}

// Properties of DotsCacheInfo.
const (
	DotsCacheInfoTypeName             value.PropertySet = 1 << 1
	DotsCacheInfoStartTransmission    value.PropertySet = 1 << 2
	DotsCacheInfoEndTransmission      value.PropertySet = 1 << 3
	DotsCacheInfoEndDescriptorRequest value.PropertySet = 1 << 4
)

// DotsCacheInfoKey is the key of objects of type DotsCacheInfo.
type DotsCacheInfoKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsCacheInfo) Key() DotsCacheInfoKey {
	return DotsCacheInfoKey{}
}

// Descriptor returns the description of the type.
func (*DotsCacheInfo) Descriptor() *schema.Struct {
	return descriptorDotsCacheInfo
}

var descriptorDotsCacheInfo = schema.MustStruct("DotsCacheInfo", schema.Flags{Internal: true},
	schema.Property{Name: "typeName", Tag: 1, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "startTransmission", Tag: 2, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "endTransmission", Tag: 3, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "endDescriptorRequest", Tag: 4, Type: schema.Builtin(schema.Bool)},
)

// Valid returns the properties that are set.
func (x *DotsCacheInfo) Valid() (set value.PropertySet) {
	if x.TypeName.IsSet() {
		set |= DotsCacheInfoTypeName
	}
	if x.StartTransmission.IsSet() {
		set |= DotsCacheInfoStartTransmission
	}
	if x.EndTransmission.IsSet() {
		set |= DotsCacheInfoEndTransmission
	}
	if x.EndDescriptorRequest.IsSet() {
		set |= DotsCacheInfoEndDescriptorRequest
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsCacheInfo) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsCacheInfoTypeName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.TypeName.Value())
	}
	if props&DotsCacheInfoStartTransmission != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendBool(dst, x.StartTransmission.Value())
	}
	if props&DotsCacheInfoEndTransmission != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendBool(dst, x.EndTransmission.Value())
	}
	if props&DotsCacheInfoEndDescriptorRequest != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendBool(dst, x.EndDescriptorRequest.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsCacheInfo) DecodeInstance(r *cbor.Reader) {
	*x = DotsCacheInfo{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.TypeName.Set(r.String())
		case 2:
			x.StartTransmission.Set(r.Bool())
		case 3:
			x.EndTransmission.Set(r.Bool())
		case 4:
			x.EndDescriptorRequest.Set(r.Bool())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsCacheInfo) Merge(from *DotsCacheInfo, props value.PropertySet) {
	if props&DotsCacheInfoTypeName != 0 {
		x.TypeName = from.TypeName
	}
	if props&DotsCacheInfoStartTransmission != 0 {
		x.StartTransmission = from.StartTransmission
	}
	if props&DotsCacheInfoEndTransmission != 0 {
		x.EndTransmission = from.EndTransmission
	}
	if props&DotsCacheInfoEndDescriptorRequest != 0 {
		x.EndDescriptorRequest = from.EndDescriptorRequest
	}
}

// DotsClearCache is a struct; any property may be unset.
type DotsClearCache struct {
	TypeNames value.Opt[[]string]
}

// Properties of DotsClearCache.
const (
	DotsClearCacheTypeNames value.PropertySet = 1 << 1
)

// DotsClearCacheKey is the key of objects of type DotsClearCache.
type DotsClearCacheKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsClearCache) Key() DotsClearCacheKey {
	return DotsClearCacheKey{}
}

// Descriptor returns the description of the type.
func (*DotsClearCache) Descriptor() *schema.Struct {
	return descriptorDotsClearCache
}

var descriptorDotsClearCache = schema.MustStruct("DotsClearCache", schema.Flags{Internal: true},
	schema.Property{Name: "typeNames", Tag: 1, Type: schema.MustVector(schema.Builtin(schema.String))},
)

// Valid returns the properties that are set.
func (x *DotsClearCache) Valid() (set value.PropertySet) {
	if x.TypeNames.IsSet() {
		set |= DotsClearCacheTypeNames
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsClearCache) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsClearCacheTypeNames != 0 {
		dst = append(dst, 1)
		v := x.TypeNames.Value()
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
func (x *DotsClearCache) DecodeInstance(r *cbor.Reader) {
	*x = DotsClearCache{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.TypeNames.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsClearCache) Merge(from *DotsClearCache, props value.PropertySet) {
	if props&DotsClearCacheTypeNames != 0 {
		x.TypeNames = from.TypeNames
	}
}

// DotsDescriptorRequest is a struct; any property may be unset.
type DotsDescriptorRequest struct {
	Whitelist value.Opt[[]string]
	Blacklist value.Opt[[]string]
}

// Properties of DotsDescriptorRequest.
const (
	DotsDescriptorRequestWhitelist value.PropertySet = 1 << 1
	DotsDescriptorRequestBlacklist value.PropertySet = 1 << 2
)

// DotsDescriptorRequestKey is the key of objects of type DotsDescriptorRequest.
type DotsDescriptorRequestKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsDescriptorRequest) Key() DotsDescriptorRequestKey {
	return DotsDescriptorRequestKey{}
}

// Descriptor returns the description of the type.
func (*DotsDescriptorRequest) Descriptor() *schema.Struct {
	return descriptorDotsDescriptorRequest
}

var descriptorDotsDescriptorRequest = schema.MustStruct("DotsDescriptorRequest", schema.Flags{Internal: true},
	schema.Property{Name: "whitelist", Tag: 1, Type: schema.MustVector(schema.Builtin(schema.String))},
	schema.Property{Name: "blacklist", Tag: 2, Type: schema.MustVector(schema.Builtin(schema.String))},
)

// Valid returns the properties that are set.
func (x *DotsDescriptorRequest) Valid() (set value.PropertySet) {
	if x.Whitelist.IsSet() {
		set |= DotsDescriptorRequestWhitelist
	}
	if x.Blacklist.IsSet() {
		set |= DotsDescriptorRequestBlacklist
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsDescriptorRequest) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsDescriptorRequestWhitelist != 0 {
		dst = append(dst, 1)
		v := x.Whitelist.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendString(dst, v[i])
		}
	}
	if props&DotsDescriptorRequestBlacklist != 0 {
		dst = append(dst, 2)
		v := x.Blacklist.Value()
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
func (x *DotsDescriptorRequest) DecodeInstance(r *cbor.Reader) {
	*x = DotsDescriptorRequest{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.Whitelist.Set(v)
		case 2:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.Blacklist.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsDescriptorRequest) Merge(from *DotsDescriptorRequest, props value.PropertySet) {
	if props&DotsDescriptorRequestWhitelist != 0 {
		x.Whitelist = from.Whitelist
	}
	if props&DotsDescriptorRequestBlacklist != 0 {
		x.Blacklist = from.Blacklist
	}
}

// DotsEcho is a struct; any property may be unset.
type DotsEcho struct {
	Request        value.Opt[bool]
	Identifier     value.Opt[uint32]
	SequenceNumber value.Opt[uint32]
	Data           value.Opt[string]
}

// Properties of DotsEcho.
const (
	DotsEchoRequest        value.PropertySet = 1 << 1
	DotsEchoIdentifier     value.PropertySet = 1 << 2
	DotsEchoSequenceNumber value.PropertySet = 1 << 3
	DotsEchoData           value.PropertySet = 1 << 4
)

// DotsEchoKey is the key of objects of type DotsEcho.
type DotsEchoKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsEcho) Key() DotsEchoKey {
	return DotsEchoKey{}
}

// Descriptor returns the description of the type.
func (*DotsEcho) Descriptor() *schema.Struct {
	return descriptorDotsEcho
}

var descriptorDotsEcho = schema.MustStruct("DotsEcho", schema.Flags{Internal: true},
	schema.Property{Name: "request", Tag: 1, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "identifier", Tag: 2, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "sequenceNumber", Tag: 3, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "data", Tag: 4, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *DotsEcho) Valid() (set value.PropertySet) {
	if x.Request.IsSet() {
		set |= DotsEchoRequest
	}
	if x.Identifier.IsSet() {
		set |= DotsEchoIdentifier
	}
	if x.SequenceNumber.IsSet() {
		set |= DotsEchoSequenceNumber
	}
	if x.Data.IsSet() {
		set |= DotsEchoData
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsEcho) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsEchoRequest != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendBool(dst, x.Request.Value())
	}
	if props&DotsEchoIdentifier != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Identifier.Value()))
	}
	if props&DotsEchoSequenceNumber != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendUint(dst, uint64(x.SequenceNumber.Value()))
	}
	if props&DotsEchoData != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.Data.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsEcho) DecodeInstance(r *cbor.Reader) {
	*x = DotsEcho{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Request.Set(r.Bool())
		case 2:
			x.Identifier.Set(uint32(r.Uint(32)))
		case 3:
			x.SequenceNumber.Set(uint32(r.Uint(32)))
		case 4:
			x.Data.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsEcho) Merge(from *DotsEcho, props value.PropertySet) {
	if props&DotsEchoRequest != 0 {
		x.Request = from.Request
	}
	if props&DotsEchoIdentifier != 0 {
		x.Identifier = from.Identifier
	}
	if props&DotsEchoSequenceNumber != 0 {
		x.SequenceNumber = from.SequenceNumber
	}
	if props&DotsEchoData != 0 {
		x.Data = from.Data
	}
}

// EnumElementDescriptor is a struct; any property may be unset.
type EnumElementDescriptor struct {
	EnumValue value.Opt[int32] // for information: tags are transmitted
	Name      value.Opt[string]
	Tag       value.Opt[uint32]
}

// Properties of EnumElementDescriptor.
const (
	EnumElementDescriptorEnumValue value.PropertySet = 1 << 1
	EnumElementDescriptorName      value.PropertySet = 1 << 2
	EnumElementDescriptorTag       value.PropertySet = 1 << 3
)

// EnumElementDescriptorKey is the key of objects of type EnumElementDescriptor.
type EnumElementDescriptorKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *EnumElementDescriptor) Key() EnumElementDescriptorKey {
	return EnumElementDescriptorKey{}
}

// Descriptor returns the description of the type.
func (*EnumElementDescriptor) Descriptor() *schema.Struct {
	return descriptorEnumElementDescriptor
}

var descriptorEnumElementDescriptor = schema.MustStruct("EnumElementDescriptor", schema.Flags{Internal: true},
	schema.Property{Name: "enum_value", Tag: 1, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "name", Tag: 2, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "tag", Tag: 3, Type: schema.Builtin(schema.Uint32)},
)

// Valid returns the properties that are set.
func (x *EnumElementDescriptor) Valid() (set value.PropertySet) {
	if x.EnumValue.IsSet() {
		set |= EnumElementDescriptorEnumValue
	}
	if x.Name.IsSet() {
		set |= EnumElementDescriptorName
	}
	if x.Tag.IsSet() {
		set |= EnumElementDescriptorTag
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *EnumElementDescriptor) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&EnumElementDescriptorEnumValue != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendInt(dst, int64(x.EnumValue.Value()))
	}
	if props&EnumElementDescriptorName != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	if props&EnumElementDescriptorTag != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendUint(dst, uint64(x.Tag.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *EnumElementDescriptor) DecodeInstance(r *cbor.Reader) {
	*x = EnumElementDescriptor{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.EnumValue.Set(int32(r.Int(32)))
		case 2:
			x.Name.Set(r.String())
		case 3:
			x.Tag.Set(uint32(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *EnumElementDescriptor) Merge(from *EnumElementDescriptor, props value.PropertySet) {
	if props&EnumElementDescriptorEnumValue != 0 {
		x.EnumValue = from.EnumValue
	}
	if props&EnumElementDescriptorName != 0 {
		x.Name = from.Name
	}
	if props&EnumElementDescriptorTag != 0 {
		x.Tag = from.Tag
	}
}

// EnumDescriptorData is a struct; any property may be unset.
type EnumDescriptorData struct {
	Name        value.Opt[string] // key
	Elements    value.Opt[[]EnumElementDescriptor]
	PublisherID value.Opt[uint32] // not sent
}

// Properties of EnumDescriptorData.
const (
	EnumDescriptorDataName        value.PropertySet = 1 << 1
	EnumDescriptorDataElements    value.PropertySet = 1 << 2
	EnumDescriptorDataPublisherID value.PropertySet = 1 << 4
)

// EnumDescriptorDataKey is the key of objects of type EnumDescriptorData.
type EnumDescriptorDataKey struct {
	Name string
}

// Key returns the key; properties that are unset count as zero.
func (x *EnumDescriptorData) Key() EnumDescriptorDataKey {
	return EnumDescriptorDataKey{Name: x.Name.Value()}
}

// Descriptor returns the description of the type.
func (*EnumDescriptorData) Descriptor() *schema.Struct {
	return descriptorEnumDescriptorData
}

var descriptorEnumDescriptorData = schema.MustStruct("EnumDescriptorData", schema.Flags{Internal: true},
	schema.Property{Name: "name", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "elements", Tag: 2, Type: schema.MustVector(schema.OfStruct(descriptorEnumElementDescriptor))},
	schema.Property{Name: "publisherId", Tag: 4, Type: schema.Builtin(schema.Uint32)},
)

// Valid returns the properties that are set.
func (x *EnumDescriptorData) Valid() (set value.PropertySet) {
	if x.Name.IsSet() {
		set |= EnumDescriptorDataName
	}
	if x.Elements.IsSet() {
		set |= EnumDescriptorDataElements
	}
	if x.PublisherID.IsSet() {
		set |= EnumDescriptorDataPublisherID
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *EnumDescriptorData) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&EnumDescriptorDataName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	if props&EnumDescriptorDataElements != 0 {
		dst = append(dst, 2)
		v := x.Elements.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = v[i].AppendInstance(dst, ^value.PropertySet(0))
		}
	}
	if props&EnumDescriptorDataPublisherID != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendUint(dst, uint64(x.PublisherID.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *EnumDescriptorData) DecodeInstance(r *cbor.Reader) {
	*x = EnumDescriptorData{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Name.Set(r.String())
		case 2:
			var v []EnumElementDescriptor
			for range r.ArrayOf(48) {
				if r.Err() != nil {
					return
				}
				v = append(v, EnumElementDescriptor{})
				v[len(v)-1].DecodeInstance(r)
			}
			x.Elements.Set(v)
		case 4:
			x.PublisherID.Set(uint32(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *EnumDescriptorData) Merge(from *EnumDescriptorData, props value.PropertySet) {
	if props&EnumDescriptorDataElements != 0 {
		x.Elements = from.Elements
	}
	if props&EnumDescriptorDataPublisherID != 0 {
		x.PublisherID = from.PublisherID
	}
}

// StructPropertyData is a struct; any property may be unset.
type StructPropertyData struct {
	Name   value.Opt[string]
	Tag    value.Opt[uint32]
	IsKey  value.Opt[bool]
	Type   value.Opt[string]
	TypeID value.Opt[uint32] // not sent
}

// Properties of StructPropertyData.
const (
	StructPropertyDataName   value.PropertySet = 1 << 1
	StructPropertyDataTag    value.PropertySet = 1 << 2
	StructPropertyDataIsKey  value.PropertySet = 1 << 3
	StructPropertyDataType   value.PropertySet = 1 << 4
	StructPropertyDataTypeID value.PropertySet = 1 << 5
)

// StructPropertyDataKey is the key of objects of type StructPropertyData.
type StructPropertyDataKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *StructPropertyData) Key() StructPropertyDataKey {
	return StructPropertyDataKey{}
}

// Descriptor returns the description of the type.
func (*StructPropertyData) Descriptor() *schema.Struct {
	return descriptorStructPropertyData
}

var descriptorStructPropertyData = schema.MustStruct("StructPropertyData", schema.Flags{Internal: true},
	schema.Property{Name: "name", Tag: 1, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "tag", Tag: 2, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "isKey", Tag: 3, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "type", Tag: 4, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "typeId", Tag: 5, Type: schema.Builtin(schema.Uint32)},
)

// Valid returns the properties that are set.
func (x *StructPropertyData) Valid() (set value.PropertySet) {
	if x.Name.IsSet() {
		set |= StructPropertyDataName
	}
	if x.Tag.IsSet() {
		set |= StructPropertyDataTag
	}
	if x.IsKey.IsSet() {
		set |= StructPropertyDataIsKey
	}
	if x.Type.IsSet() {
		set |= StructPropertyDataType
	}
	if x.TypeID.IsSet() {
		set |= StructPropertyDataTypeID
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *StructPropertyData) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&StructPropertyDataName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	if props&StructPropertyDataTag != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Tag.Value()))
	}
	if props&StructPropertyDataIsKey != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendBool(dst, x.IsKey.Value())
	}
	if props&StructPropertyDataType != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.Type.Value())
	}
	if props&StructPropertyDataTypeID != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendUint(dst, uint64(x.TypeID.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *StructPropertyData) DecodeInstance(r *cbor.Reader) {
	*x = StructPropertyData{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Name.Set(r.String())
		case 2:
			x.Tag.Set(uint32(r.Uint(32)))
		case 3:
			x.IsKey.Set(r.Bool())
		case 4:
			x.Type.Set(r.String())
		case 5:
			x.TypeID.Set(uint32(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *StructPropertyData) Merge(from *StructPropertyData, props value.PropertySet) {
	if props&StructPropertyDataName != 0 {
		x.Name = from.Name
	}
	if props&StructPropertyDataTag != 0 {
		x.Tag = from.Tag
	}
	if props&StructPropertyDataIsKey != 0 {
		x.IsKey = from.IsKey
	}
	if props&StructPropertyDataType != 0 {
		x.Type = from.Type
	}
	if props&StructPropertyDataTypeID != 0 {
		x.TypeID = from.TypeID
	}
}

// StructDocumentation is a struct; any property may be unset.
type StructDocumentation struct {
	Description value.Opt[string]
	Comment     value.Opt[string]
}

// Properties of StructDocumentation.
const (
	StructDocumentationDescription value.PropertySet = 1 << 1
	StructDocumentationComment     value.PropertySet = 1 << 2
)

// StructDocumentationKey is the key of objects of type StructDocumentation.
type StructDocumentationKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *StructDocumentation) Key() StructDocumentationKey {
	return StructDocumentationKey{}
}

// Descriptor returns the description of the type.
func (*StructDocumentation) Descriptor() *schema.Struct {
	return descriptorStructDocumentation
}

var descriptorStructDocumentation = schema.MustStruct("StructDocumentation", schema.Flags{Internal: true},
	schema.Property{Name: "description", Tag: 1, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "comment", Tag: 2, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *StructDocumentation) Valid() (set value.PropertySet) {
	if x.Description.IsSet() {
		set |= StructDocumentationDescription
	}
	if x.Comment.IsSet() {
		set |= StructDocumentationComment
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *StructDocumentation) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&StructDocumentationDescription != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Description.Value())
	}
	if props&StructDocumentationComment != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Comment.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *StructDocumentation) DecodeInstance(r *cbor.Reader) {
	*x = StructDocumentation{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Description.Set(r.String())
		case 2:
			x.Comment.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *StructDocumentation) Merge(from *StructDocumentation, props value.PropertySet) {
	if props&StructDocumentationDescription != 0 {
		x.Description = from.Description
	}
	if props&StructDocumentationComment != 0 {
		x.Comment = from.Comment
	}
}

// DotsStructFlags is a struct; any property may be unset.
type DotsStructFlags struct {
	Cached        value.Opt[bool]
	Internal      value.Opt[bool]
	Persistent    value.Opt[bool]
	Cleanup       value.Opt[bool]
	Local         value.Opt[bool]
	SubstructOnly value.Opt[bool]
}

// Properties of DotsStructFlags.
const (
	DotsStructFlagsCached        value.PropertySet = 1 << 1
	DotsStructFlagsInternal      value.PropertySet = 1 << 2
	DotsStructFlagsPersistent    value.PropertySet = 1 << 3
	DotsStructFlagsCleanup       value.PropertySet = 1 << 4
	DotsStructFlagsLocal         value.PropertySet = 1 << 5
	DotsStructFlagsSubstructOnly value.PropertySet = 1 << 6
)

// DotsStructFlagsKey is the key of objects of type DotsStructFlags.
type DotsStructFlagsKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsStructFlags) Key() DotsStructFlagsKey {
	return DotsStructFlagsKey{}
}

// Descriptor returns the description of the type.
func (*DotsStructFlags) Descriptor() *schema.Struct {
	return descriptorDotsStructFlags
}

var descriptorDotsStructFlags = schema.MustStruct("DotsStructFlags", schema.Flags{Internal: true},
	schema.Property{Name: "cached", Tag: 1, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "internal", Tag: 2, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "persistent", Tag: 3, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "cleanup", Tag: 4, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "local", Tag: 5, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "substructOnly", Tag: 6, Type: schema.Builtin(schema.Bool)},
)

// Valid returns the properties that are set.
func (x *DotsStructFlags) Valid() (set value.PropertySet) {
	if x.Cached.IsSet() {
		set |= DotsStructFlagsCached
	}
	if x.Internal.IsSet() {
		set |= DotsStructFlagsInternal
	}
	if x.Persistent.IsSet() {
		set |= DotsStructFlagsPersistent
	}
	if x.Cleanup.IsSet() {
		set |= DotsStructFlagsCleanup
	}
	if x.Local.IsSet() {
		set |= DotsStructFlagsLocal
	}
	if x.SubstructOnly.IsSet() {
		set |= DotsStructFlagsSubstructOnly
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsStructFlags) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsStructFlagsCached != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendBool(dst, x.Cached.Value())
	}
	if props&DotsStructFlagsInternal != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendBool(dst, x.Internal.Value())
	}
	if props&DotsStructFlagsPersistent != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendBool(dst, x.Persistent.Value())
	}
	if props&DotsStructFlagsCleanup != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendBool(dst, x.Cleanup.Value())
	}
	if props&DotsStructFlagsLocal != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendBool(dst, x.Local.Value())
	}
	if props&DotsStructFlagsSubstructOnly != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendBool(dst, x.SubstructOnly.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsStructFlags) DecodeInstance(r *cbor.Reader) {
	*x = DotsStructFlags{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Cached.Set(r.Bool())
		case 2:
			x.Internal.Set(r.Bool())
		case 3:
			x.Persistent.Set(r.Bool())
		case 4:
			x.Cleanup.Set(r.Bool())
		case 5:
			x.Local.Set(r.Bool())
		case 6:
			x.SubstructOnly.Set(r.Bool())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsStructFlags) Merge(from *DotsStructFlags, props value.PropertySet) {
	if props&DotsStructFlagsCached != 0 {
		x.Cached = from.Cached
	}
	if props&DotsStructFlagsInternal != 0 {
		x.Internal = from.Internal
	}
	if props&DotsStructFlagsPersistent != 0 {
		x.Persistent = from.Persistent
	}
	if props&DotsStructFlagsCleanup != 0 {
		x.Cleanup = from.Cleanup
	}
	if props&DotsStructFlagsLocal != 0 {
		x.Local = from.Local
	}
	if props&DotsStructFlagsSubstructOnly != 0 {
		x.SubstructOnly = from.SubstructOnly
	}
}

// StructDescriptorData is a struct; any property may be unset.
type StructDescriptorData struct {
	Name          value.Opt[string] // key
	Properties    value.Opt[[]StructPropertyData]
	Documentation value.Opt[StructDocumentation] // not sent
	Scope         value.Opt[DotsStructScope]     // not sent
	Flags         value.Opt[DotsStructFlags]
	PublisherID   value.Opt[uint32] // not sent
}

// Properties of StructDescriptorData.
const (
	StructDescriptorDataName          value.PropertySet = 1 << 1
	StructDescriptorDataProperties    value.PropertySet = 1 << 2
	StructDescriptorDataDocumentation value.PropertySet = 1 << 3
	StructDescriptorDataScope         value.PropertySet = 1 << 4
	StructDescriptorDataFlags         value.PropertySet = 1 << 5
	StructDescriptorDataPublisherID   value.PropertySet = 1 << 6
)

// StructDescriptorDataKey is the key of objects of type StructDescriptorData.
type StructDescriptorDataKey struct {
	Name string
}

// Key returns the key; properties that are unset count as zero.
func (x *StructDescriptorData) Key() StructDescriptorDataKey {
	return StructDescriptorDataKey{Name: x.Name.Value()}
}

// Descriptor returns the description of the type.
func (*StructDescriptorData) Descriptor() *schema.Struct {
	return descriptorStructDescriptorData
}

var descriptorStructDescriptorData = schema.MustStruct("StructDescriptorData", schema.Flags{Internal: true},
	schema.Property{Name: "name", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "properties", Tag: 2, Type: schema.MustVector(schema.OfStruct(descriptorStructPropertyData))},
	schema.Property{Name: "documentation", Tag: 3, Type: schema.OfStruct(descriptorStructDocumentation)},
	schema.Property{Name: "scope", Tag: 4, Type: schema.OfEnum(descriptorDotsStructScope)},
	schema.Property{Name: "flags", Tag: 5, Type: schema.OfStruct(descriptorDotsStructFlags)},
	schema.Property{Name: "publisherId", Tag: 6, Type: schema.Builtin(schema.Uint32)},
)

// Valid returns the properties that are set.
func (x *StructDescriptorData) Valid() (set value.PropertySet) {
	if x.Name.IsSet() {
		set |= StructDescriptorDataName
	}
	if x.Properties.IsSet() {
		set |= StructDescriptorDataProperties
	}
	if x.Documentation.IsSet() {
		set |= StructDescriptorDataDocumentation
	}
	if x.Scope.IsSet() {
		set |= StructDescriptorDataScope
	}
	if x.Flags.IsSet() {
		set |= StructDescriptorDataFlags
	}
	if x.PublisherID.IsSet() {
		set |= StructDescriptorDataPublisherID
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *StructDescriptorData) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&StructDescriptorDataName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	if props&StructDescriptorDataProperties != 0 {
		dst = append(dst, 2)
		v := x.Properties.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = v[i].AppendInstance(dst, ^value.PropertySet(0))
		}
	}
	if props&StructDescriptorDataDocumentation != 0 {
		dst = append(dst, 3)
		v := x.Documentation.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&StructDescriptorDataScope != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendUint(dst, uint64(x.Scope.Value()))
	}
	if props&StructDescriptorDataFlags != 0 {
		dst = append(dst, 5)
		v := x.Flags.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&StructDescriptorDataPublisherID != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendUint(dst, uint64(x.PublisherID.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *StructDescriptorData) DecodeInstance(r *cbor.Reader) {
	*x = StructDescriptorData{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Name.Set(r.String())
		case 2:
			var v []StructPropertyData
			for range r.ArrayOf(88) {
				if r.Err() != nil {
					return
				}
				v = append(v, StructPropertyData{})
				v[len(v)-1].DecodeInstance(r)
			}
			x.Properties.Set(v)
		case 3:
			var v StructDocumentation
			v.DecodeInstance(r)
			x.Documentation.Set(v)
		case 4:
			x.Scope.Set(decodeDotsStructScope(r))
		case 5:
			var v DotsStructFlags
			v.DecodeInstance(r)
			x.Flags.Set(v)
		case 6:
			x.PublisherID.Set(uint32(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *StructDescriptorData) Merge(from *StructDescriptorData, props value.PropertySet) {
	if props&StructDescriptorDataProperties != 0 {
		x.Properties = from.Properties
	}
	if props&StructDescriptorDataDocumentation != 0 {
		x.Documentation = from.Documentation
	}
	if props&StructDescriptorDataScope != 0 {
		x.Scope = from.Scope
	}
	if props&StructDescriptorDataFlags != 0 {
		x.Flags = from.Flags
	}
	if props&StructDescriptorDataPublisherID != 0 {
		x.PublisherID = from.PublisherID
	}
}

// DotsClient is a struct; any property may be unset.
type DotsClient struct {
	ID              value.Opt[uint32] // key
	Name            value.Opt[string]
	Running         value.Opt[bool]
	PublishedTypes  value.Opt[[]string]
	SubscribedTypes value.Opt[[]string]
	ConnectionState value.Opt[DotsConnectionState]
}

// Properties of DotsClient.
const (
	DotsClientID              value.PropertySet = 1 << 1
	DotsClientName            value.PropertySet = 1 << 2
	DotsClientRunning         value.PropertySet = 1 << 3
	DotsClientPublishedTypes  value.PropertySet = 1 << 4
	DotsClientSubscribedTypes value.PropertySet = 1 << 5
	DotsClientConnectionState value.PropertySet = 1 << 6
)

// DotsClientKey is the key of objects of type DotsClient.
type DotsClientKey struct {
	ID uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *DotsClient) Key() DotsClientKey {
	return DotsClientKey{ID: x.ID.Value()}
}

// Descriptor returns the description of the type.
func (*DotsClient) Descriptor() *schema.Struct {
	return descriptorDotsClient
}

var descriptorDotsClient = schema.MustStruct("DotsClient", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "id", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "name", Tag: 2, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "running", Tag: 3, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "publishedTypes", Tag: 4, Type: schema.MustVector(schema.Builtin(schema.String))},
	schema.Property{Name: "subscribedTypes", Tag: 5, Type: schema.MustVector(schema.Builtin(schema.String))},
	schema.Property{Name: "connectionState", Tag: 6, Type: schema.OfEnum(descriptorDotsConnectionState)},
)

// Valid returns the properties that are set.
func (x *DotsClient) Valid() (set value.PropertySet) {
	if x.ID.IsSet() {
		set |= DotsClientID
	}
	if x.Name.IsSet() {
		set |= DotsClientName
	}
	if x.Running.IsSet() {
		set |= DotsClientRunning
	}
	if x.PublishedTypes.IsSet() {
		set |= DotsClientPublishedTypes
	}
	if x.SubscribedTypes.IsSet() {
		set |= DotsClientSubscribedTypes
	}
	if x.ConnectionState.IsSet() {
		set |= DotsClientConnectionState
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsClient) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsClientID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.ID.Value()))
	}
	if props&DotsClientName != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	if props&DotsClientRunning != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendBool(dst, x.Running.Value())
	}
	if props&DotsClientPublishedTypes != 0 {
		dst = append(dst, 4)
		v := x.PublishedTypes.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendString(dst, v[i])
		}
	}
	if props&DotsClientSubscribedTypes != 0 {
		dst = append(dst, 5)
		v := x.SubscribedTypes.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendString(dst, v[i])
		}
	}
	if props&DotsClientConnectionState != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendUint(dst, uint64(x.ConnectionState.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsClient) DecodeInstance(r *cbor.Reader) {
	*x = DotsClient{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ID.Set(uint32(r.Uint(32)))
		case 2:
			x.Name.Set(r.String())
		case 3:
			x.Running.Set(r.Bool())
		case 4:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.PublishedTypes.Set(v)
		case 5:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.SubscribedTypes.Set(v)
		case 6:
			x.ConnectionState.Set(decodeDotsConnectionState(r))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsClient) Merge(from *DotsClient, props value.PropertySet) {
	if props&DotsClientName != 0 {
		x.Name = from.Name
	}
	if props&DotsClientRunning != 0 {
		x.Running = from.Running
	}
	if props&DotsClientPublishedTypes != 0 {
		x.PublishedTypes = from.PublishedTypes
	}
	if props&DotsClientSubscribedTypes != 0 {
		x.SubscribedTypes = from.SubscribedTypes
	}
	if props&DotsClientConnectionState != 0 {
		x.ConnectionState = from.ConnectionState
	}
}

// DotsStatistics is a struct; any property may be unset.
type DotsStatistics struct {
	Bytes    value.Opt[uint64]
	Packages value.Opt[uint64] // frames
}

// Properties of DotsStatistics.
const (
	DotsStatisticsBytes    value.PropertySet = 1 << 1
	DotsStatisticsPackages value.PropertySet = 1 << 2
)

// DotsStatisticsKey is the key of objects of type DotsStatistics.
type DotsStatisticsKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsStatistics) Key() DotsStatisticsKey {
	return DotsStatisticsKey{}
}

// Descriptor returns the description of the type.
func (*DotsStatistics) Descriptor() *schema.Struct {
	return descriptorDotsStatistics
}

var descriptorDotsStatistics = schema.MustStruct("DotsStatistics", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "bytes", Tag: 1, Type: schema.Builtin(schema.Uint64)},
	schema.Property{Name: "packages", Tag: 2, Type: schema.Builtin(schema.Uint64)},
)

// Valid returns the properties that are set.
func (x *DotsStatistics) Valid() (set value.PropertySet) {
	if x.Bytes.IsSet() {
		set |= DotsStatisticsBytes
	}
	if x.Packages.IsSet() {
		set |= DotsStatisticsPackages
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsStatistics) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsStatisticsBytes != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, x.Bytes.Value())
	}
	if props&DotsStatisticsPackages != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, x.Packages.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsStatistics) DecodeInstance(r *cbor.Reader) {
	*x = DotsStatistics{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Bytes.Set(r.Uint(64))
		case 2:
			x.Packages.Set(r.Uint(64))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsStatistics) Merge(from *DotsStatistics, props value.PropertySet) {
	if props&DotsStatisticsBytes != 0 {
		x.Bytes = from.Bytes
	}
	if props&DotsStatisticsPackages != 0 {
		x.Packages = from.Packages
	}
}

// DotsCacheStatus is a struct; any property may be unset.
type DotsCacheStatus struct {
	NrTypes value.Opt[uint32]
	Size    value.Opt[uint64]
}

// Properties of DotsCacheStatus.
const (
	DotsCacheStatusNrTypes value.PropertySet = 1 << 1
	DotsCacheStatusSize    value.PropertySet = 1 << 2
)

// DotsCacheStatusKey is the key of objects of type DotsCacheStatus.
type DotsCacheStatusKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsCacheStatus) Key() DotsCacheStatusKey {
	return DotsCacheStatusKey{}
}

// Descriptor returns the description of the type.
func (*DotsCacheStatus) Descriptor() *schema.Struct {
	return descriptorDotsCacheStatus
}

var descriptorDotsCacheStatus = schema.MustStruct("DotsCacheStatus", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "nrTypes", Tag: 1, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "size", Tag: 2, Type: schema.Builtin(schema.Uint64)},
)

// Valid returns the properties that are set.
func (x *DotsCacheStatus) Valid() (set value.PropertySet) {
	if x.NrTypes.IsSet() {
		set |= DotsCacheStatusNrTypes
	}
	if x.Size.IsSet() {
		set |= DotsCacheStatusSize
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsCacheStatus) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsCacheStatusNrTypes != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.NrTypes.Value()))
	}
	if props&DotsCacheStatusSize != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, x.Size.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsCacheStatus) DecodeInstance(r *cbor.Reader) {
	*x = DotsCacheStatus{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.NrTypes.Set(uint32(r.Uint(32)))
		case 2:
			x.Size.Set(r.Uint(64))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsCacheStatus) Merge(from *DotsCacheStatus, props value.PropertySet) {
	if props&DotsCacheStatusNrTypes != 0 {
		x.NrTypes = from.NrTypes
	}
	if props&DotsCacheStatusSize != 0 {
		x.Size = from.Size
	}
}

// DotsResourceUsage is a struct; any property may be unset.
type DotsResourceUsage struct {
	MinorFaults                  value.Opt[int32]
	MajorFaults                  value.Opt[int32]
	InBlock                      value.Opt[int32]
	OutBlock                     value.Opt[int32]
	NrSignals                    value.Opt[int32]
	NrSwaps                      value.Opt[int32]
	NrVoluntaryContextSwitches   value.Opt[int32]
	NrInvoluntaryContextSwitches value.Opt[int32]
	MaxRss                       value.Opt[int32]
	UserCPUTime                  value.Opt[value.Duration]
	SystemCPUTime                value.Opt[value.Duration]
}

// Properties of DotsResourceUsage.
const (
	DotsResourceUsageMinorFaults                  value.PropertySet = 1 << 1
	DotsResourceUsageMajorFaults                  value.PropertySet = 1 << 2
	DotsResourceUsageInBlock                      value.PropertySet = 1 << 3
	DotsResourceUsageOutBlock                     value.PropertySet = 1 << 4
	DotsResourceUsageNrSignals                    value.PropertySet = 1 << 5
	DotsResourceUsageNrSwaps                      value.PropertySet = 1 << 6
	DotsResourceUsageNrVoluntaryContextSwitches   value.PropertySet = 1 << 7
	DotsResourceUsageNrInvoluntaryContextSwitches value.PropertySet = 1 << 8
	DotsResourceUsageMaxRss                       value.PropertySet = 1 << 9
	DotsResourceUsageUserCPUTime                  value.PropertySet = 1 << 10
	DotsResourceUsageSystemCPUTime                value.PropertySet = 1 << 11
)

// DotsResourceUsageKey is the key of objects of type DotsResourceUsage.
type DotsResourceUsageKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsResourceUsage) Key() DotsResourceUsageKey {
	return DotsResourceUsageKey{}
}

// Descriptor returns the description of the type.
func (*DotsResourceUsage) Descriptor() *schema.Struct {
	return descriptorDotsResourceUsage
}

var descriptorDotsResourceUsage = schema.MustStruct("DotsResourceUsage", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "minorFaults", Tag: 1, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "majorFaults", Tag: 2, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "inBlock", Tag: 3, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "outBlock", Tag: 4, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "nrSignals", Tag: 5, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "nrSwaps", Tag: 6, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "nrVoluntaryContextSwitches", Tag: 7, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "nrInvoluntaryContextSwitches", Tag: 8, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "maxRss", Tag: 9, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "userCpuTime", Tag: 10, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "systemCpuTime", Tag: 11, Type: schema.Builtin(schema.Duration)},
)

// Valid returns the properties that are set.
func (x *DotsResourceUsage) Valid() (set value.PropertySet) {
	if x.MinorFaults.IsSet() {
		set |= DotsResourceUsageMinorFaults
	}
	if x.MajorFaults.IsSet() {
		set |= DotsResourceUsageMajorFaults
	}
	if x.InBlock.IsSet() {
		set |= DotsResourceUsageInBlock
	}
	if x.OutBlock.IsSet() {
		set |= DotsResourceUsageOutBlock
	}
	if x.NrSignals.IsSet() {
		set |= DotsResourceUsageNrSignals
	}
	if x.NrSwaps.IsSet() {
		set |= DotsResourceUsageNrSwaps
	}
	if x.NrVoluntaryContextSwitches.IsSet() {
		set |= DotsResourceUsageNrVoluntaryContextSwitches
	}
	if x.NrInvoluntaryContextSwitches.IsSet() {
		set |= DotsResourceUsageNrInvoluntaryContextSwitches
	}
	if x.MaxRss.IsSet() {
		set |= DotsResourceUsageMaxRss
	}
	if x.UserCPUTime.IsSet() {
		set |= DotsResourceUsageUserCPUTime
	}
	if x.SystemCPUTime.IsSet() {
		set |= DotsResourceUsageSystemCPUTime
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsResourceUsage) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsResourceUsageMinorFaults != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendInt(dst, int64(x.MinorFaults.Value()))
	}
	if props&DotsResourceUsageMajorFaults != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendInt(dst, int64(x.MajorFaults.Value()))
	}
	if props&DotsResourceUsageInBlock != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendInt(dst, int64(x.InBlock.Value()))
	}
	if props&DotsResourceUsageOutBlock != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendInt(dst, int64(x.OutBlock.Value()))
	}
	if props&DotsResourceUsageNrSignals != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendInt(dst, int64(x.NrSignals.Value()))
	}
	if props&DotsResourceUsageNrSwaps != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendInt(dst, int64(x.NrSwaps.Value()))
	}
	if props&DotsResourceUsageNrVoluntaryContextSwitches != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendInt(dst, int64(x.NrVoluntaryContextSwitches.Value()))
	}
	if props&DotsResourceUsageNrInvoluntaryContextSwitches != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendInt(dst, int64(x.NrInvoluntaryContextSwitches.Value()))
	}
	if props&DotsResourceUsageMaxRss != 0 {
		dst = append(dst, 9)
		dst = cbor.AppendInt(dst, int64(x.MaxRss.Value()))
	}
	if props&DotsResourceUsageUserCPUTime != 0 {
		dst = append(dst, 10)
		dst = cbor.AppendFloat64(dst, float64(x.UserCPUTime.Value()))
	}
	if props&DotsResourceUsageSystemCPUTime != 0 {
		dst = append(dst, 11)
		dst = cbor.AppendFloat64(dst, float64(x.SystemCPUTime.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsResourceUsage) DecodeInstance(r *cbor.Reader) {
	*x = DotsResourceUsage{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.MinorFaults.Set(int32(r.Int(32)))
		case 2:
			x.MajorFaults.Set(int32(r.Int(32)))
		case 3:
			x.InBlock.Set(int32(r.Int(32)))
		case 4:
			x.OutBlock.Set(int32(r.Int(32)))
		case 5:
			x.NrSignals.Set(int32(r.Int(32)))
		case 6:
			x.NrSwaps.Set(int32(r.Int(32)))
		case 7:
			x.NrVoluntaryContextSwitches.Set(int32(r.Int(32)))
		case 8:
			x.NrInvoluntaryContextSwitches.Set(int32(r.Int(32)))
		case 9:
			x.MaxRss.Set(int32(r.Int(32)))
		case 10:
			x.UserCPUTime.Set(value.Duration(r.Float64()))
		case 11:
			x.SystemCPUTime.Set(value.Duration(r.Float64()))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsResourceUsage) Merge(from *DotsResourceUsage, props value.PropertySet) {
	if props&DotsResourceUsageMinorFaults != 0 {
		x.MinorFaults = from.MinorFaults
	}
	if props&DotsResourceUsageMajorFaults != 0 {
		x.MajorFaults = from.MajorFaults
	}
	if props&DotsResourceUsageInBlock != 0 {
		x.InBlock = from.InBlock
	}
	if props&DotsResourceUsageOutBlock != 0 {
		x.OutBlock = from.OutBlock
	}
	if props&DotsResourceUsageNrSignals != 0 {
		x.NrSignals = from.NrSignals
	}
	if props&DotsResourceUsageNrSwaps != 0 {
		x.NrSwaps = from.NrSwaps
	}
	if props&DotsResourceUsageNrVoluntaryContextSwitches != 0 {
		x.NrVoluntaryContextSwitches = from.NrVoluntaryContextSwitches
	}
	if props&DotsResourceUsageNrInvoluntaryContextSwitches != 0 {
		x.NrInvoluntaryContextSwitches = from.NrInvoluntaryContextSwitches
	}
	if props&DotsResourceUsageMaxRss != 0 {
		x.MaxRss = from.MaxRss
	}
	if props&DotsResourceUsageUserCPUTime != 0 {
		x.UserCPUTime = from.UserCPUTime
	}
	if props&DotsResourceUsageSystemCPUTime != 0 {
		x.SystemCPUTime = from.SystemCPUTime
	}
}

// DotsDaemonStatus is a struct; any property may be unset.
type DotsDaemonStatus struct {
	ServerName    value.Opt[string] // key
	StartTime     value.Opt[value.Timepoint]
	Received      value.Opt[DotsStatistics]
	Sent          value.Opt[DotsStatistics]
	Cache         value.Opt[DotsCacheStatus]
	ResourceUsage value.Opt[DotsResourceUsage]
}

// Properties of DotsDaemonStatus.
const (
	DotsDaemonStatusServerName    value.PropertySet = 1 << 1
	DotsDaemonStatusStartTime     value.PropertySet = 1 << 2
	DotsDaemonStatusReceived      value.PropertySet = 1 << 3
	DotsDaemonStatusSent          value.PropertySet = 1 << 4
	DotsDaemonStatusCache         value.PropertySet = 1 << 5
	DotsDaemonStatusResourceUsage value.PropertySet = 1 << 6
)

// DotsDaemonStatusKey is the key of objects of type DotsDaemonStatus.
type DotsDaemonStatusKey struct {
	ServerName string
}

// Key returns the key; properties that are unset count as zero.
func (x *DotsDaemonStatus) Key() DotsDaemonStatusKey {
	return DotsDaemonStatusKey{ServerName: x.ServerName.Value()}
}

// Descriptor returns the description of the type.
func (*DotsDaemonStatus) Descriptor() *schema.Struct {
	return descriptorDotsDaemonStatus
}

var descriptorDotsDaemonStatus = schema.MustStruct("DotsDaemonStatus", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "serverName", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "startTime", Tag: 2, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "received", Tag: 3, Type: schema.OfStruct(descriptorDotsStatistics)},
	schema.Property{Name: "sent", Tag: 4, Type: schema.OfStruct(descriptorDotsStatistics)},
	schema.Property{Name: "cache", Tag: 5, Type: schema.OfStruct(descriptorDotsCacheStatus)},
	schema.Property{Name: "resourceUsage", Tag: 6, Type: schema.OfStruct(descriptorDotsResourceUsage)},
)

// Valid returns the properties that are set.
func (x *DotsDaemonStatus) Valid() (set value.PropertySet) {
	if x.ServerName.IsSet() {
		set |= DotsDaemonStatusServerName
	}
	if x.StartTime.IsSet() {
		set |= DotsDaemonStatusStartTime
	}
	if x.Received.IsSet() {
		set |= DotsDaemonStatusReceived
	}
	if x.Sent.IsSet() {
		set |= DotsDaemonStatusSent
	}
	if x.Cache.IsSet() {
		set |= DotsDaemonStatusCache
	}
	if x.ResourceUsage.IsSet() {
		set |= DotsDaemonStatusResourceUsage
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsDaemonStatus) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsDaemonStatusServerName != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.ServerName.Value())
	}
	if props&DotsDaemonStatusStartTime != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendFloat64(dst, float64(x.StartTime.Value()))
	}
	if props&DotsDaemonStatusReceived != 0 {
		dst = append(dst, 3)
		v := x.Received.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DotsDaemonStatusSent != 0 {
		dst = append(dst, 4)
		v := x.Sent.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DotsDaemonStatusCache != 0 {
		dst = append(dst, 5)
		v := x.Cache.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DotsDaemonStatusResourceUsage != 0 {
		dst = append(dst, 6)
		v := x.ResourceUsage.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsDaemonStatus) DecodeInstance(r *cbor.Reader) {
	*x = DotsDaemonStatus{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ServerName.Set(r.String())
		case 2:
			x.StartTime.Set(value.Timepoint(r.Float64()))
		case 3:
			var v DotsStatistics
			v.DecodeInstance(r)
			x.Received.Set(v)
		case 4:
			var v DotsStatistics
			v.DecodeInstance(r)
			x.Sent.Set(v)
		case 5:
			var v DotsCacheStatus
			v.DecodeInstance(r)
			x.Cache.Set(v)
		case 6:
			var v DotsResourceUsage
			v.DecodeInstance(r)
			x.ResourceUsage.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsDaemonStatus) Merge(from *DotsDaemonStatus, props value.PropertySet) {
	if props&DotsDaemonStatusStartTime != 0 {
		x.StartTime = from.StartTime
	}
	if props&DotsDaemonStatusReceived != 0 {
		x.Received = from.Received
	}
	if props&DotsDaemonStatusSent != 0 {
		x.Sent = from.Sent
	}
	if props&DotsDaemonStatusCache != 0 {
		x.Cache = from.Cache
	}
	if props&DotsDaemonStatusResourceUsage != 0 {
		x.ResourceUsage = from.ResourceUsage
	}
}

// DotsClientStatistics is a struct; any property may be unset.
type DotsClientStatistics struct {
	ClientID             value.Opt[uint32] // key
	Sent                 value.Opt[DotsStatistics]
	Received             value.Opt[DotsStatistics]
	DrainerWakeups       value.Opt[uint64]
	PeakQueuedBytes      value.Opt[uint64]
	PeakQueuedFrames     value.Opt[uint32]
	CurrentQueuedBytes   value.Opt[uint64]
	OverflowDisconnected value.Opt[bool]
}

// Properties of DotsClientStatistics.
const (
	DotsClientStatisticsClientID             value.PropertySet = 1 << 1
	DotsClientStatisticsSent                 value.PropertySet = 1 << 2
	DotsClientStatisticsReceived             value.PropertySet = 1 << 3
	DotsClientStatisticsDrainerWakeups       value.PropertySet = 1 << 4
	DotsClientStatisticsPeakQueuedBytes      value.PropertySet = 1 << 5
	DotsClientStatisticsPeakQueuedFrames     value.PropertySet = 1 << 6
	DotsClientStatisticsCurrentQueuedBytes   value.PropertySet = 1 << 7
	DotsClientStatisticsOverflowDisconnected value.PropertySet = 1 << 8
)

// DotsClientStatisticsKey is the key of objects of type DotsClientStatistics.
type DotsClientStatisticsKey struct {
	ClientID uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *DotsClientStatistics) Key() DotsClientStatisticsKey {
	return DotsClientStatisticsKey{ClientID: x.ClientID.Value()}
}

// Descriptor returns the description of the type.
func (*DotsClientStatistics) Descriptor() *schema.Struct {
	return descriptorDotsClientStatistics
}

var descriptorDotsClientStatistics = schema.MustStruct("DotsClientStatistics", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "clientId", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "sent", Tag: 2, Type: schema.OfStruct(descriptorDotsStatistics)},
	schema.Property{Name: "received", Tag: 3, Type: schema.OfStruct(descriptorDotsStatistics)},
	schema.Property{Name: "drainerWakeups", Tag: 4, Type: schema.Builtin(schema.Uint64)},
	schema.Property{Name: "peakQueuedBytes", Tag: 5, Type: schema.Builtin(schema.Uint64)},
	schema.Property{Name: "peakQueuedFrames", Tag: 6, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "currentQueuedBytes", Tag: 7, Type: schema.Builtin(schema.Uint64)},
	schema.Property{Name: "overflowDisconnected", Tag: 8, Type: schema.Builtin(schema.Bool)},
)

// Valid returns the properties that are set.
func (x *DotsClientStatistics) Valid() (set value.PropertySet) {
	if x.ClientID.IsSet() {
		set |= DotsClientStatisticsClientID
	}
	if x.Sent.IsSet() {
		set |= DotsClientStatisticsSent
	}
	if x.Received.IsSet() {
		set |= DotsClientStatisticsReceived
	}
	if x.DrainerWakeups.IsSet() {
		set |= DotsClientStatisticsDrainerWakeups
	}
	if x.PeakQueuedBytes.IsSet() {
		set |= DotsClientStatisticsPeakQueuedBytes
	}
	if x.PeakQueuedFrames.IsSet() {
		set |= DotsClientStatisticsPeakQueuedFrames
	}
	if x.CurrentQueuedBytes.IsSet() {
		set |= DotsClientStatisticsCurrentQueuedBytes
	}
	if x.OverflowDisconnected.IsSet() {
		set |= DotsClientStatisticsOverflowDisconnected
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsClientStatistics) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsClientStatisticsClientID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.ClientID.Value()))
	}
	if props&DotsClientStatisticsSent != 0 {
		dst = append(dst, 2)
		v := x.Sent.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DotsClientStatisticsReceived != 0 {
		dst = append(dst, 3)
		v := x.Received.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DotsClientStatisticsDrainerWakeups != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendUint(dst, x.DrainerWakeups.Value())
	}
	if props&DotsClientStatisticsPeakQueuedBytes != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendUint(dst, x.PeakQueuedBytes.Value())
	}
	if props&DotsClientStatisticsPeakQueuedFrames != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendUint(dst, uint64(x.PeakQueuedFrames.Value()))
	}
	if props&DotsClientStatisticsCurrentQueuedBytes != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendUint(dst, x.CurrentQueuedBytes.Value())
	}
	if props&DotsClientStatisticsOverflowDisconnected != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendBool(dst, x.OverflowDisconnected.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsClientStatistics) DecodeInstance(r *cbor.Reader) {
	*x = DotsClientStatistics{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ClientID.Set(uint32(r.Uint(32)))
		case 2:
			var v DotsStatistics
			v.DecodeInstance(r)
			x.Sent.Set(v)
		case 3:
			var v DotsStatistics
			v.DecodeInstance(r)
			x.Received.Set(v)
		case 4:
			x.DrainerWakeups.Set(r.Uint(64))
		case 5:
			x.PeakQueuedBytes.Set(r.Uint(64))
		case 6:
			x.PeakQueuedFrames.Set(uint32(r.Uint(32)))
		case 7:
			x.CurrentQueuedBytes.Set(r.Uint(64))
		case 8:
			x.OverflowDisconnected.Set(r.Bool())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsClientStatistics) Merge(from *DotsClientStatistics, props value.PropertySet) {
	if props&DotsClientStatisticsSent != 0 {
		x.Sent = from.Sent
	}
	if props&DotsClientStatisticsReceived != 0 {
		x.Received = from.Received
	}
	if props&DotsClientStatisticsDrainerWakeups != 0 {
		x.DrainerWakeups = from.DrainerWakeups
	}
	if props&DotsClientStatisticsPeakQueuedBytes != 0 {
		x.PeakQueuedBytes = from.PeakQueuedBytes
	}
	if props&DotsClientStatisticsPeakQueuedFrames != 0 {
		x.PeakQueuedFrames = from.PeakQueuedFrames
	}
	if props&DotsClientStatisticsCurrentQueuedBytes != 0 {
		x.CurrentQueuedBytes = from.CurrentQueuedBytes
	}
	if props&DotsClientStatisticsOverflowDisconnected != 0 {
		x.OverflowDisconnected = from.OverflowDisconnected
	}
}

// DotsCloneInformation is a struct; any property may be unset.
//
// What is known of an object in a cache; never transmitted.
type DotsCloneInformation struct {
	LastOperation   value.Opt[DotsMt]
	LastUpdateFrom  value.Opt[uint32]
	Created         value.Opt[value.Timepoint]
	CreatedFrom     value.Opt[uint32]
	Modified        value.Opt[value.Timepoint]
	LocalUpdateTime value.Opt[value.Timepoint]
}

// Properties of DotsCloneInformation.
const (
	DotsCloneInformationLastOperation   value.PropertySet = 1 << 1
	DotsCloneInformationLastUpdateFrom  value.PropertySet = 1 << 2
	DotsCloneInformationCreated         value.PropertySet = 1 << 3
	DotsCloneInformationCreatedFrom     value.PropertySet = 1 << 4
	DotsCloneInformationModified        value.PropertySet = 1 << 5
	DotsCloneInformationLocalUpdateTime value.PropertySet = 1 << 6
)

// DotsCloneInformationKey is the key of objects of type DotsCloneInformation.
type DotsCloneInformationKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsCloneInformation) Key() DotsCloneInformationKey {
	return DotsCloneInformationKey{}
}

// Descriptor returns the description of the type.
func (*DotsCloneInformation) Descriptor() *schema.Struct {
	return descriptorDotsCloneInformation
}

var descriptorDotsCloneInformation = schema.MustStruct("DotsCloneInformation", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "lastOperation", Tag: 1, Type: schema.OfEnum(descriptorDotsMt)},
	schema.Property{Name: "lastUpdateFrom", Tag: 2, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "created", Tag: 3, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "createdFrom", Tag: 4, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "modified", Tag: 5, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "localUpdateTime", Tag: 6, Type: schema.Builtin(schema.Timepoint)},
)

// Valid returns the properties that are set.
func (x *DotsCloneInformation) Valid() (set value.PropertySet) {
	if x.LastOperation.IsSet() {
		set |= DotsCloneInformationLastOperation
	}
	if x.LastUpdateFrom.IsSet() {
		set |= DotsCloneInformationLastUpdateFrom
	}
	if x.Created.IsSet() {
		set |= DotsCloneInformationCreated
	}
	if x.CreatedFrom.IsSet() {
		set |= DotsCloneInformationCreatedFrom
	}
	if x.Modified.IsSet() {
		set |= DotsCloneInformationModified
	}
	if x.LocalUpdateTime.IsSet() {
		set |= DotsCloneInformationLocalUpdateTime
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsCloneInformation) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsCloneInformationLastOperation != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.LastOperation.Value()))
	}
	if props&DotsCloneInformationLastUpdateFrom != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.LastUpdateFrom.Value()))
	}
	if props&DotsCloneInformationCreated != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendFloat64(dst, float64(x.Created.Value()))
	}
	if props&DotsCloneInformationCreatedFrom != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendUint(dst, uint64(x.CreatedFrom.Value()))
	}
	if props&DotsCloneInformationModified != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendFloat64(dst, float64(x.Modified.Value()))
	}
	if props&DotsCloneInformationLocalUpdateTime != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendFloat64(dst, float64(x.LocalUpdateTime.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsCloneInformation) DecodeInstance(r *cbor.Reader) {
	*x = DotsCloneInformation{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.LastOperation.Set(decodeDotsMt(r))
		case 2:
			x.LastUpdateFrom.Set(uint32(r.Uint(32)))
		case 3:
			x.Created.Set(value.Timepoint(r.Float64()))
		case 4:
			x.CreatedFrom.Set(uint32(r.Uint(32)))
		case 5:
			x.Modified.Set(value.Timepoint(r.Float64()))
		case 6:
			x.LocalUpdateTime.Set(value.Timepoint(r.Float64()))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsCloneInformation) Merge(from *DotsCloneInformation, props value.PropertySet) {
	if props&DotsCloneInformationLastOperation != 0 {
		x.LastOperation = from.LastOperation
	}
	if props&DotsCloneInformationLastUpdateFrom != 0 {
		x.LastUpdateFrom = from.LastUpdateFrom
	}
	if props&DotsCloneInformationCreated != 0 {
		x.Created = from.Created
	}
	if props&DotsCloneInformationCreatedFrom != 0 {
		x.CreatedFrom = from.CreatedFrom
	}
	if props&DotsCloneInformationModified != 0 {
		x.Modified = from.Modified
	}
	if props&DotsCloneInformationLocalUpdateTime != 0 {
		x.LocalUpdateTime = from.LocalUpdateTime
	}
}

// DotsNetwork is a struct; any property may be unset.
type DotsNetwork struct {
	Network value.Opt[string] // key
	Prefix  value.Opt[uint8]  // key
}

// Properties of DotsNetwork.
const (
	DotsNetworkNetwork value.PropertySet = 1 << 1
	DotsNetworkPrefix  value.PropertySet = 1 << 2
)

// DotsNetworkKey is the key of objects of type DotsNetwork.
type DotsNetworkKey struct {
	Network string
	Prefix  uint8
}

// Key returns the key; properties that are unset count as zero.
func (x *DotsNetwork) Key() DotsNetworkKey {
	return DotsNetworkKey{Network: x.Network.Value(), Prefix: x.Prefix.Value()}
}

// Descriptor returns the description of the type.
func (*DotsNetwork) Descriptor() *schema.Struct {
	return descriptorDotsNetwork
}

var descriptorDotsNetwork = schema.MustStruct("DotsNetwork", schema.Flags{Internal: true, SubstructOnly: true},
	schema.Property{Name: "network", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "prefix", Tag: 2, Key: true, Type: schema.Builtin(schema.Uint8)},
)

// Valid returns the properties that are set.
func (x *DotsNetwork) Valid() (set value.PropertySet) {
	if x.Network.IsSet() {
		set |= DotsNetworkNetwork
	}
	if x.Prefix.IsSet() {
		set |= DotsNetworkPrefix
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsNetwork) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsNetworkNetwork != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Network.Value())
	}
	if props&DotsNetworkPrefix != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Prefix.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsNetwork) DecodeInstance(r *cbor.Reader) {
	*x = DotsNetwork{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Network.Set(r.String())
		case 2:
			x.Prefix.Set(uint8(r.Uint(8)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsNetwork) Merge(from *DotsNetwork, props value.PropertySet) {
}

// DotsAuthenticationPolicy is a struct; any property may be unset.
type DotsAuthenticationPolicy struct {
	NameSpace value.Opt[string] // key
	Accept    value.Opt[bool]
}

// Properties of DotsAuthenticationPolicy.
const (
	DotsAuthenticationPolicyNameSpace value.PropertySet = 1 << 1
	DotsAuthenticationPolicyAccept    value.PropertySet = 1 << 2
)

// DotsAuthenticationPolicyKey is the key of objects of type DotsAuthenticationPolicy.
type DotsAuthenticationPolicyKey struct {
	NameSpace string
}

// Key returns the key; properties that are unset count as zero.
func (x *DotsAuthenticationPolicy) Key() DotsAuthenticationPolicyKey {
	return DotsAuthenticationPolicyKey{NameSpace: x.NameSpace.Value()}
}

// Descriptor returns the description of the type.
func (*DotsAuthenticationPolicy) Descriptor() *schema.Struct {
	return descriptorDotsAuthenticationPolicy
}

var descriptorDotsAuthenticationPolicy = schema.MustStruct("DotsAuthenticationPolicy", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "nameSpace", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "accept", Tag: 2, Type: schema.Builtin(schema.Bool)},
)

// Valid returns the properties that are set.
func (x *DotsAuthenticationPolicy) Valid() (set value.PropertySet) {
	if x.NameSpace.IsSet() {
		set |= DotsAuthenticationPolicyNameSpace
	}
	if x.Accept.IsSet() {
		set |= DotsAuthenticationPolicyAccept
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsAuthenticationPolicy) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsAuthenticationPolicyNameSpace != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.NameSpace.Value())
	}
	if props&DotsAuthenticationPolicyAccept != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendBool(dst, x.Accept.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsAuthenticationPolicy) DecodeInstance(r *cbor.Reader) {
	*x = DotsAuthenticationPolicy{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.NameSpace.Set(r.String())
		case 2:
			x.Accept.Set(r.Bool())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsAuthenticationPolicy) Merge(from *DotsAuthenticationPolicy, props value.PropertySet) {
	if props&DotsAuthenticationPolicyAccept != 0 {
		x.Accept = from.Accept
	}
}

// DotsAuthentication is a struct; any property may be unset.
type DotsAuthentication struct {
	NameSpace  value.Opt[string]      // key
	Network    value.Opt[DotsNetwork] // key
	ClientName value.Opt[string]      // key
	Priority   value.Opt[uint16]      // key
	Secret     value.Opt[string]
	Accept     value.Opt[bool]
}

// Properties of DotsAuthentication.
const (
	DotsAuthenticationNameSpace  value.PropertySet = 1 << 1
	DotsAuthenticationNetwork    value.PropertySet = 1 << 2
	DotsAuthenticationClientName value.PropertySet = 1 << 3
	DotsAuthenticationPriority   value.PropertySet = 1 << 6
	DotsAuthenticationSecret     value.PropertySet = 1 << 4
	DotsAuthenticationAccept     value.PropertySet = 1 << 5
)

// DotsAuthenticationKey is the key of objects of type DotsAuthentication.
type DotsAuthenticationKey struct {
	NameSpace  string
	Network    DotsNetwork
	ClientName string
	Priority   uint16
}

// Key returns the key; properties that are unset count as zero.
func (x *DotsAuthentication) Key() DotsAuthenticationKey {
	return DotsAuthenticationKey{NameSpace: x.NameSpace.Value(), Network: x.Network.Value(), ClientName: x.ClientName.Value(), Priority: x.Priority.Value()}
}

// Descriptor returns the description of the type.
func (*DotsAuthentication) Descriptor() *schema.Struct {
	return descriptorDotsAuthentication
}

var descriptorDotsAuthentication = schema.MustStruct("DotsAuthentication", schema.Flags{Cached: true, Internal: true},
	schema.Property{Name: "nameSpace", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "network", Tag: 2, Key: true, Type: schema.OfStruct(descriptorDotsNetwork)},
	schema.Property{Name: "clientName", Tag: 3, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "priority", Tag: 6, Key: true, Type: schema.Builtin(schema.Uint16)},
	schema.Property{Name: "secret", Tag: 4, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "accept", Tag: 5, Type: schema.Builtin(schema.Bool)},
)

// Valid returns the properties that are set.
func (x *DotsAuthentication) Valid() (set value.PropertySet) {
	if x.NameSpace.IsSet() {
		set |= DotsAuthenticationNameSpace
	}
	if x.Network.IsSet() {
		set |= DotsAuthenticationNetwork
	}
	if x.ClientName.IsSet() {
		set |= DotsAuthenticationClientName
	}
	if x.Priority.IsSet() {
		set |= DotsAuthenticationPriority
	}
	if x.Secret.IsSet() {
		set |= DotsAuthenticationSecret
	}
	if x.Accept.IsSet() {
		set |= DotsAuthenticationAccept
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsAuthentication) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsAuthenticationNameSpace != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.NameSpace.Value())
	}
	if props&DotsAuthenticationNetwork != 0 {
		dst = append(dst, 2)
		v := x.Network.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DotsAuthenticationClientName != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.ClientName.Value())
	}
	if props&DotsAuthenticationPriority != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendUint(dst, uint64(x.Priority.Value()))
	}
	if props&DotsAuthenticationSecret != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.Secret.Value())
	}
	if props&DotsAuthenticationAccept != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendBool(dst, x.Accept.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsAuthentication) DecodeInstance(r *cbor.Reader) {
	*x = DotsAuthentication{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.NameSpace.Set(r.String())
		case 2:
			var v DotsNetwork
			v.DecodeInstance(r)
			x.Network.Set(v)
		case 3:
			x.ClientName.Set(r.String())
		case 6:
			x.Priority.Set(uint16(r.Uint(16)))
		case 4:
			x.Secret.Set(r.String())
		case 5:
			x.Accept.Set(r.Bool())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsAuthentication) Merge(from *DotsAuthentication, props value.PropertySet) {
	if props&DotsAuthenticationSecret != 0 {
		x.Secret = from.Secret
	}
	if props&DotsAuthenticationAccept != 0 {
		x.Accept = from.Accept
	}
}

// DotsDumpContinuousRecorder is a struct; any property may be unset.
type DotsDumpContinuousRecorder struct {
	RecorderID value.Opt[string]
	FileName   value.Opt[string]
}

// Properties of DotsDumpContinuousRecorder.
const (
	DotsDumpContinuousRecorderRecorderID value.PropertySet = 1 << 1
	DotsDumpContinuousRecorderFileName   value.PropertySet = 1 << 2
)

// DotsDumpContinuousRecorderKey is the key of objects of type DotsDumpContinuousRecorder.
type DotsDumpContinuousRecorderKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DotsDumpContinuousRecorder) Key() DotsDumpContinuousRecorderKey {
	return DotsDumpContinuousRecorderKey{}
}

// Descriptor returns the description of the type.
func (*DotsDumpContinuousRecorder) Descriptor() *schema.Struct {
	return descriptorDotsDumpContinuousRecorder
}

var descriptorDotsDumpContinuousRecorder = schema.MustStruct("DotsDumpContinuousRecorder", schema.Flags{Internal: true},
	schema.Property{Name: "recorderId", Tag: 1, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "fileName", Tag: 2, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *DotsDumpContinuousRecorder) Valid() (set value.PropertySet) {
	if x.RecorderID.IsSet() {
		set |= DotsDumpContinuousRecorderRecorderID
	}
	if x.FileName.IsSet() {
		set |= DotsDumpContinuousRecorderFileName
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsDumpContinuousRecorder) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsDumpContinuousRecorderRecorderID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.RecorderID.Value())
	}
	if props&DotsDumpContinuousRecorderFileName != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.FileName.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsDumpContinuousRecorder) DecodeInstance(r *cbor.Reader) {
	*x = DotsDumpContinuousRecorder{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.RecorderID.Set(r.String())
		case 2:
			x.FileName.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsDumpContinuousRecorder) Merge(from *DotsDumpContinuousRecorder, props value.PropertySet) {
	if props&DotsDumpContinuousRecorderRecorderID != 0 {
		x.RecorderID = from.RecorderID
	}
	if props&DotsDumpContinuousRecorderFileName != 0 {
		x.FileName = from.FileName
	}
}

// DotsContinuousRecorderStatus is a struct; any property may be unset.
type DotsContinuousRecorderStatus struct {
	RecorderID     value.Opt[string] // key
	BufferSize     value.Opt[uint32]
	BufferSizeUsed value.Opt[uint32]
	StartTime      value.Opt[value.Timepoint]
	State          value.Opt[DotsContinuousRecorderState]
}

// Properties of DotsContinuousRecorderStatus.
const (
	DotsContinuousRecorderStatusRecorderID     value.PropertySet = 1 << 1
	DotsContinuousRecorderStatusBufferSize     value.PropertySet = 1 << 2
	DotsContinuousRecorderStatusBufferSizeUsed value.PropertySet = 1 << 3
	DotsContinuousRecorderStatusStartTime      value.PropertySet = 1 << 4
	DotsContinuousRecorderStatusState          value.PropertySet = 1 << 5
)

// DotsContinuousRecorderStatusKey is the key of objects of type DotsContinuousRecorderStatus.
type DotsContinuousRecorderStatusKey struct {
	RecorderID string
}

// Key returns the key; properties that are unset count as zero.
func (x *DotsContinuousRecorderStatus) Key() DotsContinuousRecorderStatusKey {
	return DotsContinuousRecorderStatusKey{RecorderID: x.RecorderID.Value()}
}

// Descriptor returns the description of the type.
func (*DotsContinuousRecorderStatus) Descriptor() *schema.Struct {
	return descriptorDotsContinuousRecorderStatus
}

var descriptorDotsContinuousRecorderStatus = schema.MustStruct("DotsContinuousRecorderStatus", schema.Flags{Cached: true, Internal: true, Cleanup: true},
	schema.Property{Name: "recorderId", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "bufferSize", Tag: 2, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "bufferSizeUsed", Tag: 3, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "startTime", Tag: 4, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "state", Tag: 5, Type: schema.OfEnum(descriptorDotsContinuousRecorderState)},
)

// Valid returns the properties that are set.
func (x *DotsContinuousRecorderStatus) Valid() (set value.PropertySet) {
	if x.RecorderID.IsSet() {
		set |= DotsContinuousRecorderStatusRecorderID
	}
	if x.BufferSize.IsSet() {
		set |= DotsContinuousRecorderStatusBufferSize
	}
	if x.BufferSizeUsed.IsSet() {
		set |= DotsContinuousRecorderStatusBufferSizeUsed
	}
	if x.StartTime.IsSet() {
		set |= DotsContinuousRecorderStatusStartTime
	}
	if x.State.IsSet() {
		set |= DotsContinuousRecorderStatusState
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DotsContinuousRecorderStatus) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DotsContinuousRecorderStatusRecorderID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.RecorderID.Value())
	}
	if props&DotsContinuousRecorderStatusBufferSize != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.BufferSize.Value()))
	}
	if props&DotsContinuousRecorderStatusBufferSizeUsed != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendUint(dst, uint64(x.BufferSizeUsed.Value()))
	}
	if props&DotsContinuousRecorderStatusStartTime != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendFloat64(dst, float64(x.StartTime.Value()))
	}
	if props&DotsContinuousRecorderStatusState != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendUint(dst, uint64(x.State.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DotsContinuousRecorderStatus) DecodeInstance(r *cbor.Reader) {
	*x = DotsContinuousRecorderStatus{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.RecorderID.Set(r.String())
		case 2:
			x.BufferSize.Set(uint32(r.Uint(32)))
		case 3:
			x.BufferSizeUsed.Set(uint32(r.Uint(32)))
		case 4:
			x.StartTime.Set(value.Timepoint(r.Float64()))
		case 5:
			x.State.Set(decodeDotsContinuousRecorderState(r))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DotsContinuousRecorderStatus) Merge(from *DotsContinuousRecorderStatus, props value.PropertySet) {
	if props&DotsContinuousRecorderStatusBufferSize != 0 {
		x.BufferSize = from.BufferSize
	}
	if props&DotsContinuousRecorderStatusBufferSizeUsed != 0 {
		x.BufferSizeUsed = from.BufferSizeUsed
	}
	if props&DotsContinuousRecorderStatusStartTime != 0 {
		x.StartTime = from.StartTime
	}
	if props&DotsContinuousRecorderStatusState != 0 {
		x.State = from.State
	}
}
