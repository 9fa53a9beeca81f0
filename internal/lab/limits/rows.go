package limits

import "strings"

const (
	tooMany      = "`correlator_mappings_total{result=\"too_many\"}`; frames there are addresses"
	libraryLimit = "`correlator_process_errors_total{reason=\"library_limit\"}`; state `error` in `scan` and `status`"
	unreadable   = "`correlator_otlp_symbolizer_failures_total{reason=\"unreadable\"}`"
	noMemory     = "\"its names take too much memory\" in `record`"
	skippedFile  = "`correlator_unwinding_files_skipped_total`"
	uncorrected  = "`correlator_unwinding_files_uncorrected_total`"
	tableErrors  = "`correlator_unwinding_table_errors_total`"
	overQuota    = "`correlator_unwinding_synchronizations_total{result=\"over_quota\"}`"
	notReady     = "`correlator_unwinding_synchronizations_total{result=\"not_ready\"}`; the reason in `status` and " +
		"`scan`"
	unnamed  = "`correlator_unwinding_frames_lacking_total{lacking=\"name\"}`"
	stackCut = "`correlator_unwinding_stacks_cut_total`; the stack ends in \"[stack truncated]\""
	noLine   = "`correlator_unwinding_frames_lacking_total{lacking=\"line\"}`"
	notKnown = "`correlator_unwinding_inlined_unknown_total{reason=\"too_large\"}`"
	missed   = "`correlator_jvm_looks_missed_total`"
	marked   = "the name ends in \"…\""
)

// rows are the limits on what is read of a process, by the name of the constant.
var rows = map[string]row{
	"procscan.maxArgumentBytes": {"arguments of a JVM, for an agent's options",
		"\"unknown\" instead of `option_not_set`: what is not set is not known", "TestCommandLineAndOpenFiles"},
	"procscan.maxOpenFiles": {"open files of a JVM, for an agent's jar",
		missed, "TestCommandLineAndOpenFiles"},
	"procscan.maxOptionFile": {"a file of a JVM's options",
		"\"unknown\" instead of `option_not_set`", "TestCommandLineAndOpenFiles"},
	"procscan/javaagent.maxOptionFiles": {"files of a JVM's options",
		"\"unknown\" instead of `option_not_set`", "TestOptionFiles"},
	"procscan.maxEnvironBytes": {"the environment; the kernel gives a program at most 6 MiB",
		"\"is ignored: it has more than 40 KiB\" of a variable that is not found",
		"TestParseEnviron, TestIgnoredEnvironment"},
	"procscan.maxVariableBytes": {"a variable of the environment",
		"\"is ignored: it has more than 40 KiB\" in `scan`, `status`, `inspect`",
		"TestParseEnviron, TestIgnoredEnvironment"},
	"procscan.maxLibraries": {"mappings of the agent's library",
		"`correlator_processes_truncated_total`", "TestTruncated"},
	"procscan.maxContexts": {"mappings of a process context",
		"`correlator_processes_truncated_total`", "TestContexts"},
	"procscan.maxExecutable": {"executable mappings", tooMany + "; " + skippedFile,
		"TestTooManyMappings, TestManyMappings"},
	"procscan.maxMade": {"those of memory and deleted files", tooMany + "; " + skippedFile,
		"TestLibraryBehindTooMuchCode"},
	"procscan.maxPathBytes": {"paths of mappings together", tooMany, "TestCollectLimits, TestManyMappings"},
	"procscan.maxQueries": {"queries for mappings, of a process that maps meanwhile", tooMany,
		"TestSourcesAgreeOnMany"},
	"procscan.maxCgroupBytes": {"`/proc/PID/cgroup`",
		"`correlator_process_errors_total{reason=\"other\"}`; state `error`", "TestParseCgroupErrors"},
	"procscan.maxGroups": {"groups of a process; the kernel allows as many",
		"`correlator_process_errors_total{reason=\"other\"}`", "TestParseCredentialsErrors"},
	"procscan.maxStuck": {"threads of ours that locked memory maps hold",
		"`correlator_sweeps_failed_total`", "TestWatchdogBound"},
	"procscan.maxStuckOfUser": {"the same, of a user", "`correlator_sweeps_failed_total`", "TestWatchdogBoundOfUser"},
	"memread.maxStringBytes": {"a text of Elastic's process storage",
		"`correlator_process_errors_total{reason=\"storage_too_long\"}`; state `error`", "TestHostileLengths"},

	"elfsym.maxRelocations":    {"relocations of a library", libraryLimit, "TestEnormousThreadContexts"},
	"elfsym.maxProgramHeaders": {"program headers", libraryLimit, "TestHostileThreadContexts"},
	"elfsym.maxSegments":       {"loaded segments", libraryLimit, "TestHeaders"},
	"elfsym.maxStaticSymbols": {"symbols of a static program, for its variable",
		libraryLimit, "TestHostileThreadContexts"},
	"elfsym.maxStaticNames": {"thread-local pointers of a static program",
		libraryLimit, "TestManyThreadLocalPointers"},
	"elfsym.maxDynamicEntries": {"entries of PT_DYNAMIC", libraryLimit, "TestHostileLibraries"},
	"elfsym.maxPageReads":      {"pages read of a library", libraryLimit, "TestEnormousFilesAreReadInPart"},
	"elfsym.maxChain":          {"symbols in a bucket of a hash table", libraryLimit, "TestHostileLibraries"},
	"elfsym.maxTLSBlock": {"thread-local memory of a module",
		"`correlator_process_errors_total{reason=\"library_malformed\"}`; state `error`", "TestHostileThreadContexts"},
	"elfsym.maxFunctionNames": {"names of a Go program's functions",
		"`correlator_processes_not_sampled{reason=\"other\"}`, with the reason in `status`", "TestGoFunctionNames"},
	"elfsym.maxSections":      {"section headers", unreadable, "TestManySections"},
	"elfsym.maxSymbols":       {"symbols of a table", unreadable, "TestHostileSymbolTables, TestGoFunctionsHostile"},
	"elfsym.maxDWARFBytes":    {"DWARF of a file without symbols", unreadable, "TestDWARFWork"},
	"elfsym.maxDWARFSteps":    {"its entries, attributes and abbreviations", unreadable, "TestDWARFWork"},
	"elfsym.maxDWARFUnits":    {"its units", unreadable, "TestHostileDWARF"},
	"elfsym.maxAbbreviations": {"abbreviations of a unit", unreadable, "TestHostileDWARF"},
	"elfsym.maxInflated":      {"compressed DWARF, unpacked", unreadable, "TestHostileDWARF"},
	"elfsym.maxOrigins": {"entries of DWARF that refer to each other",
		"`correlator_otlp_profile_samples_unnamed_total`", "TestDWARFNames"},
	"tlsdesc.maxModule": {"the number of a module",
		"`correlator_process_errors_total{reason=\"tls_unsupported\"}`", "TestResolveRefuses"},
	"tlsdesc.maxOffset": {"an offset in thread-local memory",
		"`correlator_process_errors_total{reason=\"tls_unsupported\"}`", "TestResolveOffsetAbsurd"},

	"profile.maxRegions":      {"mappings of which files are known", tooMany, "TestManyMappings"},
	"profile.maxOpens":        {"files opened for them at once", tooMany, "TestManyFiles"},
	"profile.maxFunctionText": {"the name of a function, and of its source", marked, "TestNewFunction"},
	"profile.maxAttributeBytes": {"a key and a value of an attribute; a record has fewer",
		"`correlator_sample_attributes_cut_total`", "TestLongAttributes"},
	"bpf.maxOwnerLayouts": {"places of labels of a user, that no other has",
		"`correlator_labels_unread_total`", "TestGoLayoutsFull"},
	"bpf.maxThreads": {"threads of a process",
		"`correlator_process_errors_total{reason=\"too_many_threads\"}`; state `error`",
		"TestProcessWithTooManyThreads"},
	"bpf.MaxFrames": {"frames by frame pointers", "`correlator_samples_cut_total`", "TestUnknownCaller"},

	"internal/attach/process.maxRecordAttributes": {"attributes of a thread's record",
		"`correlator_sample_attributes_cut_total`", "TestLongRecord, TestRecords"},
	"internal/attach/process.maxSilentLooks": {"JVMs examined for an agent", missed, "TestSilentSearchOfManyUsers"},
	"internal/attach/process.maxSilent": {"JVMs with a silent agent that are shown",
		missed, "TestSilentSearchOfManyUsers"},
	"internal/attach/process.maxWork": {"threads looked at for what they work on now",
		"`correlator_live_threads_untracked_total`", "TestReadWorkOfManyThreads"},
	"internal/attach/processcontext.maxAttributes": {"attributes of a process context, or of the environment",
		"`correlator_process_errors_total{reason=\"context_malformed\"}`, \"is ignored: \"",
		"TestDecode, TestIgnoredEnvironment"},
	"internal/attach/processcontext.maxKeys": {"keys that records can refer to: their numbers have a byte",
		"`correlator_sample_attributes_unknown_key_total`", "TestDecode"},
	"internal/attach/processcontext.maxPayloadBytes": {"a process context",
		"`correlator_process_errors_total{reason=\"context_malformed\"}`; state `error`", "TestRead"},

	"internal/names/symbols.maxPerfMapBytes": {"the end of a perf map",
		"`correlator_otlp_symbolizer_failures_total{reason=\"perf_map\"}`; \"that are read of its end\"",
		"TestReadPerfMapEnd"},
	"internal/names/symbols.maxMatches": {"overlapping symbols or entries of a perf map",
		unreadable, "TestReadPerfMapIsBounded"},
	"internal/names/symbols.maxNameBytes": {"a symbol's name, cut further by `maxFunctionText`",
		marked, "TestReadPerfMap, TestNewFunction"},
	"internal/names/symbols.maxLineBytes": {"a line of a perf map", marked, "TestReadPerfMap, TestNewFunction"},
	"internal/names/symbols.maxMangledBytes": {"a mangled name that is demangled",
		"the name begins with \"_\", as in the file", "TestDemangle"},
	"internal/names/symbols.maxDemangledBytes": {"a demangled name", marked, "TestDemangle"},
	"internal/names/symbols.maxDemangling": {"time for demangling in a request",
		"the name begins with \"_\", as in the file", "TestDemangler"},
	"internal/names/symbols.maxDebugData": {"`.gnu_debugdata`, unpacked", unreadable, "TestDecompress"},
	"internal/names/symbols.maxLinkedBytes": {"a debug file of `.gnu_debuglink`",
		"\"debug file has another checksum, or is too large\"", "TestCheckLinkedSize"},
	"internal/names/symbols.maxMountBytes": {"the list of mounts of a process",
		"`correlator_otlp_symbolizer_failures_total{reason=\"file_system\"}`", "TestFileSystems"},
	"internal/names/symbolizer.maxOpens":   {"files opened of a process", unreadable, "TestBudgetOfAnother"},
	"internal/names/symbolizer.maxSources": {"files of a request of `record`", unreadable, "TestBudgetOfAnother"},
	"internal/names/symbolizer.maxDWARF":   {"files of which DWARF is read at a time", unreadable, "TestDWARF"},
	"internal/names/symbolizer.maxProcessBytes": {"names of a process in `record`", noMemory,
		"TestEndlessAnswers, TestBudgetOfAnother"},
	"internal/names/symbolizer.maxUserBytes":  {"names of a user in `record`", noMemory, "TestBudgetOfAnother"},
	"internal/names/symbolizer.maxNamesBytes": {"names of all in `record`", noMemory, "TestEndlessAnswers"},
	"internal/names/symbolizer.maxCodeRanges": {"ranges of memory without a file: as many as mappings are read",
		tooMany, "TestJoined"},
	"internal/names/naming.maxBytes": {"names kept",
		"`correlator_otlp_symbolizer_evicted_total`", "TestLeastRecentlyUsedAreForgotten"},
	"internal/names/naming.maxWanted": {"names wanted of a process at once",
		"`correlator_otlp_profile_samples_unnamed_total`", "TestWanted"},

	"internal/stacks/unwind.maxRequestBytes": {"bytes read for a request", skippedFile, "TestBudget"},
	"internal/stacks/unwind.maxRequestReads": {"reads for a request", skippedFile, "TestBudget"},
	"internal/stacks/unwind.maxMemoryBytes":  {"bytes read of memory for a synchronization", notReady, "TestBudget"},
	"internal/stacks/unwind.maxHeapBytes":    {"memory that a request may add", skippedFile, "TestBudget"},
	"internal/stacks/unwind.maxRequestTime":  {"CPU time of a request", skippedFile, "TestBudget"},
	"internal/stacks/unwind.maxDynamicBytes": {"entries of PT_DYNAMIC", notReady, "TestELFSizes"},
	"internal/stacks/unwind.maxZeroBytes":    {"zero bytes behind segments", notReady, "TestELFSizes"},
	"internal/stacks/unwind.maxPages":        {"pages of memory of a synchronization", notReady, "TestBudget"},
	"internal/stacks/unwind.maxFileBytes": {"a mapped file",
		skippedFile + "; \"file is too large\"", "TestFileSize"},
	"internal/stacks/unwind.maxVDSOBytes": {"the vDSO", skippedFile, "TestForeignVDSO"},
	"internal/stacks/unwind.maxHeaders": {"headers of segments, and of sections",
		skippedFile + "; \"an ELF file has more headers than programs have\"", "TestELFBounds"},
	"internal/stacks/unwind.maxNamesBytes": {"names of a file's symbols: others are not found",
		notReady, "TestELFSizes"},
	"internal/stacks/unwind.maxMemoryFiles": {"memfds looked into",
		skippedFile + "; \"the process has mapped more than %d memfds\"", "TestManyMemoryFiles"},
	"internal/stacks/unwind.maxRanges": {"ranges of mappings",
		tableErrors + "; \"a process has more than %d ranges of mappings\"", "TestLimitsOfOne"},
	"internal/stacks/unwind.maxPagesOfFile": {"64 KiB of code of a file, its number",
		tableErrors + "; \"a file has code in more than %d pages of 64 KiB\"", "TestLimitsOfOne"},
	"internal/stacks/unwind.maxUnwindInfos": {"ways to unwind a frame of a file",
		tableErrors + "; \"files of a process have more than %d ways to unwind a frame\"", "TestLimitsOfOne"},
	"internal/stacks/unwind.maxFiles":       {"files of all processes", overQuota, "TestQuotas"},
	"internal/stacks/unwind.maxTableBytes":  {"tables of files", overQuota, "TestQuotas"},
	"internal/stacks/unwind.maxJVMs":        {"JVMs", overQuota, "TestQuotaOfJVMs"},
	"internal/stacks/unwind.maxGoPrograms":  {"Go programs", overQuota, "TestQuotas"},
	"internal/stacks/unwind.maxRuntimes":    {"processes with a runtime of one kind", overQuota, "TestLimitsOfOne"},
	"internal/stacks/unwind.maxWords":       {"words of a stack", stackCut, "TestFramesRequest"},
	"internal/stacks/unwind.maxFrames":      {"frames of a stack", stackCut, "TestFramesAnswer"},
	"internal/stacks/unwind.maxStacksBytes": {"frames of a stack, their bytes", stackCut, "TestFramesAnswer"},
	"internal/stacks/unwind.maxNameBytes":   {"the name of a runtime's function", marked, "FuzzNormalizeName"},
	"internal/stacks/unwind.maxThreadKeys": {"the number of CPython's thread-local variable",
		notReady, "TestCorrectPython"},
	"internal/stacks/unwind.maxVMEntries": {"entries of a JVM's tables",
		notReady + "; \"the JVM describes itself by numbers that none has\"", "TestVMTableLimit"},
	"internal/stacks/unwind.maxVMEntryBytes": {"one of these",
		"\"the JVM describes itself by numbers that none has\"", "TestJVMTables"},
	"internal/stacks/unwind.maxVMTypeBytes": {"a type in them",
		"\"the JVM describes itself by numbers that none has\"", "TestJVMTables"},
	"internal/stacks/unwind.maxVMPlace": {"a place in them",
		"\"the JVM describes itself by numbers that none has\"", "TestJVMTables"},
	"internal/stacks/unwind.maxFieldOffset": {"an offset in a type of a JVM",
		"\"the JVM's debug information has an unknown layout\"", "TestJVMLayout"},
	"internal/stacks/unwind.maxDebugBytes": {"what describes a compiled method", unnamed, "TestJVMMethodLimits"},
	"internal/stacks/unwind.maxEntries": {"places in compiled methods, of a request",
		unnamed, "TestKeptMethods"},
	"internal/stacks/unwind.maxByteCodes":    {"byte code of a request", notKnown, "TestKeptMethods"},
	"internal/stacks/unwind.maxCodeHeaps":    {"heaps of a JVM's code", notKnown, "TestBlobNameLimits"},
	"internal/stacks/unwind.maxSegmentSteps": {"steps back to the start of a method", notKnown, "TestBlobNameLimits"},
	"internal/stacks/unwind.maxMethodBytes": {"code of a compiled method that is followed",
		notKnown, "TestJVMMethodLimits"},
	"internal/stacks/unwind.maxInstructions": {"instructions of it", notKnown, "TestJVMMethodLimits"},
	"internal/stacks/unwind.maxWork":         {"instructions of a request", notKnown, "TestKeptMethods"},
	"internal/stacks/unwind.maxWalked":       {"nodes walked of it", notKnown, "TestWalkedLimit"},
	"internal/stacks/unwind.maxPlaces":       {"places that a leaf can be at", notKnown, "TestLeaf"},
	"internal/stacks/unwind.maxLoops": {"loops of it",
		"`correlator_unwinding_inlined_unknown_total{reason=\"loop\"}`", "TestManyLoops"},
	"internal/stacks/unwind.maxInlined": {"methods inlined in each other",
		"`correlator_unwinding_inlined_unknown_total`", "TestManyInlined"},
	"internal/stacks/unwind.maxV8AllLines": {"lines of scripts, of a request", noLine, "TestV8ReadsABoundedPart"},
	"internal/stacks/unwind.maxV8Lines":    {"lines of a script", noLine, "TestV8Limits"},
	"internal/stacks/unwind.maxV8Characters": {"characters of scripts, of a request",
		noLine, "TestV8ReadsABoundedPart"},
	"internal/stacks/unwind.maxV8SourceBytes": {"a script", noLine, "TestV8ReadsABoundedPart"},
	"internal/stacks/unwind.maxV8CodeBytes":   {"the code of a function", noLine, "TestV8Limits"},
	"internal/stacks/unwind.maxV8TableBytes":  {"a table of a function", noLine, "TestV8Limits"},
	"internal/stacks/unwind.maxV8Depth": {"parts of a text within each other",
		unnamed, "TestV8Limits"},
	"internal/stacks/unwind.maxV8Functions": {"types of functions", unnamed, "TestV8SymbolLimits"},
	"internal/stacks/unwind.maxV8Reads":     {"reads of a request", unnamed, "TestV8Limits"},
	"internal/stacks/unwind.maxV8TextBytes": {"a name in V8 before 12.4", unnamed, "TestV8Text"},
	"internal/stacks/unwind.maxV8Kinds":     {"types of objects there, for a word", unnamed, "TestV8Text"},
	"internal/stacks/unwind.maxV8Symbols": {"symbols in which the last type of functions is searched",
		notReady, "TestV8SymbolLimits"},
	"internal/stacks/unwind.maxOpcodes":     {"opcodes of V8", notReady, "TestV8SymbolLimits"},
	"internal/stacks/unwind.maxOpcodeBytes": {"an instruction of V8's byte code", noLine, "TestV8SymbolLimits"},
	"internal/stacks/unwind.maxPHPText":     {"a name of PHP", unnamed, "TestPHPFrames"},

	"internal/stacks/unwind/deltas.MaxTrampolineBytes": {"trampolines of CPython side by side",
		stackCut, "TestManyTrampolines"},
	"internal/stacks/unwind/deltas.maxSpan": {"pages between a file's first and last code",
		uncorrected, "TestCheck"},
	"internal/stacks/unwind/deltas.maxTableBytes": {"the table of Go's functions",
		uncorrected, "TestUncorrected"},
	"internal/stacks/unwind/deltas.maxGoBytes":       {"memory for it", uncorrected, "TestTooManySizes"},
	"internal/stacks/unwind/deltas.maxSizes":         {"sizes of frames in it", uncorrected, "TestTooManySizes"},
	"internal/stacks/unwind/deltas.maxFunctionSizes": {"the same, of a function", uncorrected, "TestTooManySizes"},
	"internal/stacks/unwind/deltas.maxFollowedBytes": {"code of musl or of a static program that is followed",
		uncorrected, "TestTooMuchCode"},
	"internal/stacks/unwind/deltas.maxFollowerBytes": {"memory for it", uncorrected, "TestFollowTooMuch"},
	"internal/stacks/unwind/deltas.maxFrameBytes": {"a frame of it",
		"`correlator_samples_cut_total`", "TestFollowTableLimits"},
	"internal/stacks/unwind/deltas.maxTableEntries": {"places of one jump by a table",
		"`correlator_samples_cut_total`", "TestFollowTableLimits"},
	"internal/stacks/unwind/deltas.maxTablesEntries": {"places of all these",
		"`correlator_samples_cut_total`", "TestFollowTableLimits"},
	"internal/stacks/unwind/deltas.maxAssemblySymbols": {"symbols of a JVM's or V8's file",
		uncorrected, "TestHostileAssembly"},
	"internal/stacks/unwind/deltas.maxAssemblyNames": {"bytes of their names", uncorrected, "TestHostileAssembly"},
	"internal/stacks/unwind/deltas.maxAssemblyPlaces": {"places of the names that are searched in it", uncorrected,
		"TestHostileAssembly"},

	"internal/stacks/sampling.maxFrames": {"frames of a stack that is kept",
		"`correlator_samples_cut_total`", "TestJoinWords"},
	"internal/stacks/sampling.MaxPending": {"samples that wait for a probe",
		"`correlator_samples_total{outcome=\"backlog\"}`", "TestInbox"},
	"internal/worker.maxHungOfUser": {"hung workers of a user",
		"`correlator_worker_requests_refused_total`; state `error`", "TestPoolHung"},
	"internal/worker.maxHung": {"hung workers",
		"`correlator_worker_requests_refused_total`", "TestPoolHung"},
	"internal/worker.maxBusyOfUser": {"requests of a user at a time: others wait",
		"`correlator_worker_requests_refused_total`", "TestPoolByUser"},
	"internal/stacks/unwind.maxQuarantinedOfUser": {"programs left out of a user, before all are",
		"`correlator_unwinding_requests_refused_total{reason=\"quarantined\"}`", "TestQuarantine"},
	"internal/stacks/unwind.maxWaiting": {"requests that wait",
		"`correlator_unwinding_requests_refused_total{reason=\"busy\"}`", "TestQueue"},
	"internal/attach/lifecycle.maxContextLooks": {"processes waiting for a look at their context",
		"`correlator_context_looks_skipped_total`", "TestContextLooksBound"},
	"internal/attach/lifecycle.maxNewcomers": {"processes waiting for their first probe",
		"`correlator_processes_refused_total{reason=\"unprobed\"}`", "TestAdmissionIsBounded"},
	"internal/attach/lifecycle.maxPendingProbes": {"probes that wait",
		"`correlator_processes_refused_total{reason=\"unprobed\"}`", "TestProbeQueue"},
	"internal/attach/mempoll.maxHangs": {"readings of memory that hang",
		"`correlator_lookout_hangs_total`", "TestPollerHangs"},
}

// own are constants with such names that do not limit what is read of a process, each with the reason.
var own = reasons(map[string]string{
	"what the configuration may say, which is refused beyond": `bpf.MaxKeys bpf.MaxLabelKeys
		bpf.MaxLabelKeyBytes bpf.MaxSamplesPerSecond bpf.maxMaxCounts
		internal/attach/process.MaxAttributes internal/stacks/sampling.MaxAttributes`,
	"rooms in the kernel, of all processes; what finds none is counted (docs/metrics.md)": `bpf.maxAttributes
		bpf.maxWalkBytes`,
	"of a format: no more can be there": `bpf.maxKnownKeys bpf.maxOBIContexts elfsym.maxBuildIDBytes
		elfsym.maxGoBuildBytes elfsym.maxGoVersion elfsym.maxDebugLink elfsym.maxNameBytes
		internal/names/symbolizer.maxPathBytes internal/names/symbolizer.maxLivePathBytes procscan.maxNameBytes
		procscan.maxPIDs procscan.maxAuxvBytes procscan.maxStatBytes procscan.maxStatusBytes procscan.maxThreadName
		procscan.maxCPU procscan.maxCPUListBytes internal/stacks/unwind.MaxWord
		internal/stacks/unwind.maxCodeOffset internal/stacks/unwind.maxInstructionBytes
		internal/stacks/unwind.maxNumberBytes internal/stacks/unwind.maxStackBytes internal/stacks/unwind.maxStackOffset
		internal/stacks/unwind.maxV8Type internal/stacks/unwind.maxV8Offset internal/stacks/unwind.maxV8Locals
		internal/stacks/unwind.maxV8Misread internal/stacks/unwind.maxToTrap internal/stacks/unwind.maxInterpreter
		internal/stacks/unwind.maxFunctionTable
		internal/stacks/unwind/deltas.maxEndBytes internal/stacks/unwind/deltas.maxSwitchBytes
		internal/stacks/unwind/deltas.maxAssemblyBytes internal/stacks/unwind/deltas.maxMakeContextBytes`,
	"of the kernel's own, with --kernel-stacks": `internal/names/naming.maxKernelBytes
		internal/names/naming.maxKernelWanted
		internal/names/symbols.maxKernelFunctionBytes profile.maxModulesBytes profile.maxNotesBytes`,
	"reads in vain, after which a file is given up": `internal/stacks/unwind.maxFailedReads`,
	"notes, of which only build ids are read":       `elfsym.maxNotes internal/stacks/unwind.maxNotesBytes`,
	"a part of something: the rest follows": `internal/names/symbolizer.MaxLiveAddrs
		internal/names/symbolizer.MaxLiveFiles internal/names/symbolizer.maxAnswerAddrs
		internal/names/symbolizer.maxAnswerBytes internal/names/symbolizer.maxRequestAddrs
		internal/names/symbolizer.maxRequestFiles internal/stacks/unwind.maxEntriesSent
		internal/stacks/unwind.maxPending
		internal/worker/access.maxFilesBytes internal/worker/access.maxFilesTime internal/worker/access.maxMemoryBytes
		internal/worker/access.maxMemoryRanges internal/worker/access.maxSlots memread.maxElements
		internal/attach/process.maxPolledBytes`,
	"a cache: what is not in it is read again": `internal/stacks/sampling.maxWordBytes
		internal/stacks/unwind.maxCachedFiles internal/stacks/unwind.maxOpens
		internal/worker/access.maxParsed internal/stacks/unwind.maxFlowBytes internal/stacks/unwind.maxKeptBytes
		internal/stacks/unwind.maxNames internal/stacks/unwind.maxSentCode
		internal/stacks/unwind.maxAlone internal/stacks/unwind.maxAttached internal/stacks/unwind.maxReadings
		internal/stacks/unwind.maxV8Scripts
		internal/names/symbolizer.maxServed`,
	"texts of ours": `internal/attach/lifecycle.maxLogError internal/attach/lifecycle.maxLogText
		internal/attach/lifecycle.maxLogUsers internal/attach/lifecycle.maxMessage internal/attach/process.maxListed
		internal/names/symbolizer.maxErrorBytes internal/stacks/unwind.maxFailureBytes
		internal/stacks/unwind.maxLogLines
		internal/stacks/unwind.maxPIDs internal/stacks/unwind.maxProbed internal/stacks/sampling.maxFailures`,
	"our own work, which waits, is tried again or is counted (docs/metrics.md)": `internal/attach/lifecycle.maxDenied
		internal/attach/lifecycle.maxIdleHands internal/attach/lifecycle.maxLeaving internal/attach/lifecycle.maxPosted
		internal/attach/lifecycle.maxProbes internal/attach/lifecycle.maxRefused
		internal/attach/processcontext.maxTries internal/names/naming.maxAsking
		internal/names/naming.maxHeld internal/names/naming.maxHeldOfOwner internal/names/naming.maxSuspects
		internal/names/symbolizer.maxUsers internal/stacks/sampling.maxIdle internal/stacks/sampling.maxPieced
		internal/stacks/sampling.maxPieces internal/stacks/sampling.maxSuspensions
		internal/stacks/unwind.maxQuarantined internal/stacks/unwind.maxTables
		internal/stacks/unwind.maxUnreaped internal/stacks/unwind.maxWorkerBytes internal/worker.MaxDescriptors
		internal/worker.MaxMessageBytes internal/worker.maxBusy internal/worker.maxIdle internal/worker.maxPatience
		internal/worker.maxServed procscan.maxInterruptions procscan.maxPatience`,
	"names of one address that are compared: one of them is taken": `internal/names/symbols.maxAliases`,
	"times": `bpf.maxSpread internal/attach/process.MaxContextAge internal/names/naming.maxHold
		internal/stacks/sampling.maxNaming internal/stacks/sampling.maxReload internal/stacks/sampling.maxResync
		internal/stacks/sampling.maxSpent internal/stacks/unwind.maxQuarantineTime internal/worker.maxWait
		internal/worker/access.maxReadingTime`,
})

// reasons returns the reason of each name in lists of names.
func reasons(lists map[string]string) map[string]string {
	all := make(map[string]string)
	for reason, names := range lists {
		for name := range strings.FieldsSeq(names) {
			all[name] = reason
		}
	}
	return all
}
