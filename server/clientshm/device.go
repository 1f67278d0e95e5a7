package clientshm

import (
	"context"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// openDevice opens an allocation. The caller owns the one reference. After an error nothing is
// open.
func (r *Registry) openDevice(ctx context.Context, status Status, handle []byte) (*region, error) {
	devices := r.devices()
	if devices == nil {
		return nil, NoDevice(status.Name)
	}
	var given foreign.Handle
	if len(handle) != len(given) {
		return nil, infer.Errorf(infer.InvalidArg, "failed to register CUDA shared memory region '%s': its raw handle has %d bytes, want %d",
			status.Name, len(handle), len(given))
	}
	copy(given[:], handle)
	allocation, err := devices.Open(ctx, status.Device, given)
	if err != nil {
		return nil, infer.Errorf(infer.InvalidArg, "failed to register CUDA shared memory region '%s': %v", status.Name, err)
	}
	if status.Size > allocation.Size {
		allocation.Release()
		return nil, infer.Errorf(infer.InvalidArg, "failed to register shared memory region '%s': invalid args", status.Name)
	}
	return &region{registry: r, status: status, devices: devices, allocation: allocation}, nil
}

// OnDevice returns the allocation of the slice and its offset there, or nil if the slice is in a
// file.
func (s *Slice) OnDevice() (allocation *foreign.Device, offset uint64) {
	return s.region.allocation, uint64(s.offset)
}

// copyDevice is Copy for a slice on a device.
func (s *Slice) copyDevice(ctx context.Context) ([]byte, infer.Memory, error) {
	if s.size == 0 {
		return []byte{}, nil, nil
	}
	return s.region.devices.Copy(ctx, s.region.allocation, uint64(s.offset), uint64(s.size))
}
