// Package explain is `explain` as a command: it asks a running agent for what it keeps of transactions, and
// shows where their CPU time went.
//
//	keep.Answer ─▶ record.Recording ─▶ report: pprof, folded, html
//	          └───▶ Tree, and rows by thread and span ─▶ table, json
package explain
