// Package share divides what there is a limited amount of among keys that must not starve each
// other: users, containers, peers.
//
//   - [Budget] says how much each key may hold at a time: memory, places in a queue, descriptors.
//   - [Turns] is a queue from which keys are served in turn.
//   - [Rates] says how often each key may do something.
//   - [Backoff] says how soon something is tried again.
package share
