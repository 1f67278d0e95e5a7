package devices

import (
	"errors"
	"fmt"
)

// Sample is the load of a device. Values that the device or its driver does not report are nil.
type Sample struct {
	UUID        string   `json:"-"`
	Utilization *float64 `json:"utilization"`  // share of 1
	MemoryTotal *float64 `json:"memory_total"` // bytes
	MemoryUsed  *float64 `json:"memory_used"`  // bytes
	Power       *float64 `json:"power"`        // watts
	PowerLimit  *float64 `json:"power_limit"`  // watts
	Energy      *float64 `json:"energy"`       // joules since the server was started
}

// meter is the energy that a device has used under this server. The driver counts from its own
// start, and may restart its count.
type meter struct{ last, sum float64 }

func (m *meter) read(joules float64) float64 {
	m.sum += max(joules-m.last, 0)
	m.last = joules
	return m.sum
}

// errUnmeasured is the error of a helper that works where NVML does not.
var errUnmeasured = errors.New("NVML does not measure the devices")

// Samples measures the load of the devices, in the order of List, without those that cannot be
// measured now. It waits for at most Config.SampleTimeout.
func (d *Devices) Samples() []Sample {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.helper == nil {
		return nil
	}
	samples, err := d.measure(d.helper)
	if err != nil && !errors.Is(err, errUnmeasured) {
		d.config.Log.Warn().Err(err).Msg("the device helper was stopped")
		close(d.helper.given) // attend ends it
		d.helper = nil
	}
	return samples
}

// MemoryUsed returns the used share of a device's memory, if known.
func (d *Devices) MemoryUsed(number int32) (share float64, known bool) {
	list := d.List()
	if number < 0 || int(number) >= len(list) {
		return 0, false
	}
	for _, s := range d.Samples() {
		if s.UUID == list[number].UUID && s.MemoryUsed != nil && s.MemoryTotal != nil && *s.MemoryTotal > 0 {
			return *s.MemoryUsed / *s.MemoryTotal, true
		}
	}
	return 0, false
}

// measure asks a helper for a sample. The caller holds d.mu.
func (d *Devices) measure(h *helper) ([]Sample, error) {
	var reply struct {
		Samples map[string]*Sample `json:"samples"`
		Error   string             `json:"error"`
	}
	if err := h.ask(&reply, d.config.SampleTimeout); err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, d.unmeasured(reply.Error)
	}
	var samples []Sample // bound: the devices
	for i := range d.list {
		uuid := d.list[i].UUID
		s := reply.Samples[uuid]
		if s == nil {
			continue // it is lost, or the driver now hides it
		}
		s.UUID = uuid
		if s.Energy != nil {
			m := d.energy[uuid]
			if m == nil {
				m = &meter{last: *s.Energy}
				d.energy[uuid] = m
			}
			sum := m.read(*s.Energy)
			s.Energy = &sum
		}
		samples = append(samples, *s)
	}
	return samples, nil
}

// unmeasured logs, once, that there will be no metrics.
func (d *Devices) unmeasured(text string) error {
	err := fmt.Errorf("%w: %s", errUnmeasured, text)
	if !d.told {
		d.told = true
		d.config.Log.Warn().Err(err).Msg("no GPU metrics")
	}
	return err
}
