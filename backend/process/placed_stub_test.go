package process_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// plusModel responds with its input plus one. A request's id selects other behaviour.
const plusModel = `
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x, how = request.inputs()[0].as_numpy(), request.request_id()
            if how == "identity":
                out = x
            elif how == "small":
                out = x[:, :100] + 1
            elif how == "exits":
                os._exit(3)
            else:
                out = x + 1
            if how.startswith("/"):
                open(how + ".begun", "w").close()
                while not os.path.exists(how + ".over"):
                    pass
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", out)]))
        return responses
`

func (r *fixture) plus() *running {
	r.t.Helper()
	m, err := r.open(r.writeModel("plus", plusModel), modelConfig("plus", 1, infer.Uint8))
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// writes waits until the model's stub has mapped the region for outputs.
func (m *running) writes(c *clientRegion) {
	m.fixture.t.Helper()
	testkit.Eventually(m.fixture.t, patience, func() bool { return m.model.Capabilities().Mapper.Writes(&infer.Place{Output: "OUT0", Memory: c}) })
}

// put executes a request of a few ones that wants its output in out.
func (m *running) put(out *clientRegion, id string) *infer.Response {
	m.fixture.t.Helper()
	request := m.fixture.ones(out, id)
	defer releaseInputs(request)
	responses, _ := m.infer(request)
	return responses[0]
}

func (r *fixture) ones(out *clientRegion, id string) *infer.Request {
	return &infer.Request{
		ID: id, Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, regionSize}, bytes.Repeat([]byte{1}, regionSize))},
		Places: []infer.Place{{Output: "OUT0", Memory: out}},
	}
}

func (c *clientRegion) wantAll(is byte) {
	c.fixture.t.Helper()
	b := make([]byte, regionSize)
	if _, err := c.file.ReadAt(b, 0); err != nil {
		c.fixture.t.Fatal(err)
	}
	if n := bytes.Count(b, []byte{is}); n != regionSize {
		c.fixture.t.Errorf("%d bytes of the region are %d, want all %d", n, is, regionSize)
	}
}

// TestNoMappingForBYTES checks that a region is not mapped for outputs of BYTES, because stubs do
// not write them there.
func TestNoMappingForBYTES(t *testing.T) {
	r := newFixture(t, nil)
	m, err := r.open(r.writeModel("plus", plusModel), modelConfig("plus", 1, infer.Uint8, infer.Bytes))
	if err != nil {
		t.Fatal(err)
	}
	numbers, texts := r.region(0o600), r.region(0o600)
	m.writes(numbers)
	if m.model.Capabilities().Mapper.Writes(&infer.Place{Output: "OUT1", Memory: texts}) || texts.refs.Load() != 1 {
		t.Errorf("%d references to the region, want 1", texts.refs.Load())
	}
	if m.model.Capabilities().Mapper.Writes(&infer.Place{Output: "OUT1", Memory: newClientAllocation()}) {
		t.Error("an output of BYTES is to be written to a device")
	}
}

// TestStubsWriteOutputs checks that once the stub has mapped a region, an output is in its place
// when the response arrives and not in the arena. The mapping ends with the region, even if it is
// unregistered during a request.
func TestStubsWriteOutputs(t *testing.T) {
	pythons := testkit.Pythons(t)
	for _, python := range slices.Compact([]testkit.Interpreter{pythons[0], pythons[len(pythons)-1]}) {
		t.Run(python.String(), func(t *testing.T) {
			r := newFixtureWith(t, python.Path, nil)
			m := r.plus()
			out := r.region(0o600)
			response := m.put(out, "")
			if o := &response.Outputs[0]; o.InPlace() || len(o.Data) != regionSize || o.Data[0] != 2 {
				t.Errorf("before it is mapped: the output is in its place: %v, with %d bytes here", o.InPlace(), len(o.Data))
			}
			response.Release()
			out.wantAll(1)

			m.writes(out)
			for range 3 {
				out.fill(9)
				response := m.put(out, "")
				if o := &response.Outputs[0]; !o.InPlace() || o.Data != nil || o.Size() != regionSize || out.refs.Load() != 2 {
					t.Errorf("the output is in its place: %v, with %d bytes here; %d references, want 2", o.InPlace(), len(o.Data), out.refs.Load())
				}
				out.wantAll(2)
				if held, alive := m.instance().Held(); !alive || held.Descriptors != 0 {
					t.Errorf("%d descriptors of the arena are outstanding, want none", held.Descriptors)
				}
				response.Release()
			}
			response = m.put(out, "small")
			if o := &response.Outputs[0]; o.InPlace() || len(o.Data) != 100 {
				t.Errorf("a small output is in its place: %v, with %d bytes here", o.InPlace(), len(o.Data))
			}
			response.Release()

			// From one region to another, and to itself.
			in := r.region(0o600)
			m.maps(in)
			in.fill(5)
			request := in.request("identity")
			request.Places = []infer.Place{{Output: "OUT0", Memory: out}}
			response = m.mustInfer(request)
			if !response.Outputs[0].InPlace() {
				t.Error("the output of an input in a region is not in its place")
			}
			response.Release()
			out.wantAll(5)
			m.writes(in)
			request.Places[0].Memory = in
			response = m.mustInfer(request)
			if !response.Outputs[0].InPlace() {
				t.Error("an input that is its own output is not in its place")
			}
			response.Release()
			in.wantAll(5)
			releaseInputs(request)

			marks := filepath.Join(t.TempDir(), "held")
			held := make(chan *infer.Response)
			out.Retain()
			go func() { held <- m.put(out, marks) }()
			testkit.Eventually(t, patience, func() bool { _, err := os.Stat(marks + ".begun"); return err == nil })
			out.Release()
			if err := os.WriteFile(marks+".over", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			response = <-held
			if !response.Outputs[0].InPlace() {
				t.Error("the output of a request that was under way is not in its place")
			}
			out.wantAll(2)
			response.Release()
			out.Release()
			in.Release()
			testkit.Eventually(t, patience, m.mapsNothing)
			if out.refs.Load() != 0 || in.refs.Load() != 0 {
				t.Errorf("the regions have %d and %d references, want none", out.refs.Load(), in.refs.Load())
			}
			testkit.Eventually(t, patience, func() bool { return m.mappings(out)+m.mappings(in) == 0 })
		})
	}
}

// TestTruncatedPlaces checks that a client that truncates the file of an output ends the stub's
// life, which does not count against the model. Afterwards the server itself writes to the region.
func TestTruncatedPlaces(t *testing.T) {
	r := newFixture(t, nil)
	m := r.plus()
	for losses := 1; losses <= process.HopelessLosses+1; losses++ {
		out := r.region(0o600)
		m.writes(out)
		m.put(out, "").Release() // its pages now count as present
		marks := filepath.Join(t.TempDir(), "held")
		held := make(chan *infer.Response)
		go func() { held <- m.put(out, marks) }()
		testkit.Eventually(t, patience, func() bool { _, err := os.Stat(marks + ".begun"); return err == nil })
		if err := out.file.Truncate(4096); err != nil {
			t.Fatal(err)
		}
		if losses%2 == 0 { // restore the size before the loss is examined; the pages are new
			if err := out.file.Truncate(regionSize); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(marks+".over", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		response := <-held
		if losses%2 == 0 {
			if response.Err != nil || !response.Outputs[0].InPlace() {
				t.Errorf("got response %+v, want the output in its place", response)
			}
			response.Release()
			out.wantAll(2)
			out.Release()
			continue
		}
		if response.Err == nil || response.Err.Error() != "truncated" {
			t.Errorf("got error %v, want that the region was truncated", response.Err)
		}
		if cause := r.lastCause((losses + 1) / 2); cause != "region" {
			t.Errorf("the loss has cause %s, want region", cause)
		}
		if m.model.Capabilities().Mapper.Writes(&infer.Place{Output: "OUT0", Memory: out}) || out.shared.Trusted() {
			t.Error("the region is still written by the stub, want copies")
		}
		response = m.put(out, "")
		if response.Err != nil || response.Outputs[0].InPlace() {
			t.Errorf("got response %+v, want the output here", response)
		}
		response.Release()
		out.Release()
	}
	if strings.Contains(r.log.String(), "again and again") {
		t.Error("the instance was given up")
	}
}

// TestOutputsOfANewStub checks that a lost stub's successor maps the regions again.
func TestOutputsOfANewStub(t *testing.T) {
	r := newFixture(t, nil)
	m := r.plus()
	out := r.region(0o600)
	m.writes(out)
	if response := m.put(out, "exits"); response.Err == nil || !strings.Contains(response.Err.Error(), "is not healthy") {
		t.Errorf("got response %+v, want that the stub is not healthy", response)
	}
	if cause := r.lastCause(1); cause != "exit" || !out.shared.Trusted() {
		t.Errorf("the loss has cause %s, and the region is trusted: %v; want exit and true", cause, out.shared.Trusted())
	}
	response := m.put(out, "")
	if response.Err != nil || response.Outputs[0].InPlace() {
		t.Errorf("got response %+v, want the output here", response)
	}
	response.Release()
	m.writes(out)
	response = m.put(out, "")
	if response.Err != nil || !response.Outputs[0].InPlace() {
		t.Errorf("got response %+v, want the output in its place", response)
	}
	response.Release()
	out.Release()
}

// TestSmallPlacesAndUnsafeFilesAreNotWritten checks that stubs write neither to small places nor to
// files that others can write to.
func TestSmallPlacesAndUnsafeFilesAreNotWritten(t *testing.T) {
	r := newFixture(t, nil)
	m := r.plus()
	open, good := r.region(0o666), r.region(0o600)
	for name, memory := range map[string]infer.Foreign{"of others": open, "small": smallRegion{good}} {
		for range 2 {
			if m.model.Capabilities().Mapper.Writes(&infer.Place{Output: "OUT0", Memory: memory}) {
				t.Errorf("an output is to be written: %s", name)
			}
		}
	}
	if !m.mapsNothing() {
		t.Error("a mapping was asked for, want none")
	}
	response := m.put(open, "")
	if response.Err != nil || response.Outputs[0].InPlace() {
		t.Errorf("got response %+v, want the output here", response)
	}
	response.Release()
	good.Release()
}

// TestStubsThatClaimOutputs checks that a stub that falsely reports a write harms only its own
// clients. A report about memory that no client wants written is a protocol error.
func TestStubsThatClaimOutputs(t *testing.T) {
	r := newFixtureWith(t, "", nil)
	r.host = &callHost{}
	m, err := r.openProgram("claims")
	if err != nil {
		t.Fatal(err)
	}
	out := r.region(0o600)
	m.writes(out)
	response := m.put(out, "")
	if response.Err != nil || !response.Outputs[0].InPlace() || response.Outputs[0].Size() != regionSize {
		t.Errorf("got response %+v, want an output in its place", response)
	}
	if copied, memory, err := response.Outputs[0].Memory.(infer.Foreign).Copy(t.Context()); err != nil || len(copied) != regionSize || copied[0] != 1 {
		t.Errorf("what lies in the place is %d bytes (%v), want %d", len(copied), err, regionSize)
	} else {
		memory.Release()
	}
	response.Release()
	out.wantAll(1)
	unhealthy := func(response *infer.Response) {
		t.Helper()
		if response.Err == nil || response.Err.Error() != "Stub process 'go_0_0' is not healthy." {
			t.Errorf("got response %+v, want that the stub is not healthy", response)
		}
	}
	unhealthy(m.put(out, "")) // another range
	m.writes(out)
	request := r.ones(out, "")
	request.Places = nil
	responses, _ := m.infer(request)
	releaseInputs(request)
	unhealthy(responses[0]) // not wanted at all
	m.wantBytes(1, "\x01\x01\x00\x00")
	if rules := r.counts.brokenRules(); rules["descriptor"] != 2 || len(rules) != 1 {
		t.Errorf("rules broken are %v, want that of descriptors twice", rules)
	}
	if !out.shared.Trusted() || out.refs.Load() != 1 {
		t.Errorf("the region is trusted: %v, with %d references; want true and one", out.shared.Trusted(), out.refs.Load())
	}
	out.Release()
}

// TestStormOfPlaces has clients register regions, get outputs there, and unregister or truncate
// them while the same stub serves others. Each gets its own bytes or an error with the reason, and
// no reference to a region is left.
func TestStormOfPlaces(t *testing.T) {
	r := newFixture(t, nil)
	m := r.plus()
	var clients sync.WaitGroup
	var inPlace atomic.Int64
	for i := range 3 {
		clients.Go(func() {
			for round := range 6 {
				out := r.region(0o600)
				truncates := (i+round)%3 == 0
				for k := range 6 {
					place := &infer.Place{Output: "OUT0", Memory: out}
					request := r.ones(out, "")
					if !m.model.Capabilities().Mapper.Writes(place) && k%2 == 0 {
						request.Places = nil
					}
					if truncates && k == 4 {
						_ = out.file.Truncate(4096)
					}
					responses, _ := m.infer(request)
					releaseInputs(request)
					response := responses[0]
					switch {
					case response.Err != nil:
						if text := response.Err.Error(); text != "truncated" && !strings.Contains(text, "is not healthy") {
							t.Errorf("got error %v", response.Err)
						}
					case response.Outputs[0].InPlace():
						inPlace.Add(1)
						out.wantAll(2)
						out.fill(1)
					case len(response.Outputs[0].Data) != regionSize || bytes.Count(response.Outputs[0].Data, []byte{2}) != regionSize:
						t.Error("the output has other bytes than the model made")
					}
					response.Release()
				}
				out.Release()
				if n := out.refs.Load(); n != 0 {
					t.Errorf("a region has %d references in the end, want none", n)
				}
			}
		})
	}
	clients.Wait()
	testkit.Eventually(t, patience, m.mapsNothing)
	if inPlace.Load() == 0 {
		t.Error("no output was written by the stub")
	}
}
