// Package live publishes on a DOTS bus what an agent knows of its host, while somebody wants to know:
// the types of types/live.dots, as objects that change once a second.
//
//	samples ─▶ Tracker ─┐
//	                    ├─▶ Publisher ─▶ bus: an embedded broker, or a client of one that runs
//	agent's status ─────┘        ▲
//	                             └── which groups have members
package live
