// Package symbols names code addresses: by the symbol tables of ELF files and of the debug files
// that belong to them, by the perf maps that just-in-time compilers write, and by the kernel's
// kallsyms.
//
//	Query      addresses that want names, and the names found
//	ELF        .symtab and .dynsym of one file
//	ReadPerfMap, ReadKallsyms
//	OpenPerfMap, OpenDebugFile   below a process's root
//
// A table is never kept: it is read once, past the addresses of a query, and only the names of
// these remain, one text for all addresses in one symbol. So naming takes memory in proportion to
// the symbols that were asked for, and none in proportion to the table (libjvm.so has 100,000
// symbols). What files say can make each address a symbol with the longest name: a Room bounds
// that.
//
// Names are as they stand in the table, mangled ones too: who shows them (pprof does) demangles
// them. They hold any bytes but zero, and at most maxNameBytes of them. Symbol versions are left
// out.
//
// Files come from processes that nobody trusts. Every claim of a file is checked before it is used,
// and everything that is read is bounded. What cannot be bounded is how long a file system of the
// process's own makes a read wait: FileSystems tells those apart, without asking them.
package symbols
