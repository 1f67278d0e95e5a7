package frames

import (
	"errors"
	"os"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
)

var errGone = errors.New("truncated")

// clientMemory is a client's region of 70,000 bytes, from byte 100 on.
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

func (c *clientMemory) Copy() ([]byte, infer.Memory, error) {
	if c.gone {
		return nil, nil, errGone
	}
	return make([]byte, 70_000), nil, nil
}

// TestPlacesOfForeignInputs wants an input where its client has put it, if the stub has mapped
// that and it is trusted; else in a copy, and an error if there is nothing to copy.
func TestPlacesOfForeignInputs(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	mapped := true
	p.encoder.SetMapped(func(*shm.Shared) (uint32, bool) { return 5, mapped })
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
