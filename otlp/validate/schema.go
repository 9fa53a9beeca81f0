package validate

// kind is what has to be known about a field. The wire type that a field of the schema has follows from it,
// but for plain.
type kind uint8

const (
	unknown    kind = iota
	plain           // a number, a truth value, or bytes: anything goes
	text            // UTF-8
	texts           // repeated
	varints         // repeated
	fixed64s        // repeated
	message         // of the schema's ref
	messages        // repeated
	attributes      // repeated KeyValue, of which the keys are unique
	index           // into the dictionary table ref; in common messages: only in profiles
	indices         // repeated
)

// nested says that the field is a message, or several.
func (k kind) nested() bool { return k == message || k == messages || k == attributes }

// many says that the field is repeated.
func (k kind) many() bool {
	return k == texts || k == varints || k == fixed64s || k == messages || k == attributes || k == indices
}

// entry describes a field of a message. Its ref is a messageID or a table.
type entry struct {
	name string
	kind kind
	ref  uint8
}

// messageID is a message of the schema.
type messageID = uint8

const (
	msgTraces messageID = iota // Export…ServiceRequest
	msgMetrics
	msgProfiles

	msgResource
	msgEntityRef
	msgScope
	msgKeyValue
	msgAnyValue
	msgArrayValue
	msgKeyValueList

	msgResourceSpans
	msgScopeSpans
	msgSpan
	msgEvent
	msgSpanLink
	msgStatus

	msgResourceMetrics
	msgScopeMetrics
	msgMetric
	msgGauge
	msgSum
	msgHistogram
	msgExponentialHistogram
	msgSummary
	msgNumberPoint
	msgHistogramPoint
	msgExponentialPoint
	msgSummaryPoint
	msgBuckets
	msgQuantile
	msgExemplar

	msgResourceProfiles
	msgScopeProfiles
	msgProfile
	msgValueType
	msgSample
	msgDictionary
	msgMapping
	msgLocation
	msgLine
	msgFunction
	msgLink
	msgKeyValueAndUnit
	msgStack

	numMessages
)

// table is a table of the dictionary of profiles: its field number there.
type table = uint8

const (
	mappings table = iota + 1
	locations
	functions
	links
	stringTable
	attributeTable
	stacks
	numTables // one more than there are
)

// schema is opentelemetry-proto 1.11.0 (profiles: v1development), by field numbers. A test compares it with
// the generated messages.
var schema = [numMessages][]entry{
	msgTraces:   {1: {"resource_spans", messages, msgResourceSpans}},
	msgMetrics:  {1: {"resource_metrics", messages, msgResourceMetrics}},
	msgProfiles: {1: {"resource_profiles", messages, msgResourceProfiles}, 2: {"dictionary", message, msgDictionary}},

	msgResource: {
		1: {"attributes", attributes, msgKeyValue}, 2: {"dropped_attributes_count", plain, 0}, 3: {"entity_refs", messages, msgEntityRef},
	},
	msgEntityRef: {1: {"schema_url", text, 0}, 2: {"type", text, 0}, 3: {"id_keys", texts, 0}, 4: {"description_keys", texts, 0}},
	msgScope: {
		1: {"name", text, 0}, 2: {"version", text, 0},
		3: {"attributes", attributes, msgKeyValue}, 4: {"dropped_attributes_count", plain, 0},
	},
	msgKeyValue: {1: {"key", text, 0}, 2: {"value", message, msgAnyValue}, 3: {"key_strindex", index, stringTable}},
	msgAnyValue: {
		1: {"string_value", text, 0}, 2: {"bool_value", plain, 0}, 3: {"int_value", plain, 0}, 4: {"double_value", plain, 0},
		5: {"array_value", message, msgArrayValue}, 6: {"kvlist_value", message, msgKeyValueList}, 7: {"bytes_value", plain, 0},
		8: {"string_value_strindex", index, stringTable},
	},
	msgArrayValue:   {1: {"values", messages, msgAnyValue}},
	msgKeyValueList: {1: {"values", attributes, msgKeyValue}},

	msgResourceSpans: {1: {"resource", message, msgResource}, 2: {"scope_spans", messages, msgScopeSpans}, 3: {"schema_url", text, 0}},
	msgScopeSpans:    {1: {"scope", message, msgScope}, 2: {"spans", messages, msgSpan}, 3: {"schema_url", text, 0}},
	msgSpan: {
		1: {"trace_id", plain, 0}, 2: {"span_id", plain, 0}, 3: {"trace_state", text, 0}, 4: {"parent_span_id", plain, 0},
		5: {"name", text, 0}, 6: {"kind", plain, 0}, 7: {"start_time_unix_nano", plain, 0}, 8: {"end_time_unix_nano", plain, 0},
		9: {"attributes", attributes, msgKeyValue}, 10: {"dropped_attributes_count", plain, 0},
		11: {"events", messages, msgEvent}, 12: {"dropped_events_count", plain, 0},
		13: {"links", messages, msgSpanLink}, 14: {"dropped_links_count", plain, 0},
		15: {"status", message, msgStatus}, 16: {"flags", plain, 0},
	},
	msgEvent: {
		1: {"time_unix_nano", plain, 0}, 2: {"name", text, 0},
		3: {"attributes", attributes, msgKeyValue}, 4: {"dropped_attributes_count", plain, 0},
	},
	msgSpanLink: {
		1: {"trace_id", plain, 0}, 2: {"span_id", plain, 0}, 3: {"trace_state", text, 0},
		4: {"attributes", attributes, msgKeyValue}, 5: {"dropped_attributes_count", plain, 0}, 6: {"flags", plain, 0},
	},
	msgStatus: {2: {"message", text, 0}, 3: {"code", plain, 0}},

	msgResourceMetrics: {1: {"resource", message, msgResource}, 2: {"scope_metrics", messages, msgScopeMetrics}, 3: {"schema_url", text, 0}},
	msgScopeMetrics:    {1: {"scope", message, msgScope}, 2: {"metrics", messages, msgMetric}, 3: {"schema_url", text, 0}},
	msgMetric: {
		1: {"name", text, 0}, 2: {"description", text, 0}, 3: {"unit", text, 0},
		5: {"gauge", message, msgGauge}, 7: {"sum", message, msgSum}, 9: {"histogram", message, msgHistogram},
		10: {"exponential_histogram", message, msgExponentialHistogram}, 11: {"summary", message, msgSummary},
		12: {"metadata", attributes, msgKeyValue},
	},
	msgGauge:     {1: {"data_points", messages, msgNumberPoint}},
	msgSum:       {1: {"data_points", messages, msgNumberPoint}, 2: {"aggregation_temporality", plain, 0}, 3: {"is_monotonic", plain, 0}},
	msgHistogram: {1: {"data_points", messages, msgHistogramPoint}, 2: {"aggregation_temporality", plain, 0}},
	msgExponentialHistogram: {
		1: {"data_points", messages, msgExponentialPoint}, 2: {"aggregation_temporality", plain, 0},
	},
	msgSummary: {1: {"data_points", messages, msgSummaryPoint}},
	msgNumberPoint: {
		2: {"start_time_unix_nano", plain, 0}, 3: {"time_unix_nano", plain, 0}, 4: {"as_double", plain, 0},
		5: {"exemplars", messages, msgExemplar}, 6: {"as_int", plain, 0}, 7: {"attributes", attributes, msgKeyValue}, 8: {"flags", plain, 0},
	},
	msgHistogramPoint: {
		2: {"start_time_unix_nano", plain, 0}, 3: {"time_unix_nano", plain, 0}, 4: {"count", plain, 0}, 5: {"sum", plain, 0},
		6: {"bucket_counts", fixed64s, 0}, 7: {"explicit_bounds", fixed64s, 0}, 8: {"exemplars", messages, msgExemplar},
		9: {"attributes", attributes, msgKeyValue}, 10: {"flags", plain, 0}, 11: {"min", plain, 0}, 12: {"max", plain, 0},
	},
	msgExponentialPoint: {
		1: {"attributes", attributes, msgKeyValue}, 2: {"start_time_unix_nano", plain, 0}, 3: {"time_unix_nano", plain, 0},
		4: {"count", plain, 0}, 5: {"sum", plain, 0}, 6: {"scale", plain, 0}, 7: {"zero_count", plain, 0},
		8: {"positive", message, msgBuckets}, 9: {"negative", message, msgBuckets}, 10: {"flags", plain, 0},
		11: {"exemplars", messages, msgExemplar}, 12: {"min", plain, 0}, 13: {"max", plain, 0}, 14: {"zero_threshold", plain, 0},
	},
	msgSummaryPoint: {
		2: {"start_time_unix_nano", plain, 0}, 3: {"time_unix_nano", plain, 0}, 4: {"count", plain, 0}, 5: {"sum", plain, 0},
		6: {"quantile_values", messages, msgQuantile}, 7: {"attributes", attributes, msgKeyValue}, 8: {"flags", plain, 0},
	},
	msgBuckets:  {1: {"offset", plain, 0}, 2: {"bucket_counts", varints, 0}},
	msgQuantile: {1: {"quantile", plain, 0}, 2: {"value", plain, 0}},
	msgExemplar: {
		2: {"time_unix_nano", plain, 0}, 3: {"as_double", plain, 0}, 4: {"span_id", plain, 0}, 5: {"trace_id", plain, 0},
		6: {"as_int", plain, 0}, 7: {"filtered_attributes", attributes, msgKeyValue},
	},

	msgResourceProfiles: {1: {"resource", message, msgResource}, 2: {"scope_profiles", messages, msgScopeProfiles}, 3: {"schema_url", text, 0}},
	msgScopeProfiles:    {1: {"scope", message, msgScope}, 2: {"profiles", messages, msgProfile}, 3: {"schema_url", text, 0}},
	msgProfile: {
		1: {"sample_type", message, msgValueType}, 2: {"samples", messages, msgSample}, 3: {"time_unix_nano", plain, 0},
		4: {"duration_nano", plain, 0}, 5: {"period_type", message, msgValueType}, 6: {"period", plain, 0}, 7: {"profile_id", plain, 0},
		8: {"dropped_attributes_count", plain, 0}, 9: {"original_payload_format", text, 0}, 10: {"original_payload", plain, 0},
		11: {"attribute_indices", indices, attributeTable},
	},
	msgValueType: {1: {"type_strindex", index, stringTable}, 2: {"unit_strindex", index, stringTable}},
	msgSample: {
		1: {"stack_index", index, stacks}, 2: {"attribute_indices", indices, attributeTable}, 3: {"link_index", index, links},
		4: {"values", varints, 0}, 5: {"timestamps_unix_nano", fixed64s, 0},
	},
	msgDictionary: {
		mappings: {"mapping_table", messages, msgMapping}, locations: {"location_table", messages, msgLocation},
		functions: {"function_table", messages, msgFunction}, links: {"link_table", messages, msgLink},
		stringTable: {"string_table", texts, 0}, attributeTable: {"attribute_table", messages, msgKeyValueAndUnit},
		stacks: {"stack_table", messages, msgStack},
	},
	msgMapping: {
		1: {"memory_start", plain, 0}, 2: {"memory_limit", plain, 0}, 3: {"file_offset", plain, 0},
		4: {"filename_strindex", index, stringTable}, 5: {"attribute_indices", indices, attributeTable},
	},
	msgLocation: {
		1: {"mapping_index", index, mappings}, 2: {"address", plain, 0}, 3: {"lines", messages, msgLine},
		4: {"attribute_indices", indices, attributeTable},
	},
	msgLine: {1: {"function_index", index, functions}, 2: {"line", plain, 0}, 3: {"column", plain, 0}},
	msgFunction: {
		1: {"name_strindex", index, stringTable}, 2: {"system_name_strindex", index, stringTable},
		3: {"filename_strindex", index, stringTable}, 4: {"start_line", plain, 0},
	},
	msgLink: {1: {"trace_id", plain, 0}, 2: {"span_id", plain, 0}},
	msgKeyValueAndUnit: {
		1: {"key_strindex", index, stringTable}, 2: {"value", message, msgAnyValue}, 3: {"unit_strindex", index, stringTable},
	},
	msgStack: {1: {"location_indices", indices, locations}},
}

// describe is what the schema says of a field; the kind is unknown if it says nothing, or if the field has
// another wire type than it may have.
func describe(m messageID, t tag) entry {
	entries := schema[m]
	if t.number() >= len(entries) {
		return entry{}
	}
	e := entries[t.number()]
	wire := t.wire()
	fits := true
	switch e.kind {
	case text, texts, message, messages, attributes:
		fits = wire == wireBytes
	case index:
		fits = wire == wireVarint
	case varints, indices:
		fits = wire == wireVarint || wire == wireBytes
	case fixed64s:
		fits = wire == wireFixed64 || wire == wireBytes
	}
	if !fits {
		return entry{}
	}
	return e
}
