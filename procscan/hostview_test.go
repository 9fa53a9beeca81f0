package procscan

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestHostView(t *testing.T) {
	const otherPID, otherUser = "pid:[4026532204]", "user:[4026532201]"
	for _, test := range []struct {
		pid, user string
		mayTrace  bool
		noAttach  bool
		want      []string
	}{
		{InitialPIDNamespace, InitialUserNamespace, true, false, nil},
		{InitialPIDNamespace, InitialUserNamespace, true, true, []string{"boot with 2 or less"}},
		{otherPID, InitialUserNamespace, true, false, []string{"hostPID: true"}},
		{InitialPIDNamespace, InitialUserNamespace, false, false, []string{"grant the process CAP_SYS_PTRACE"}},
		{InitialPIDNamespace, otherUser, true, false, []string{"outside of user namespaces"}},
		{otherPID, otherUser, true, false, []string{"--pid=host", "outside of user namespaces"}},
		{otherPID, InitialUserNamespace, false, false, []string{"--pid=host", "grant the process CAP_SYS_PTRACE"}},
	} {
		err := hostView(test.pid, test.user, test.mayTrace, test.noAttach)
		assert.Check(t, (err == nil) == (test.want == nil), "%+v: %v", test, err)
		for _, text := range test.want {
			assert.Check(t, err != nil && strings.Contains(err.Error(), text), "%+v: %v, want %q", test, err, text)
		}
	}
	assert.Check(t, ProbeHostView(t.TempDir()) != nil, "no error without a procfs")
}

// The numbers of the initial namespaces are this kernel's: kthreadd, a thread of the kernel, has pid
// 2 in the initial pid namespace and is seen in no other.
func TestProbeHostView(t *testing.T) {
	testenv.NeedRoot(t)
	name, err := os.ReadFile("/proc/2/comm")
	host := err == nil && string(name) == "kthreadd\n"
	err = ProbeHostView("/proc")
	assert.Check(t, (err == nil) == host, "kthreadd is seen: %v; %v", host, err)
}
