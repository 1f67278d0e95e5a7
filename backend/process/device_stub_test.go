package process_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// lentSize is the size of allocation 1, which a deviceLie stub lends.
const lentSize = 2 << 20

// deviceLie is the prefix of behaviours of stubs that lend device memory in their first execution
// and name it in the second. One of the two frames may be false.
const deviceLie = "device:"

// lend sends LEND.
func (s *goStub) lend(number uint64) {
	body := make([]byte, ipc.AllocationSize)
	le.PutUint64(body[8:], lentSize) // on device 0, without UUID and handle
	s.send(ipc.Lend, number, body)
}

// onDevice moves an execution's output to a device.
func (s *goStub) onDevice(lie string, executions int, d *ipc.Descriptor) {
	switch executions {
	case 1:
		s.lend(1)
		return
	case 2:
	default:
		return
	}
	d.Region, d.Mapping, d.Offset, d.Ticket = ipc.InDevice, 1, 256, 1<<31|7
	switch lie {
	case "another allocation":
		d.Mapping = 2
	case "none of its own":
		d.Mapping = 0
	case "beyond the end":
		d.Offset = lentSize - 3
	case "around the end":
		d.Offset = 1<<64 - 4
	case "of BYTES":
		d.Type = uint8(infer.Bytes)
	case "of another length":
		d.Length = 8
	case "what only the server says":
		d.Region = ipc.InOwnDevice
	case "no region at all":
		d.Region = ipc.InOwnDevice + 1
	case "after UNLEND":
		s.send(ipc.Unlend, 1, nil)
	case "LEND twice":
		s.lend(1)
	case "UNLEND of nothing":
		s.send(ipc.Unlend, 2, nil)
	case "UNLEND twice":
		s.send(ipc.Unlend, 1, nil)
		s.send(ipc.Unlend, 1, nil)
	}
}

// askForDevice executes a request whose outputs may be at places, and returns its response.
func (m *running) askForDevice(places []infer.Place) *infer.Response {
	m.fixture.t.Helper()
	request := m.fixture.small()
	request.Places = places
	responses, _ := m.infer(request)
	releaseInputs(request)
	return responses[0]
}

// lent returns the memory lent by the only process, according to the metrics.
func (m *running) lent() int64 {
	m.fixture.t.Helper()
	list := m.fixture.supervisor.Processes()
	if len(list) != 1 {
		m.fixture.t.Fatalf("got %+v, want one process", list)
	}
	return list[0].Lent
}

// TestLiesAboutDevicesEndTheirLife checks that a false frame ends the life of its stub, and nothing
// else. Memory lent before is released by its last holder.
func TestLiesAboutDevicesEndTheirLife(t *testing.T) {
	r := newFixtureWith(t, "", nil)
	r.host = &callHost{}
	const first = "\x01\x01\x00\x00"
	for _, test := range []struct {
		lie    string
		places []infer.Place
		rule   string
	}{
		{"where it may not stay", nil, "descriptor"},
		{"where another may stay", []infer.Place{{Output: "OUT1", OnDevice: true}}, "descriptor"},
		{"another allocation", infer.Anywhere, "descriptor"},
		{"none of its own", infer.Anywhere, "descriptor"},
		{"beyond the end", infer.Anywhere, "descriptor"},
		{"around the end", infer.Anywhere, "descriptor"},
		{"of BYTES", infer.Anywhere, "descriptor"},
		{"of another length", infer.Anywhere, "descriptor"},
		{"what only the server says", infer.Anywhere, "descriptor"},
		{"no region at all", infer.Anywhere, "descriptor"},
		{"after UNLEND", infer.Anywhere, "descriptor"},
		{"LEND twice", infer.Anywhere, "device"},
		{"UNLEND of nothing", infer.Anywhere, "device"},
		{"UNLEND twice", infer.Anywhere, "device"},
	} {
		t.Run(test.lie, func(t *testing.T) {
			m, err := r.in(t).openProgram(deviceLie + test.lie)
			if err != nil {
				t.Fatal(err)
			}
			before := r.counts.brokenRules()[test.rule]
			for range 2 { // the second time in another life
				m.wantBytes(1, first)
				if n := m.lent(); n != lentSize {
					t.Errorf("%d bytes are lent, want %d", n, lentSize)
				}
				response := m.askForDevice(test.places)
				if response.Err == nil || !strings.Contains(response.Err.Message, "not healthy") || len(response.Outputs) != 0 {
					t.Errorf("got response %+v with error %v, want that of a lost stub", response, response.Err)
				}
				response.Release()
			}
			m.wantBytes(1, first)
			if n := r.counts.brokenRules()[test.rule] - before; n != 2 {
				t.Errorf("the rule %q was broken %d times, want twice: %v", test.rule, n, r.counts.brokenRules())
			}
		})
	}
	t.Run("LEND before INITIALIZED", func(t *testing.T) {
		before := r.counts.brokenRules()["kind"]
		if _, err := r.in(t).openProgram(deviceLie + "early"); err == nil {
			t.Error("Start: got no error")
		}
		if r.counts.brokenRules()["kind"] == before {
			t.Errorf("rules broken are %v, want that of kinds", r.counts.brokenRules())
		}
	})
}

// TestTensorsOnDevicesOutliveTheirStub checks that a reader can hold memory of an ended stub.
// Releasing it later is not an error of the next life.
func TestTensorsOnDevicesOutliveTheirStub(t *testing.T) {
	r := newFixtureWith(t, "", nil)
	r.host = &callHost{}
	m, err := r.in(t).openProgram(deviceLie + "none")
	if err != nil {
		t.Fatal(err)
	}
	m.wantBytes(1, "\x01\x01\x00\x00")
	held := m.askForDevice(infer.Anywhere)
	if held.Err != nil || len(held.Outputs) != 1 || held.Outputs[0].Foreign() == nil || held.Outputs[0].Size() != 4 {
		t.Fatalf("got response %+v with error %v, want an output on a device", held, held.Err)
	}
	m.kill()
	m.wantBytes(1, "\x01\x01\x00\x00")
	if err := held.Outputs[0].Localize(t.Context()); err == nil {
		t.Error("a server without devices has copied from one")
	}
	held.Release()
	m.close()
	if list := r.supervisor.Processes(); len(list) != 0 {
		t.Errorf("got %+v after the end, want none", list)
	}
}
