package process

import "correlator/procscan"

// Execution tells the programs that a process executes one after the other apart, also the same one at the same
// addresses.
type Execution struct {
	image  procscan.Image
	random [16]byte // by the kernel, for this program; it may overwrite them, and then looks like another one
}

// Execution returns which program the process runs. An error means that it is not known.
func (t *Target) Execution() (e Execution, err error) {
	if e.image, err = t.handle.Image(); err != nil {
		return Execution{}, err
	}
	if e.image == (procscan.Image{}) {
		return Execution{}, procscan.ErrDenied
	}
	addr, err := t.handle.RandomAddr()
	if err != nil {
		return Execution{}, err
	}
	if _, err := t.memory.Read(addr, e.random[:]); err != nil {
		return Execution{}, err
	}
	return e, nil
}
