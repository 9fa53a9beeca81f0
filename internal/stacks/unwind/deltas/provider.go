package deltas

import (
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// Provider returns what the engine asks for how to unwind the code of a file.
func Provider() nativeunwind.StackDeltaProvider {
	return provider{elfunwindinfo.NewStackDeltaProvider()}
}

type provider struct {
	nativeunwind.StackDeltaProvider
}

// GetIntervalDataForFile returns what the engine's own provider does, corrected and completed.
func (p provider) GetIntervalDataForFile(ref *pfelf.Reference) (*stackdeltatypes.IntervalData, error) {
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
	if err := correctGo(file, data); err != nil {
		return nil, err
	}
	if err := completeLibrary(file, data); err != nil {
		return nil, err
	}
	return data, nil
}
