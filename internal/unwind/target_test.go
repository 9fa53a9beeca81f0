package unwind

import (
	"testing"

	"correlator/internal/worker"
	"correlator/procscan"
)

// What the engine keeps of a file, it keeps for one user: also of the vDSO, to which a process may
// write.
func TestFilesOfUsersAreApart(t *testing.T) {
	seen := make(map[mappedFile]string)
	for _, user := range []worker.User{"1", "12"} {
		for path, m := range map[string]procscan.Mapping{
			"[vdso]":       {Start: 1 << 40, End: 1<<40 + 8192},
			"/lib/libc.so": {Dev: 2, Ino: 3}, "/lib/other": {Dev: 23, Ino: 3},
		} {
			m.Path = path
			for range 2 {
				raw, ok := (&target{user: user}).rawMapping(m)
				if !ok || raw.IsVDSO() != (path == "[vdso]") {
					t.Errorf("%s is %+v", path, raw)
				}
				file, name := mappedFile{raw.Device, raw.Inode}, string(user)+" "+path
				if other, taken := seen[file]; taken && other != name {
					t.Errorf("%s is taken for %s", name, other)
				}
				seen[file] = name
			}
		}
	}
	if len(seen) != 6 {
		t.Errorf("files change: %v", seen)
	}
}
