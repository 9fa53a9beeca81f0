package deltas

import (
	"errors"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// Provider is what the engine asks for how to unwind the code of a file.
type Provider struct {
	nativeunwind.StackDeltaProvider
	Uncorrected uint64 // files of which there is what the engine knows, as reading more of them failed
}

// NewProvider returns a provider.
func NewProvider() *Provider {
	return &Provider{StackDeltaProvider: elfunwindinfo.NewStackDeltaProvider()}
}

// GetIntervalDataForFile returns what the engine's own provider does, corrected and completed. Where that fails, it
// is what the engine's own returns: most of its stacks are right, and without it all end in the file.
func (p *Provider) GetIntervalDataForFile(ref *pfelf.Reference) (*stackdeltatypes.IntervalData, error) {
	if ref.FileName() == Trampolines {
		return trampolines(), nil
	}
	data, err := p.StackDeltaProvider.GetIntervalDataForFile(ref)
	if err != nil {
		return nil, err
	}
	file, err := ref.GetELF()
	if err != nil {
		return nil, err
	}
	errGo, errLibrary := correctGo(file, data), completeLibrary(file, data)
	errAssembly, errLinkage := completeAssembly(file, data), completeLinkage(file, data)
	errContexts := completeContexts(file, data)
	if errors.Join(errGo, errLibrary, errAssembly, errLinkage, errContexts) != nil {
		p.Uncorrected++
	}
	if err := check(data); err != nil {
		p.Uncorrected++
		return nil, err
	}
	return data, nil
}
