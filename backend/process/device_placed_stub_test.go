package process_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// placeLie is the prefix of behaviours of stubs that report a write to an announced allocation,
// truthfully or not.
const placeLie = "place:"

// The output's place in a clientAllocation.
const (
	placedAt   = 256
	placedSize = 64
)

// inPlace moves an execution's output to its place on a device, once such a place was announced.
func (s *goStub) inPlace(lie string, d *ipc.Descriptor) {
	if s.allocation == 0 {
		return
	}
	d.Region, d.Mapping, d.Offset = ipc.InDevicePlace, s.allocation, placedAt
	switch lie {
	case "another offset":
		d.Offset++
	case "more than the place":
		d.Length, d.Shape = placedSize+1, []int64{1, placedSize + 1}
	case "another allocation":
		d.Mapping++
	case "as its own":
		d.Region = ipc.InDevice
	}
}

// clientAllocation is a range of a client's device memory.
type clientAllocation struct {
	infer.Foreign
	allocation *foreign.Device
	refs       atomic.Int32
}

func newClientAllocation() *clientAllocation {
	c := &clientAllocation{allocation: foreign.NewDevice(0, [16]byte{1}, 4096, foreign.Handle{2})}
	c.refs.Store(1)
	return c
}

func (c *clientAllocation) Retain()     { c.refs.Add(1) }
func (c *clientAllocation) Size() int64 { return placedSize }

func (c *clientAllocation) Release() {
	if c.refs.Add(-1) == 0 {
		c.allocation.Release()
	}
}

func (c *clientAllocation) OnDevice() (*foreign.Device, uint64) { return c.allocation, placedAt }

// askFor executes a request that wants its first output in a client's memory.
func (m *running) askFor(c *clientAllocation) *infer.Response {
	m.fixture.t.Helper()
	return m.askForDevice([]infer.Place{{Output: "OUT0", Memory: c}})
}

// TestOutputsAreCopiedToDevices checks that an output that a stub reports as written lies in the
// client's memory, which the response holds. The stub learns of the allocation once, and of its
// end.
func TestOutputsAreCopiedToDevices(t *testing.T) {
	r := newFixtureWith(t, "", nil)
	r.host = &callHost{}
	m, err := r.openProgram(placeLie + "none")
	if err != nil {
		t.Fatal(err)
	}
	c := newClientAllocation()
	if !m.model.Capabilities().Mapper.Writes(&infer.Place{Output: "OUT0", Memory: c}) {
		t.Error("the model writes no outputs to devices")
	}
	for range 3 {
		response := m.askFor(c)
		if response.Err != nil || !response.Outputs[0].InPlace() || response.Outputs[0].Size() != 4 || c.refs.Load() != 2 {
			t.Errorf("got response %+v with error %v and %d references, want an output in its place", response, response.Err, c.refs.Load())
		}
		response.Release()
	}
	known := func() int {
		t.Helper()
		held, _ := m.instance().Held()
		return held.Allocations
	}
	if n := known(); n != 1 {
		t.Errorf("the stub knows %d allocations, want one", n)
	}
	held := m.askFor(c)
	c.Release() // unregistered
	if n := known(); n != 1 {
		t.Errorf("the stub knows %d allocations while a response holds one", n)
	}
	held.Release()
	if n := known(); n != 0 || c.refs.Load() != 0 {
		t.Errorf("the stub knows %d allocations, and %d references are left, want none", n, c.refs.Load())
	}
	response := m.askFor(newClientAllocation()) // another client's allocation
	if response.Err != nil || !response.Outputs[0].InPlace() {
		t.Errorf("got response %+v with error %v, want an output in its place", response, response.Err)
	}
	response.Release()
}

// TestLiesAboutPlacesOnDevicesEndTheirLife checks that a false report ends the life of its stub,
// and nothing else. No reference to the client's memory is left.
func TestLiesAboutPlacesOnDevicesEndTheirLife(t *testing.T) {
	r := newFixtureWith(t, "", nil)
	r.host = &callHost{}
	unhealthy := func(t *testing.T, response *infer.Response) {
		t.Helper()
		if response.Err == nil || !strings.Contains(response.Err.Message, "not healthy") || len(response.Outputs) != 0 {
			t.Errorf("got response %+v with error %v, want that of a lost stub", response, response.Err)
		}
		response.Release()
	}
	for _, lie := range []string{"another offset", "more than the place", "another allocation", "as its own"} { // package frames tests more
		t.Run(lie, func(t *testing.T) {
			m, err := r.in(t).openProgram(placeLie + lie)
			if err != nil {
				t.Fatal(err)
			}
			before := r.counts.brokenRules()["descriptor"]
			c := newClientAllocation()
			unhealthy(t, m.askFor(c))
			m.wantBytes(1, "\x01\x01\x00\x00")
			if n := r.counts.brokenRules()["descriptor"] - before; n != 1 || c.refs.Load() != 1 {
				t.Errorf("the rule was broken %d times, want once; %d references, want one", n, c.refs.Load())
			}
			c.Release()
		})
	}
	t.Run("the place of another request", func(t *testing.T) {
		m, err := r.in(t).openProgram(placeLie + "none")
		if err != nil {
			t.Fatal(err)
		}
		c := newClientAllocation()
		m.askFor(c).Release()
		unhealthy(t, m.askForDevice(nil))                                                   // no place wanted
		m.askFor(c).Release()                                                               // in a new life
		unhealthy(t, m.askForDevice([]infer.Place{{Output: "OUT1", Memory: c}}))            // the place of another output
		m.askFor(c).Release()                                                               // in yet another life
		unhealthy(t, m.askForDevice([]infer.Place{{Output: "OUT0", Memory: elsewhere{c}}})) // another range
		c.Release()
	})
	t.Run("when it was killed", func(t *testing.T) {
		m, err := r.in(t).openProgram(placeLie + "none")
		if err != nil {
			t.Fatal(err)
		}
		c := newClientAllocation()
		m.askFor(c).Release()
		m.kill()
		testkit.Eventually(t, patience, func() bool {
			response := m.askFor(c)
			defer response.Release()
			return response.Err == nil && response.Outputs[0].InPlace()
		})
		c.Release()
		if held, alive := m.instance().Held(); !alive || held.Allocations != 0 || c.refs.Load() != 0 {
			t.Errorf("the stub knows %d allocations, and %d references are left, want none", held.Allocations, c.refs.Load())
		}
	})
}

// elsewhere is another range of the same allocation.
type elsewhere struct{ *clientAllocation }

func (e elsewhere) OnDevice() (*foreign.Device, uint64) { return e.allocation, placedAt + 64 }
