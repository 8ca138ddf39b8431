package attack

import (
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// deny makes an operation on a path fail for want of rights, for good.
func deny(op, path string) sim.Fault {
	return sim.Fault{Op: op, Path: path, Times: -1, Effect: sim.FailWith, Code: zkpaths.NoAuth}
}
