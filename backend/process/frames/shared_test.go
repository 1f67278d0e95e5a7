package frames

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
)

var errGone = errors.New("truncated")

// clientMemory is a client's region of 70,000 bytes, starting at byte 100.
type clientMemory struct {
	shared *shm.Shared
	refs   int
	gone   bool
}

func newClientMemory(t *testing.T) *clientMemory {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "region")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &clientMemory{shared: shm.NewShared(int(file.Fd()), 0, 1<<20), refs: 1}
}

func (c *clientMemory) Retain()                      { c.refs++ }
func (c *clientMemory) Release()                     { c.refs-- }
func (c *clientMemory) Size() int64                  { return 70_000 }
func (c *clientMemory) Shared() (*shm.Shared, int64) { return c.shared, 100 }
func (c *clientMemory) Truncated() error             { return errGone }

func (c *clientMemory) Copy(context.Context) ([]byte, infer.Memory, error) {
	if c.gone {
		return nil, nil, errGone
	}
	return make([]byte, 70_000), nil, nil
}

// TestStorageOfForeignInputs checks that an input stays in its client's region if the stub has
// mapped it and it is trusted. Otherwise it is copied, or an error if the region is gone.
func TestStorageOfForeignInputs(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	mapped := true
	p.encoder.Mapped = func(_ *shm.Shared, writable bool) (uint32, bool) { return 5, mapped && !writable }
	place := func(c *clientMemory) (*ipc.Descriptor, error) {
		in := infer.Tensor{Name: "IN0", DataType: infer.Uint8, Shape: []int64{70_000}, Memory: c}
		if err := p.encoder.plan([]*infer.Request{{Inputs: []infer.Tensor{in}}}, []uint64{1}); err != nil {
			return nil, err
		}
		return &p.encoder.tensors[0], nil
	}
	undone := func(c *clientMemory) {
		t.Helper()
		p.encoder.undo()
		if loans, _ := p.loans.Count(); loans != 0 || c.refs != 1 || p.pool.Stats().Blocks != 0 {
			t.Errorf("%d loans, %d references and %d blocks after it was taken back, want none, one and none", loans, c.refs, p.pool.Stats().Blocks)
		}
	}
	c := newClientMemory(t)
	d, err := place(c)
	if err != nil || d.Region != ipc.InClient || d.Offset != 100 || d.Length != 70_000 || d.Mapping != 5 || d.Ticket == 0 || c.refs != 2 {
		t.Fatalf("got %+v with error %v and %d references, want the region itself", d, err, c.refs)
	}
	if _, _, err := p.loans.Borrow(shm.Ticket(d.Ticket), 100, 10); err == nil {
		t.Error("the stub may pass an input on that lies in a client's memory")
	}
	body := make([]byte, p.encoder.size)
	p.encoder.write(body, []*infer.Request{{Inputs: make([]infer.Tensor, 1)}})
	ipctest.Want(t, "execute_region", ipc.Execute, 1, body)
	undone(c)

	for name, change := range map[string]func(){"not mapped": func() { mapped = false }, "distrusted": func() { mapped = true; c.shared.Distrust() }} {
		change()
		if d, err := place(c); err != nil || d.Region != ipc.InRequests || d.Length != 70_000 || d.Mapping != 0 || c.refs != 1 {
			t.Errorf("%s: got %+v with error %v, want a copy", name, d, err)
		}
		undone(c)
	}
	c.gone = true
	if _, err := place(c); !errors.Is(err, errGone) {
		t.Errorf("got error %v, want %v", err, errGone)
	}
	undone(c)
}

// mappedForOutputs treats every region as mapped for writing, with number 5.
func mappedForOutputs(_ *shm.Shared, writable bool) (uint32, bool) { return 5, writable }

// TestPlacesOfOutputs checks that a stub gets the places of outputs in regions that it has mapped,
// and no others.
func TestPlacesOfOutputs(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	mapped := true
	p.encoder.Mapped = func(_ *shm.Shared, writable bool) (uint32, bool) { return 5, mapped && writable }
	c := newClientMemory(t)
	small := &smallMemory{newClientMemory(t)}
	requests := []*infer.Request{
		{ID: "a", Outputs: []string{"OUT1", "OUT0"}, Places: []infer.Place{{Output: "OUT1", Memory: c}, {Output: "OUT0", Memory: small}, {Output: "NONE", Memory: c}}},
		{Places: []infer.Place{{Output: "OUT3", Memory: c}, {Output: "OUT0", Memory: c}}},
	}
	plan := func() []ipc.Place {
		t.Helper()
		if err := p.encoder.plan(requests, []uint64{1, 2}); err != nil {
			t.Fatal(err)
		}
		return p.encoder.wanted
	}
	index := func(name string) uint16 { i, _ := p.encoder.Names.outputIndex(name); return i }
	want := []ipc.Place{
		{Name: index("OUT1"), Region: 5, Offset: 100, Length: 70_000},
		{Name: index("OUT3"), Region: 5, Offset: 100, Length: 70_000},
		{Name: index("OUT0"), Region: 5, Offset: 100, Length: 70_000},
	}
	if got := plan(); !slices.Equal(got, want) {
		t.Errorf("got places %+v, want %+v", got, want)
	}
	body := make([]byte, p.encoder.size)
	p.encoder.write(body, requests)
	ipctest.Want(t, "execute_places", ipc.Execute, 1, body)
	mapped = false
	if got := plan(); len(got) != 0 {
		t.Errorf("the stub is told of %+v, which it has not mapped", got)
	}
	mapped = true
	c.shared.Distrust()
	if got := plan(); len(got) != 0 || c.refs != 1 {
		t.Errorf("the stub is told of %+v, which is not trusted; %d references, want one", got, c.refs)
	}
}

// smallMemory is a place that is too small to be worth sending.
type smallMemory struct{ *clientMemory }

func (smallMemory) Size() int64 { return WriteFrom - 1 }

// claim returns a stub's report that it has written 65,600 bytes to OUT0's place. change, if not
// nil, falsifies it.
func claim(change func(*ipc.Descriptor)) ipc.Descriptor {
	d := ipc.Descriptor{Name: 1, Type: uint8(infer.FP32), Region: ipc.InClient, Offset: 100, Length: 65_600, Mapping: 5, Shape: []int64{4, 4100}}
	if change != nil {
		change(&d)
	}
	return d
}

// TestClaimsAreChecked checks that a stub's report is accepted only if the client wants that output
// there. Otherwise it is a protocol error.
func TestClaimsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*ipc.Descriptor)
		changes func(p *peer, c *clientMemory) []infer.Place
		good    bool
	}{
		"as told":                    {good: true},
		"all of the place":           {change: func(d *ipc.Descriptor) { d.Length, d.Shape = 70_000, []int64{17_500} }, good: true},
		"nothing":                    {change: func(d *ipc.Descriptor) { d.Length, d.Shape = 0, []int64{0} }, good: true},
		"more than the place has":    {change: func(d *ipc.Descriptor) { d.Length, d.Shape = 70_004, []int64{17_501} }},
		"more than shape and type":   {change: func(d *ipc.Descriptor) { d.Length += 4 }},
		"less than shape and type":   {change: func(d *ipc.Descriptor) { d.Length -= 4 }},
		"another offset":             {change: func(d *ipc.Descriptor) { d.Offset = 0 }},
		"an offset that wraps":       {change: func(d *ipc.Descriptor) { d.Offset = math.MaxUint64 }},
		"another region":             {change: func(d *ipc.Descriptor) { d.Mapping = 4 }},
		"no region":                  {change: func(d *ipc.Descriptor) { d.Mapping = 0 }},
		"a ticket":                   {change: func(d *ipc.Descriptor) { d.Ticket = 1 << 32 }},
		"another output":             {change: func(d *ipc.Descriptor) { d.Name = 2 }},
		"an input":                   {change: func(d *ipc.Descriptor) { d.Name = 0 }},
		"strings":                    {change: func(d *ipc.Descriptor) { d.Type = uint8(infer.Bytes) }},
		"a shape that overflows":     {change: func(d *ipc.Descriptor) { d.Shape = []int64{math.MaxInt64, 2} }},
		"it is not wanted":           {changes: func(*peer, *clientMemory) []infer.Place { return nil }},
		"it is not mapped":           {changes: func(p *peer, c *clientMemory) []infer.Place { p.decoder.Mapped = nil; return wantedIn(c) }},
		"it is mapped for inputs":    {changes: func(p *peer, c *clientMemory) []infer.Place { p.decoder.Mapped = forInputs; return wantedIn(c) }},
		"its file is not to be used": {changes: func(_ *peer, c *clientMemory) []infer.Place { c.shared = nil; return wantedIn(c) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, shm.Memfd{})
			p.decoder.Mapped = mappedForOutputs
			c := newClientMemory(t)
			places := wantedIn(c)
			if test.changes != nil {
				places = test.changes(p, c)
			}
			body := responseBody(claim(test.change))
			var parsed ipc.ResponseBody
			_, err := ipc.ParseResponse(body, &parsed)
			var r infer.Response
			if err == nil {
				err = p.decoder.Response(&parsed, &ipc.Frame{Body: body}, "m", places, &r, new(Kept))
			}
			var broken *ipc.ProtocolError
			if test.good {
				if err != nil || r.Err != nil || !r.Outputs[0].InPlace() || uint64(r.Outputs[0].Size()) != parsed.Outputs[0].Length || c.refs != 2 {
					t.Errorf("got error %v, response %+v and %d references, want the output in its place", err, r, c.refs)
				}
			} else if !errors.As(err, &broken) {
				t.Errorf("got error %v, want a protocol error", err)
			}
			r.Release()
			if c.refs != 1 {
				t.Errorf("%d references, want one", c.refs)
			}
		})
	}
}

func wantedIn(c *clientMemory) []infer.Place { return []infer.Place{{Output: "OUT0", Memory: c}} }

func forInputs(_ *shm.Shared, writable bool) (uint32, bool) { return 5, !writable }

// TestInputsOfModelsAreNotClaims checks that an input of a BLS request cannot be in a client's
// place.
func TestInputsOfModelsAreNotClaims(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	p.decoder.Mapped = mappedForOutputs
	var request infer.Request
	var broken *ipc.ProtocolError
	if _, err := p.decoder.Request(&ipc.InferBody{RequestBody: ipc.RequestBody{Inputs: []ipc.Descriptor{claim(nil)}}}, new(ipc.Frame), &request, new(Kept), 0); !errors.As(err, &broken) {
		t.Errorf("got error %v, want a protocol error", err)
	}
}
