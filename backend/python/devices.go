package python

import "github.com/nereid-serving/nereid/backend/process"

var _ process.DeviceProgram = (*code)(nil)

// TakesDevices implements process.DeviceProgram. Triton's default is that all inputs are
// copied to the host.
func (c *code) TakesDevices() bool {
	return c.env.Config.GetParameters()["FORCE_CPU_ONLY_INPUT_TENSORS"].GetStringValue() == "no"
}
