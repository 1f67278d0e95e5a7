package process_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/shm"
)

const regionSize = 1 << 20

// clientRegion is a client's region and foreign memory over all of it, as provided by
// server/clientshm.
type clientRegion struct {
	fixture *fixture
	file    *os.File
	shared  *shm.Shared
	refs    atomic.Int64
	copies  atomic.Int64
}

// region creates a client's file filled with ones. The file is removed at the end of the test.
func (r *fixture) region(mode os.FileMode) *clientRegion {
	r.t.Helper()
	file, err := os.CreateTemp("/dev/shm", "nereid-process-test-")
	if err != nil {
		r.t.Skip(err)
	}
	c := &clientRegion{fixture: r, file: file}
	r.t.Cleanup(func() {
		_ = os.Remove(file.Name())
		_ = file.Close()
	})
	if err := file.Chmod(mode); err != nil {
		r.t.Fatal(err)
	}
	c.fill(1)
	c.shared = shm.NewShared(int(file.Fd()), 0, regionSize)
	c.refs.Store(1)
	return c
}

func (c *clientRegion) fill(with byte) {
	c.fixture.t.Helper()
	if _, err := c.file.WriteAt([]byte(strings.Repeat(string(rune(with)), regionSize)), 0); err != nil {
		c.fixture.t.Fatal(err)
	}
}

func (c *clientRegion) Retain()                      { c.refs.Add(1) }
func (c *clientRegion) Size() int64                  { return regionSize }
func (c *clientRegion) Shared() (*shm.Shared, int64) { return c.shared, 0 }
func (c *clientRegion) Truncated() error             { return infer.Errorf(infer.InvalidArg, "truncated") }

func (c *clientRegion) Release() {
	if c.refs.Add(-1) == 0 && c.shared != nil {
		c.shared.End()
	}
}

func (c *clientRegion) Copy(context.Context) ([]byte, infer.Memory, error) {
	c.copies.Add(1)
	block, err := c.fixture.pool.Alloc(regionSize)
	if err != nil {
		return nil, nil, err
	}
	if n, err := c.file.ReadAt(block.Bytes(), 0); n < regionSize {
		block.Release()
		return nil, nil, fmt.Errorf("%w: %w", c.Truncated(), err)
	}
	return block.Bytes(), block, nil
}

// request returns a request whose input is in the region.
func (c *clientRegion) request(id string) *infer.Request {
	c.Retain()
	return &infer.Request{ID: id, Inputs: []infer.Tensor{
		{Name: "IN0", DataType: infer.Uint8, Shape: []int64{1, regionSize}, Memory: c},
	}}
}

// sumsModel responds with the sum of its input. A request's id selects other behaviour.
const sumsModel = `
import os, signal, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x, how = request.inputs()[0].as_numpy(), request.request_id()
            if how == "exits":
                os._exit(3)
            if how == "misses":
                os.kill(os.getpid(), signal.SIGBUS)
            if how == "writes":
                x[:] = 7
            if how == "keeps":
                self.kept = x
            if how.startswith("/"):
                open(how + ".begun", "w").close()
                while not os.path.exists(how + ".over"):
                    int(x.sum(dtype=np.int64))
            total = np.array([int(x.sum(dtype=np.int64))]).view(np.uint8).reshape(1, 8)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", total)]))
        return responses
`

func (r *fixture) sums() *running {
	r.t.Helper()
	m, err := r.open(r.writeModel("sums", sumsModel), modelConfig("sums", 1, infer.Uint8))
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// sum returns a region's sum, as computed by the model.
func (m *running) sum(c *clientRegion, id string) int {
	m.fixture.t.Helper()
	request := c.request(id)
	defer releaseInputs(request)
	response := m.mustInfer(request)
	defer response.Release()
	return int(binary.LittleEndian.Uint64(response.Outputs[0].Data))
}

// maps waits until the model's stub has mapped the region.
func (m *running) maps(c *clientRegion) {
	m.fixture.t.Helper()
	request := c.request("")
	defer releaseInputs(request)
	testkit.Eventually(m.fixture.t, patience, func() bool { return m.model.Capabilities().Mapper.Maps(&request.Inputs[0]) })
}

// mappings returns the number of mappings of a region in the model's stub.
func (m *running) mappings(c *clientRegion) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", m.pid()))
	if err != nil {
		return -1
	}
	return strings.Count(string(b), c.file.Name())
}

// mapsNothing reports whether the model's stub has been told of no region.
func (m *running) mapsNothing() bool {
	held, alive := m.instance().Held()
	return alive && held.Regions == 0
}

// TestStubsMapRegions checks that an input in a client's region is not copied once the stub has
// mapped it. After the region's end, the mapping ends with its last request.
func TestStubsMapRegions(t *testing.T) {
	pythons := testkit.Pythons(t)
	for _, python := range slices.Compact([]testkit.Interpreter{pythons[0], pythons[len(pythons)-1]}) {
		t.Run(python.String(), func(t *testing.T) {
			r := newFixtureWith(t, python.Path, nil)
			m := r.sums()
			c := r.region(0o600)
			if got := m.sum(c, ""); got != regionSize || c.copies.Load() != 1 || m.mappings(c) != 0 {
				t.Errorf("before it is mapped: sum %d, %d copies, %d mappings; want %d, one and none", got, c.copies.Load(), m.mappings(c), regionSize)
			}
			m.maps(c)
			c.fill(2)
			for _, step := range []struct {
				id   string
				want int
			}{{"", 2}, {"writes", 7}, {"", 2}, {"keeps", 2}, {"", 2}} {
				if got := m.sum(c, step.id); got != step.want*regionSize {
					t.Errorf("request %q: sum %d, want %d", step.id, got, step.want*regionSize)
				}
			}
			if n := m.mappings(c); c.copies.Load() != 1 || n == 0 {
				t.Errorf("%d copies were made and there are %d mappings, want one and some", c.copies.Load(), n)
			}
			testkit.Eventually(t, patience, func() bool { return c.refs.Load() == 1 })

			// Unregistered while a request reads it: the request continues, then the mapping ends.
			marks := filepath.Join(t.TempDir(), "held")
			sums := make(chan int)
			go func() { sums <- m.sum(c, marks) }()
			testkit.Eventually(t, patience, func() bool { _, err := os.Stat(marks + ".begun"); return err == nil })
			c.Release()
			if err := os.WriteFile(marks+".over", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := <-sums; got != 2*regionSize {
				t.Errorf("sum %d, want %d", got, 2*regionSize)
			}
			testkit.Eventually(t, patience, m.mapsNothing)
			if got := c.refs.Load(); got != 0 {
				t.Errorf("the region has %d references, want none", got)
			}
		})
	}
}

// TestMappingsGoWithTheRegion checks that a stub that keeps no input has no mapping of an ended
// region.
func TestMappingsGoWithTheRegion(t *testing.T) {
	r := newFixture(t, nil)
	m := r.sums()
	c := r.region(0o600)
	m.maps(c)
	m.sum(c, "")
	if m.mappings(c) != 1 {
		t.Errorf("%d mappings, want one", m.mappings(c))
	}
	c.Release()
	testkit.Eventually(t, patience, func() bool { return m.mappings(c) == 0 })
}

// TestRegionsOfANewStub checks that a lost stub's successor maps the regions again.
func TestRegionsOfANewStub(t *testing.T) {
	r := newFixture(t, nil)
	m := r.sums()
	c := r.region(0o600)
	m.maps(c)
	request := c.request("exits")
	responses, _ := m.infer(request)
	releaseInputs(request)
	if responses[0].Err == nil || !strings.Contains(responses[0].Err.Error(), "is not healthy") {
		t.Errorf("got error %v, want that the stub is not healthy", responses[0].Err)
	}
	if cause := r.lastCause(1); cause != "exit" {
		t.Errorf("the loss has cause %s, want exit", cause)
	}
	before := c.copies.Load()
	if got := m.sum(c, ""); got != regionSize || c.copies.Load() != before+1 {
		t.Errorf("sum %d with %d copies, want %d with one", got, c.copies.Load()-before, regionSize)
	}
	m.maps(c)
	if got := m.sum(c, ""); got != regionSize || c.copies.Load() != before+1 {
		t.Errorf("sum %d with %d copies, want %d with one", got, c.copies.Load()-before, regionSize)
	}
	c.Release()
}

// TestTruncatedRegion checks that a client that truncates its file ends the life that reads it.
// This does not count against the model, and the region is copied from then on.
func TestTruncatedRegion(t *testing.T) {
	r := newFixture(t, nil)
	m := r.sums()
	for losses := 1; losses <= process.HopelessLosses+1; losses++ {
		c := r.region(0o600)
		m.maps(c)
		if err := c.file.Truncate(4096); err != nil {
			t.Fatal(err)
		}
		request := c.request("")
		responses, _ := m.infer(request)
		if responses[0].Err == nil || responses[0].Err.Error() != "truncated" {
			t.Errorf("got error %v, want that the region was truncated", responses[0].Err)
		}
		if cause := r.lastCause(losses); cause != "region" {
			t.Errorf("the loss has cause %s, want region", cause)
		}
		if m.model.Capabilities().Mapper.Maps(&request.Inputs[0]) || c.shared.Trusted() {
			t.Error("the region is still mapped, want copies")
		}
		releaseInputs(request)
		c.fill(3)
		before := c.copies.Load()
		if got := m.sum(c, ""); got != 3*regionSize || c.copies.Load() != before+1 {
			t.Errorf("sum %d with %d copies, want %d with one", got, c.copies.Load()-before, 3*regionSize)
		}
		c.Release()
	}
	if strings.Contains(r.log.String(), "again and again") {
		t.Error("the instance was given up")
	}
}

// TestSignalWithoutATruncatedRegion checks that the same signal in a model without a region in use
// is an ordinary loss.
func TestSignalWithoutATruncatedRegion(t *testing.T) {
	r := newFixture(t, nil)
	m := r.sums()
	c := r.region(0o600)
	m.maps(c)
	request := r.small()
	request.ID = "misses"
	if responses, _ := m.infer(request); responses[0].Err == nil {
		t.Error("got no error of a stub that was lost")
	}
	if cause := r.lastCause(1); cause != "exit" || !c.shared.Trusted() {
		t.Errorf("the loss has cause %s, and the region is trusted: %v; want exit and true", cause, c.shared.Trusted())
	}
	c.Release()
}

// TestUnsafeFilesAndSmallInputsAreNotMapped checks that files that others can write to, BYTES, and
// small inputs are not mapped.
func TestUnsafeFilesAndSmallInputsAreNotMapped(t *testing.T) {
	r := newFixture(t, nil)
	m := r.sums()
	open := r.region(0o666)
	if open.shared != nil {
		t.Error("a file that all may write into is to be mapped")
	}
	if got := m.sum(open, ""); got != regionSize || open.copies.Load() != 1 {
		t.Errorf("sum %d with %d copies, want %d with one", got, open.copies.Load(), regionSize)
	}
	c := r.region(0o600)
	m.maps(c)
	for name, tensor := range map[string]infer.Tensor{
		"BYTES":     {DataType: infer.Bytes, Shape: []int64{1}, Memory: c},
		"of others": {DataType: infer.Uint8, Shape: []int64{1, regionSize}, Memory: open},
		"small":     {DataType: infer.Uint8, Shape: []int64{1, process.MapFrom - 1}, Memory: smallRegion{c}},
		"the heap":  {DataType: infer.Uint8, Shape: []int64{1, regionSize}, Data: make([]byte, regionSize)},
	} {
		if m.model.Capabilities().Mapper.Maps(&tensor) {
			t.Errorf("an input is mapped: %s", name)
		}
	}
	c.Release()
	if os.Geteuid() == 0 {
		others := r.region(0o600)
		if err := unix.Fchown(int(others.file.Fd()), 12345, -1); err != nil {
			t.Skip(err)
		}
		if shm.NewShared(int(others.file.Fd()), 0, regionSize) != nil {
			t.Error("a file of another user is to be mapped")
		}
	}
}

type smallRegion struct{ *clientRegion }

func (smallRegion) Size() int64 { return process.MapFrom - 1 }
