// Package symbols finds the names of code addresses: in the symbol tables of ELF files and of their
// debug files, in the perf maps that just-in-time compilers write, and in the kernel's kallsyms.
//
//	Query      addresses, and the names found for them: ReadTable, ReadPerfMap, ReadKallsyms
//
//	Demangler  what names are in C++ and Rust
//	Opener     opens perf maps and debug files below a process's root
//
// A table is not kept: it is read once for the addresses of a query, and only their names are
// stored, one string for all addresses in one symbol. So memory is in proportion to the symbols
// that are requested, and not to the table (libjvm.so has 100,000 symbols). A hostile file can give
// each address a symbol of its own with the longest name: a Budget bounds that.
//
// Names are as in the table; a Demangler is for showing them. They have any bytes but zero, and at most
// maxNameBytes of them. Symbol versions are removed.
//
// Files come from untrusted processes. Every value of a file is checked before it is used, and
// everything that is read is bounded. What cannot be bounded is how long a file system that a
// process serves makes a read wait: FileSystems detects those, without accessing them.
package symbols
