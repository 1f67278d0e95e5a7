package frames

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// deviceMemory is a range of a client's allocation on a device.
type deviceMemory struct {
	infer.Foreign
	allocation   *foreign.Device
	offset, size int64
	refs         int
}

func newDeviceMemory(offset, size int64) *deviceMemory {
	return &deviceMemory{allocation: foreign.NewDevice(0, [16]byte{1}, 1<<20, foreign.Handle{2}), offset: offset, size: size, refs: 1}
}

func (m *deviceMemory) Retain()     { m.refs++ }
func (m *deviceMemory) Release()    { m.refs-- }
func (m *deviceMemory) Size() int64 { return m.size }

func (m *deviceMemory) OnDevice() (*foreign.Device, uint64) { return m.allocation, uint64(m.offset) }

// announcer records the allocations announced to a stub.
type announcer struct {
	known  *cudaipc.Announced
	told   []uint64 // numbers in ALLOCATION frames
	broken error    // error of the ring
}

func newAnnouncer() *announcer {
	a := &announcer{}
	a.known = cudaipc.NewAnnounced(nil, func(kind ipc.Kind, id uint64, _ []byte) error {
		if kind == ipc.Allocation && a.broken == nil {
			a.told = append(a.told, id)
		}
		return a.broken
	}, zerolog.Nop())
	return a
}

// TestPlacesOnDevices checks that a stub gets the outputs wanted on devices, and each allocation
// once. Places that cannot be sent are left out.
func TestPlacesOnDevices(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	large, small := newDeviceMemory(100, 70_000), newDeviceMemory(7, 4)
	requests := []*infer.Request{{ID: "a", Places: []infer.Place{
		{Output: "OUT1", Memory: large}, {Output: "NONE", Memory: large}, {Output: "OUT0", Memory: newDeviceMemory(0, 0)}, {Output: "OUT3", Memory: small},
	}}}
	plan := func() []ipc.Place {
		t.Helper()
		if err := p.encoder.plan(requests, []uint64{1}); err != nil {
			t.Fatal(err)
		}
		return p.encoder.wanted
	}
	if got := plan(); len(got) != 0 {
		t.Errorf("a stub that knows nothing of devices is told of %+v", got)
	}
	stub := newAnnouncer()
	p.encoder.Announced = stub.known
	p.encoder.PutsThere = true
	stub.broken = errors.New("full")
	if got := plan(); len(got) != 0 {
		t.Errorf("the stub is told of %+v by a ring that is broken", got)
	}
	stub.broken = nil
	index := func(name string) uint16 { i, _ := p.encoder.Names.outputIndex(name); return i }
	want := []ipc.Place{
		{Name: index("OUT1"), Kind: ipc.PlaceAllocation, Region: 1, Offset: 100, Length: 70_000},
		{Name: index("OUT3"), Kind: ipc.PlaceAllocation, Region: 2, Offset: 7, Length: 4},
	}
	for range 2 {
		if got := plan(); !slices.Equal(got, want) {
			t.Errorf("got places %+v, want %+v", got, want)
		}
	}
	if !slices.Equal(stub.told, []uint64{1, 2}) || large.refs != 1 {
		t.Errorf("allocations %v were announced, want 1 and 2; %d references, want one", stub.told, large.refs)
	}
	body := make([]byte, p.encoder.size)
	p.encoder.write(body, requests)
	ipctest.Want(t, "execute_device_places", ipc.Execute, 1, body)
}

// claimThere returns a stub's report that it has copied 65,600 bytes to OUT0's device place.
// change, if not nil, falsifies it.
func claimThere(change func(*ipc.Descriptor)) ipc.Descriptor {
	return claim(func(d *ipc.Descriptor) {
		d.Region, d.Mapping = ipc.InDevicePlace, 1
		if change != nil {
			change(d)
		}
	})
}

// TestClaimsOnDevicesAreChecked checks that, as with regions, a report is accepted only for the
// place of that output of that request.
func TestClaimsOnDevicesAreChecked(t *testing.T) {
	type places = []infer.Place
	for name, test := range map[string]struct {
		change  func(*ipc.Descriptor)
		changes func(p *peer, m *deviceMemory) places
		good    bool
	}{
		"as told":                  {good: true},
		"all of the place":         {change: func(d *ipc.Descriptor) { d.Length, d.Shape = 70_000, []int64{17_500} }, good: true},
		"more than the place has":  {change: func(d *ipc.Descriptor) { d.Length, d.Shape = 70_004, []int64{17_501} }},
		"more than shape and type": {change: func(d *ipc.Descriptor) { d.Length += 4 }},
		"another offset":           {change: func(d *ipc.Descriptor) { d.Offset = 0 }},
		"an offset that wraps":     {change: func(d *ipc.Descriptor) { d.Offset = math.MaxUint64 }},
		"another allocation":       {change: func(d *ipc.Descriptor) { d.Mapping = 2 }},
		"no allocation":            {change: func(d *ipc.Descriptor) { d.Mapping = 0 }},
		"a ticket":                 {change: func(d *ipc.Descriptor) { d.Ticket = 1 << 31 }},
		"another output":           {change: func(d *ipc.Descriptor) { d.Name = 2 }},
		"an input":                 {change: func(d *ipc.Descriptor) { d.Name = 0 }},
		"strings":                  {change: func(d *ipc.Descriptor) { d.Type = uint8(infer.Bytes) }},
		"as a region of the host":  {change: func(d *ipc.Descriptor) { d.Region = ipc.InClient }},
		"as what it lends":         {change: func(d *ipc.Descriptor) { d.Region = ipc.InDevice }},
		"it is not wanted":         {changes: func(*peer, *deviceMemory) places { return nil }},
		"it may stay":              {changes: func(*peer, *deviceMemory) places { return infer.Anywhere }},
		"the stub knows nothing":   {changes: func(p *peer, m *deviceMemory) places { p.decoder.Announced = nil; return wantedThere(m) }},
		"the place of another request": {changes: func(*peer, *deviceMemory) places {
			return wantedThere(newDeviceMemory(100, 70_000)) // unknown to the stub
		}},
		"it was unregistered": {changes: func(_ *peer, m *deviceMemory) places { m.allocation.Release(); return wantedThere(m) }},
		"a region of the host is wanted": {changes: func(p *peer, _ *deviceMemory) places {
			p.decoder.Mapped = func(*shm.Shared, bool) (uint32, bool) { return 1, true }
			return wantedIn(newClientMemory(t))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, shm.Memfd{})
			stub, m := newAnnouncer(), newDeviceMemory(100, 70_000)
			if _, err := stub.known.Announce(m.allocation); err != nil {
				t.Fatal(err)
			}
			p.decoder.Announced = stub.known
			wanted := wantedThere(m)
			if test.changes != nil {
				wanted = test.changes(p, m)
			}
			body := responseBody(claimThere(test.change))
			var parsed ipc.ResponseBody
			_, err := ipc.ParseResponse(body, &parsed)
			var r infer.Response
			if err == nil {
				err = p.decoder.Response(&parsed, &ipc.Frame{Body: body}, "m", wanted, &r, new(Kept))
			}
			var broken *ipc.ProtocolError
			if test.good {
				if err != nil || r.Err != nil || !r.Outputs[0].InPlace() || uint64(r.Outputs[0].Size()) != parsed.Outputs[0].Length || m.refs != 2 {
					t.Errorf("got error %v, response %+v and %d references, want the output in its place", err, r, m.refs)
				}
			} else if !errors.As(err, &broken) {
				t.Errorf("got error %v, want a protocol error", err)
			}
			r.Release()
			if m.refs != 1 {
				t.Errorf("%d references, want one", m.refs)
			}
		})
	}
}

func wantedThere(m *deviceMemory) []infer.Place {
	return []infer.Place{{Output: "OUT0", Memory: m}}
}

// TestAPlaceClaimedTwice checks that each of two outputs in one place holds a reference to the
// client's memory until it is released.
func TestAPlaceClaimedTwice(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	stub, m := newAnnouncer(), newDeviceMemory(100, 70_000)
	if _, err := stub.known.Announce(m.allocation); err != nil {
		t.Fatal(err)
	}
	p.decoder.Announced = stub.known
	body := responseBody(claimThere(nil), claimThere(nil))
	var parsed ipc.ResponseBody
	if _, err := ipc.ParseResponse(body, &parsed); err != nil {
		t.Fatal(err)
	}
	var r infer.Response
	if err := p.decoder.Response(&parsed, &ipc.Frame{Body: body}, "m", wantedThere(m), &r, new(Kept)); err != nil || m.refs != 3 {
		t.Errorf("got error %v and %d references, want three", err, m.refs)
	}
	r.Release()
	if m.refs != 1 {
		t.Errorf("%d references, want one", m.refs)
	}
}

// TestGoldenPlaceOnADeviceIsDecoded decodes the stub's golden frame with an output in a device
// place.
func TestGoldenPlaceOnADeviceIsDecoded(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	stub, m := newAnnouncer(), newDeviceMemory(256, 80_000)
	for range 5 {
		if _, err := stub.known.Announce(newDeviceMemory(0, 1).allocation); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := stub.known.Announce(m.allocation); err != nil || n != 6 {
		t.Fatalf("got number %d and error %v, want 6", n, err)
	}
	p.decoder.Announced = stub.known
	body := ipctest.Body(t, "executed_device_place")
	e, err := ipc.ParseExecuted(body)
	if err != nil {
		t.Fatal(err)
	}
	var parsed ipc.ResponseBody
	if ok, err := e.NextResponse(&parsed); !ok || err != nil {
		t.Fatalf("got no response, error %v", err)
	}
	var r infer.Response
	if err := p.decoder.Response(&parsed, &ipc.Frame{Body: body}, "m", []infer.Place{{Output: "OUT1", Memory: m}}, &r, new(Kept)); err != nil || len(r.Outputs) != 2 {
		t.Fatalf("got error %v and %d outputs, want two", err, len(r.Outputs))
	}
	if r.Outputs[0].InPlace() || !r.Outputs[1].InPlace() || r.Outputs[1].Size() != 80_000 || !slices.Equal(r.Outputs[1].Shape, []int64{2, 10_000}) {
		t.Errorf("got outputs %+v, want the second one in its place", r.Outputs)
	}
	r.Release()
}
