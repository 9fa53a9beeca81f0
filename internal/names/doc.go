// Package names is the room of names: from an address in a process, or in the kernel, to a function, a
// file and a line.
//
//	symbols     formats: ELF symbol tables, debug files, perf maps, kallsyms, demangling
//	symbolizer  the worker that opens a process's files with that process's rights and reads them
//	naming      what is asked for when, what is kept, and which samples wait for it
//
// What names are worth nothing of: a file at the right path whose content is another (the build id
// decides), a perf map of another process, an answer that came too late. They are unknown then, never
// guessed. Names of interpreted code and of compiled Java code come with the stack (package unwind).
package names
