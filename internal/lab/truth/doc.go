// Truth compares what the agent shows of programs with what they do, and prints a table for each: the share of CPU
// time in each function, itself and with what it calls, beside the truth.
//
//	go run ./internal/lab/truth [-run EXPRESSION] [-d DURATION] [-jdks DIRECTORIES]
//
// A program of known truth (a subject) publishes OpenTelemetry's process context, so that it takes part, prints
// "ready", works in functions whose CPU time it measures with its thread's clock, until SIGTERM, and then prints JSON:
//
//	inclusive   by function, the share of the CPU time in it and in what it calls
//	self        likewise, in it alone, of functions of which that is known
//	above       by function, those of which one is among its callers in every stack
//	below       by function, an expression that all functions of a language runtime match that it calls
//	file        the program's file: only functions in it, and native ones in self, are compared
//	callers     by function, those that call it directly, "" for nothing; then these are all functions of the program
//	work        the function that calls those in inclusive
//	clock       the function by which it measures
//	thread      the id of its thread, if others are not to be compared
//
// Every stack has to have one of the functions in inclusive. One that has not, in which none of those that have to be
// above a function is above it, or in which one is called by another that does not call it, is wrong, unless it is
// marked as cut. Stacks that say that they do not know which inlined code runs are counted, and may have any function
// that is known to be called by one of theirs.
//
// Runtimes of several versions are those in PATH: node18 or node, python3.9 or python3, and so on. What is not there is
// said to be not run.
//
// Subjects of other runtimes are added in subjects.
package main
