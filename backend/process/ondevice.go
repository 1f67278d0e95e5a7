package process

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
)

// DeviceProgram is a Program whose processes know devices: they put outputs into memory of clients there, and
// take inputs there, where the model's config says so.
type DeviceProgram interface {
	Program
	// TakesDevices is asked when the config is final, and before INITIALIZE.
	TakesDevices() bool
}

var _ backend.DeviceTaker = (*Model)(nil)

// TakesDevices implements backend.DeviceTaker.
func (m *Model) TakesDevices() bool {
	p, ok := m.program.(DeviceProgram)
	return ok && p.TakesDevices()
}

// knowsDevices reports whether the model's processes can be told of memory of devices.
func (m *Model) knowsDevices() bool {
	_, ok := m.program.(DeviceProgram)
	return ok
}

// newDevices makes the tables of what a life's stub lends of devices' memory, and knows.
func (l *life) newDevices() {
	l.lent = cudaipc.NewLent(l.channel.Arena(), l.in.model.supervisor.copier)
	l.announced = cudaipc.NewAnnounced(l.lent, l.encoder.Send, l.in.log)
	l.decoder.SetDevices(l.lent)
	l.encoder.SetDevices(l.announced)
	if l.in.model.knowsDevices() {
		l.decoder.SetAnnounced(l.announced)
		l.encoder.PlaceOnDevices()
	}
}

// closeDevices forgets what the stub knew first: it is not told of the end of its own.
func (l *life) closeDevices() {
	l.announced.Close()
	l.lent.Close()
}
