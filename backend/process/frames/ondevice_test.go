package frames

import (
	"errors"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// lender returns a stub's Lent with one allocation of 4096 bytes, number 3.
func lender(t *testing.T, p *peer) *cudaipc.Lent {
	t.Helper()
	lent := cudaipc.NewLent(p.channel.Arena(), nil)
	body := make([]byte, ipc.AllocationSize)
	ipc.PutAllocation(body, foreign.NewDevice(0, [16]byte{1}, 4096, foreign.Handle{2}))
	if err := lent.Receive(ipc.Frame{Kind: ipc.Lend, ID: 3, Body: body}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lent.Receive(ipc.Frame{Kind: ipc.Unlend, ID: 3}); err != nil {
			t.Errorf("the allocation is held still: %v", err)
		}
		lent.Close()
	})
	return lent
}

// TestStorageOfInputsOnDevices checks that inputs on devices stay there: in an allocation announced
// before the descriptor, or in the stub's own, with the permitted use. After a failed announcement
// or an undone frame, nothing is lent.
func TestStorageOfInputsOnDevices(t *testing.T) {
	borrow := func(t *testing.T, lent *cudaipc.Lent) *cudaipc.Memory {
		m, err := lent.Borrow(3, 1<<31, 1024, 2048)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for name, test := range map[string]struct {
		own, sole, client bool
		full              bool // sending frames fails
		want              ipc.Descriptor
	}{
		"another's":                          {sole: true, want: ipc.Descriptor{Region: ipc.InDevice, Offset: 1024, Length: 2048, Element: ipc.SoleReader, Mapping: 1}},
		"another's, which is read elsewhere": {want: ipc.Descriptor{Region: ipc.InDevice, Offset: 1024, Length: 2048, Mapping: 1}},
		"its own":                            {own: true, sole: true, want: ipc.Descriptor{Region: ipc.InOwnDevice, Offset: 1024, Length: 2048, Element: ipc.SoleReader, Mapping: 3}},
		"its own, which is read elsewhere":   {own: true, want: ipc.Descriptor{Region: ipc.InOwnDevice, Offset: 1024, Length: 2048, Mapping: 3}},
		"its own, while the ring is full":    {own: true, sole: true, full: true, want: ipc.Descriptor{Region: ipc.InOwnDevice, Offset: 1024, Length: 2048, Element: ipc.SoleReader, Mapping: 3}},
		"a client's":                         {client: true, want: ipc.Descriptor{Region: ipc.InDevice, Offset: 100, Length: 70_000, Element: ipc.ClientsBytes, Mapping: 1}},
		"another's, while the ring is full":  {sole: true, full: true},
		"a client's, while the ring is full": {client: true, full: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, other := newPeer(t, shm.Memfd{}), newPeer(t, shm.Memfd{})
			own, others := lender(t, p), lender(t, other)
			var told []ipc.Kind
			full := errors.New("the ring is full")
			announced := cudaipc.NewAnnounced(own, func(kind ipc.Kind, _ uint64, _ []byte) error {
				if test.full {
					return full
				}
				told = append(told, kind)
				return nil
			}, zerolog.Nop())
			defer announced.Close()
			p.encoder.Announced = announced
			p.encoder.TakesDevices = true

			var memory infer.Foreign
			client := newDeviceMemory(100, 70_000)
			switch {
			case test.client:
				memory = client
			case test.own:
				memory = borrow(t, own)
			default:
				memory = borrow(t, others)
			}
			if !test.sole && !test.client {
				memory.Retain()
				defer memory.Release()
			}
			in := infer.Tensor{Name: "IN0", DataType: infer.Uint8, Shape: []int64{memory.Size()}, Memory: memory}
			for turn := range 2 {
				err := p.encoder.plan([]*infer.Request{{Inputs: []infer.Tensor{in}}}, []uint64{1})
				if test.want.Region == 0 {
					if !errors.Is(err, full) {
						t.Errorf("got error %v, want that of the ring", err)
					}
				} else if err != nil {
					t.Fatal(err)
				} else {
					d := p.encoder.tensors[0]
					if d.Ticket == 0 {
						t.Error("it has no ticket")
					}
					got := ipc.Descriptor{Region: d.Region, Offset: d.Offset, Length: d.Length, Element: d.Element, Mapping: d.Mapping}
					if turn == 0 && !equal(&got, &test.want) {
						t.Errorf("got %+v, want %+v", got, test.want)
					}
					p.encoder.undo()
				}
				p.encoder.reset()
				if loans, _ := p.loans.Count(); loans != 0 {
					t.Errorf("%d loans are left", loans)
				}
			}
			if wants := !test.full && test.want.Region == ipc.InDevice; wants != slices.Equal(told, []ipc.Kind{ipc.Allocation}) || !wants && len(told) > 0 {
				t.Errorf("the stub was told %v", told)
			}
			memory.Release()
			if test.client && client.refs != 0 {
				t.Errorf("the client's memory has %d references more", client.refs)
			}
		})
	}
}

func equal(a, b *ipc.Descriptor) bool {
	return a.Region == b.Region && a.Offset == b.Offset && a.Length == b.Length && a.Element == b.Element && a.Mapping == b.Mapping
}
