package profile

import (
	"bytes"
	"encoding/hex"
	"io"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// A vDSO without a build id is none.
func TestVDSOWithoutBuildID(t *testing.T) {
	contents := testenv.ReadFile(t, library)
	parsed := func(b []byte) *vdso { return newVDSO(io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))) }
	v := parsed(contents)
	assert.Check(t, v != nil && v.size == uint64(len(contents)), "%+v", v)
	id, err := hex.DecodeString(parsed(contents).image.file.BuildID)
	assert.NilError(t, err)
	nameless := bytes.Replace(contents, append([]byte("GNU\x00"), id...), append([]byte("XEN\x00"), id...), 1)
	if v := parsed(nameless); v != nil {
		t.Errorf("%+v", v.image.file)
	}
	if v := parsed(contents[:100]); v != nil {
		t.Errorf("%+v", v.image.file)
	}
}

// Without a vDSO of our own, others' is anonymous.
func TestNoVDSO(t *testing.T) {
	files, err := NewFiles(t.TempDir(), 1)
	assert.NilError(t, err)
	space := NewAddressSpace(files, pace)
	update(t, space, &fakeProcess{mappings: []procscan.Mapping{{Start: 0x1000, End: 0x3000, Path: vdsoName}}})
	if frames := space.AppendFrames(nil, []uint64{0x1010}); frames[0] != (Frame{Address: 0x1010}) ||
		files.Mappings.NotRead.Load() != 1 {
		t.Errorf("%+v, counted %v", frames, files.Mappings.all())
	}
}
