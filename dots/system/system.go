// Package system has the types of the protocol itself, which all peers know without descriptions,
// and converts types to the messages that describe them, and back.
package system

import "correlator/dots/schema"

//go:generate go run correlator/dots/internal/gen -package system system.dots

// NewRegistry returns a Registry that knows the types of the protocol.
func NewRegistry() *schema.Registry {
	r := schema.NewRegistry()
	for _, s := range Structs() {
		if _, err := r.AddStruct(s); err != nil {
			panic(err) // two types of one name: the code is wrong
		}
	}
	return r
}

// Structs returns the structs of the protocol. The header is not among them.
func Structs() []*schema.Struct {
	return []*schema.Struct{
		descriptorDotsMsgHello, descriptorDotsMsgConnect, descriptorDotsMsgConnectResponse,
		descriptorDotsMsgError, descriptorDotsMember, descriptorDotsCacheInfo, descriptorDotsClearCache,
		descriptorDotsDescriptorRequest, descriptorDotsEcho, descriptorEnumDescriptorData,
		descriptorStructDescriptorData, descriptorDotsClient, descriptorDotsDaemonStatus,
		descriptorDotsClientStatistics, descriptorDotsCloneInformation, descriptorDotsAuthenticationPolicy,
		descriptorDotsAuthentication, descriptorDotsDumpContinuousRecorder,
		descriptorDotsContinuousRecorderStatus,
	}
}
