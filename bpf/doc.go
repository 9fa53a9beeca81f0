// Package bpf contains the eBPF programs and an API for each: the C sources, and the objects and
// bindings that bpf2go generates from them.
//
// [Threads] lists the threads of one process, or of all, with their thread pointers. [Sampler]
// takes CPU samples, reads at each the trace that the thread works on, and counts them in the
// kernel. Neither stops or traces a process. [Sampler.SetUnwinder] has programs of others walk the
// stacks of some targets: those without frame pointers. The programs share kernel.h (the fields
// that are read of kernel structures) and load, which explains why a machine cannot run them.
// Programs of others can include correlator.h, which documents how.
//
// Needed: Linux 5.8, its BTF (CONFIG_DEBUG_INFO_BTF), CAP_BPF and CAP_PERFMON; for [Sampler] also
// perf events. What is missing is reported as a [MissingError].
package bpf

//go:generate ../.ci/bpf2go -target amd64,arm64 -type thread_record threads threads.bpf.c -- -Wall -Wextra -Werror
//go:generate ../.ci/bpf2go -target amd64,arm64 -type identity_record identity identity.bpf.c -- -Wall -Wextra -Werror
//go:generate ../.ci/bpf2go -target amd64,arm64 writers writers.bpf.c -- -Wall -Wextra -Werror
//go:generate ../.ci/bpf2go -target amd64,arm64 -type thread_state -type correlator_context_kind -type budget -type owned -type account -type account_key -type wait_counters -type pace waits waits.bpf.c -- -Wall -Wextra -Werror
//go:generate ../.ci/bpf2go -target amd64,arm64 -type walked -type waker_kind walks walks.bpf.c -- -Wall -Wextra -Werror
//go:generate ../.ci/bpf2go -target amd64,arm64 -type sample_outcome -type correlator_kind -type go_role -type go_labels_form -type go_attribute -type attributes_origin -type obi_map -type correlator_rule -type deferred -type attributes_key -type correlator_attributes sampler sampler.bpf.c -- -Wall -Wextra -Werror
//go:generate sh -c "gzip -9knf *_bpfel.o"
