package process

import (
	"slices"

	"correlator/internal/attach/processcontext"
	"correlator/internal/host/terminal"
	"correlator/profile"
)

// ThreadSchema is how a process says that its threads publish what they work on: the value of
// threadlocal.schema_version in its process context, as a word of a fixed list.
type ThreadSchema uint8

const (
	SchemaNone     ThreadSchema = iota // it says nothing
	SchemaTLSDesc                      // otel_thread_ctx_v1, as OTEP 4947 was written
	SchemaTLS                          // the same, as it is to be called
	SchemaGoLabels                     // Go's labels of pprof
	SchemaNode                         // a proposal for Node.js
	SchemaOther
	NumThreadSchemas
)

var schemaNames = [NumThreadSchemas]string{
	SchemaNone:     "none",
	SchemaTLSDesc:  processcontext.SchemaTLSDescDev,
	SchemaTLS:      processcontext.SchemaTLS,
	SchemaGoLabels: "go_pprof_labels_v1",
	SchemaNode:     "nodejs_v1_dev",
	SchemaOther:    "other",
}

// String returns the schema's label in logs and metrics.
func (s ThreadSchema) String() string { return schemaNames[s] }

// schemaOf returns the schema of a text.
func schemaOf(text string) ThreadSchema {
	if text == "" {
		return SchemaNone
	}
	for s := SchemaTLSDesc; s < SchemaOther; s++ {
		if text == schemaNames[s] {
			return s
		}
	}
	return SchemaOther
}

// UnreadSchema returns the schema by which threads of the process publish what they work on, if it is one
// that is not read and they publish it in no other way.
func (v *View) UnreadSchema() string {
	if v.OTel == nil || v.OTel.TLS != "" || slices.Contains(v.Contexts, profile.ElasticContext.String()) ||
		slices.Contains(v.Contexts, GoLabels) {
		return ""
	}
	return v.OTel.Schema
}

// unreadText says what it means that a schema is not read.
func unreadText(schema string) string {
	const columns = 64 // all known ones have fewer
	schema = terminal.Cut(terminal.Escape(schema), columns)
	return "contexts of threads are not read: their schema is " + schema + " (docs/contexts.md)"
}

// ThreadSchema returns the schema of the process context, which there must be.
func (t *Target) ThreadSchema() ThreadSchema { return schemaOf(t.otel.context.Schema) }
