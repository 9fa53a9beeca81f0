// Package keep keeps what was sampled in transactions for some minutes, and answers where the CPU time of
// one of them went.
//
//	samples ─▶ Store.Add ─▶ entries of a time slice: transaction, span, thread, stack, count
//	              │ a stack whose frames lack names
//	              └─▶ naming.Namer ─▶ Store.Named ─▶ names, every half second
//
// A Store is divided among the owners of processes, users and containers: when there is no room, the
// oldest slice of the owner that has most is forgotten. So no owner can drive out another one that has
// less. Slow transactions (Rule) are kept for longer, in a part of the memory that is divided likewise.
//
// Add is in the path of all samples of the host. So a query holds the store's lock only to copy a bounded
// number of transactions or samples, again and again, and computes without it; what it answers with is
// bounded, and there is one query at a time.
//
//	Store.Answer: finder ─▶ the most important transactions of an id ─▶ collector ─▶ Answer
package keep
