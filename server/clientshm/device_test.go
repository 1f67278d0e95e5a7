package clientshm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// onDevices has one allocation of 100 bytes on device 1, whose handle begins with 1.
type onDevices struct {
	bytes [100]byte
	open  int
}

func (d *onDevices) Open(_ context.Context, device uint64, handle foreign.Handle) (*foreign.Device, error) {
	if device != 1 || handle[0] != 1 {
		return nil, errors.New("failed to open CUDA IPC handle: invalid argument")
	}
	d.open++
	m := foreign.NewDevice(1, [16]byte{}, uint64(len(d.bytes)), handle)
	m.OnEnd(func() { d.open-- })
	return m, nil
}

func (d *onDevices) Copy(_ context.Context, _ *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error) {
	return append([]byte(nil), d.bytes[offset:offset+n]...), nil, nil
}

func (d *onDevices) Write(_ context.Context, _ *foreign.Device, offset uint64, data []byte) error {
	copy(d.bytes[offset:], data)
	return nil
}

func TestRegionsOnDevices(t *testing.T) {
	devices, good := &onDevices{}, append([]byte{1}, make([]byte, 63)...)
	r := enabled(t, folder(t), func(c *clientshm.Config) {
		c.Most = 2
		c.Devices = func() clientshm.Devices { return devices }
	})
	if err := r.RegisterSystem("s", "two", 0, page); err != nil {
		t.Fatal(err)
	}
	if !r.HasDevices() {
		t.Error("there are devices, and HasDevices says that there are none")
	}
	const failed = "failed to register CUDA shared memory region 'r': "
	for _, c := range []struct {
		name   string
		device uint64
		handle []byte
		size   uint64
		code   infer.Code
		want   string
	}{
		{"s", 1, good, 1, infer.AlreadyExists, "shared memory region 's' already in manager"},
		{"\xff", 1, good, 1, infer.InvalidArg, "the name of a shared memory region is not valid UTF-8"},
		{"r", 1, good[:63], 1, infer.InvalidArg, failed[:len(failed)-2] + ": its raw handle has 63 bytes, want 64"},
		{"r", 0, good, 1, infer.InvalidArg, failed + "failed to open CUDA IPC handle: invalid argument"},
		{"r", 1, make([]byte, 64), 1, infer.InvalidArg, failed + "failed to open CUDA IPC handle: invalid argument"},
		{"r", 1, good, 101, infer.InvalidArg, "failed to register shared memory region 'r': invalid args"},
		{"r", 1, good, math.MaxUint64, infer.InvalidArg, "failed to register shared memory region 'r': invalid args"},
	} {
		wantError(t, r.RegisterCUDA(t.Context(), c.name, c.device, c.handle, c.size), c.code, c.want)
		if devices.open != 0 {
			t.Fatalf("%d allocations are open after a failure", devices.open)
		}
	}
	if err := r.RegisterCUDA(t.Context(), "r", 1, good, 100); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.RegisterCUDA(t.Context(), "r", 1, good, 100), infer.AlreadyExists, "shared memory region 'r' already in manager")
	wantError(t, r.RegisterCUDA(t.Context(), "more", 1, good, 100), infer.Unavailable,
		"failed to register shared memory region 'more': there are already 2 regions, the maximum (--client-shm-max-regions)")
	for kind, want := range map[clientshm.Kind]string{clientshm.System: fmt.Sprint([]clientshm.Status{{clientshm.System, "s", "two", 0, page, 0}}), clientshm.CUDA: fmt.Sprint([]clientshm.Status{{clientshm.CUDA, "r", "", 0, 100, 1}})} {
		if list, err := r.Status(kind, ""); err != nil || fmt.Sprint(list) != want {
			t.Errorf("got %v and error %v, want %s", list, err, want)
		}
	}
	_, err := r.Status(clientshm.System, "r")
	wantError(t, err, infer.NotFound, "The region named 'r' is registered as CUDA shared memory, not system shared memory")
	if count, bytes := r.Stats(); count != 2 || bytes != page+100 {
		t.Errorf("got %d regions of %d bytes, want 2 of %d", count, bytes, page+100)
	}

	_, err = r.Find("r", 10, 91)
	wantError(t, err, infer.InvalidArg, "Invalid offset + byte size for shared memory region: 'r'")
	s, err := r.Find("r", 90, 10)
	if err != nil {
		t.Fatal(err)
	}
	if region, _ := s.Shared(); region != nil {
		t.Error("a stub may map memory of a device")
	}
	if m, offset := s.OnDevice(); m == nil || offset != 90 {
		t.Errorf("got allocation %v and offset %d, want 90", m, offset)
	}
	wantError(t, s.Write(t.Context(), "O", make([]byte, 11)), infer.Internal,
		"shared memory size specified with the request for output 'O' (10 bytes) should be at least 11 bytes to hold the results")
	if err := errors.Join(s.Write(t.Context(), "O", []byte("bytes")), r.Unregister(clientshm.System, "r"), r.Unregister(clientshm.System, "")); err != nil {
		t.Fatal(err)
	}
	if list, err := r.Status(clientshm.CUDA, "r"); err != nil || len(list) != 1 {
		t.Errorf("got %v and error %v: the endpoints of the system have unregistered a region of CUDA", list, err)
	}
	if err := r.Unregister(clientshm.CUDA, ""); err != nil || devices.open != 1 {
		t.Errorf("error %v and %d allocations are open, want 1: a slice is held", err, devices.open)
	}
	if data, _, err := s.Copy(t.Context()); err != nil || string(data) != "bytes\x00\x00\x00\x00\x00" {
		t.Errorf("got %q and error %v, want what was written", data, err)
	}
	s.Release()
	if devices.open != 0 {
		t.Errorf("%d allocations are open, want none", devices.open)
	}
}
