package frames

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// TestStorageOfInputs checks where inputs are stored: small ones in the frame, blocks of the pool
// in place, all others in a copy.
func TestStorageOfInputs(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	block, err := p.pool.Alloc(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Release()
	for name, test := range map[string]struct {
		tensor infer.Tensor
		region uint32
		own    bool // the block itself
	}{
		"nothing":                  {infer.Tensor{}, ipc.InFrame, false},
		"small":                    {infer.Tensor{Data: make([]byte, ipc.MaxInline)}, ipc.InFrame, false},
		"small, of a block":        {infer.Tensor{Data: block.Bytes()[:8], Memory: block}, ipc.InFrame, false},
		"large, of the heap":       {infer.Tensor{Data: make([]byte, ipc.MaxInline+1)}, ipc.InRequests, false},
		"a block":                  {infer.Tensor{Data: block.Bytes(), Memory: block}, ipc.InRequests, true},
		"the beginning of a block": {infer.Tensor{Data: block.Bytes()[:5000], Memory: block}, ipc.InRequests, true},
		"the end of a block":       {infer.Tensor{Data: block.Bytes()[8:], Memory: block}, ipc.InRequests, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := test.tensor
			in.Name, in.DataType, in.Shape = "IN0", infer.Uint8, []int64{int64(len(in.Data))}
			if err := p.encoder.plan([]*infer.Request{{Inputs: []infer.Tensor{in}}}, []uint64{1}); err != nil {
				t.Fatal(err)
			}
			d := p.encoder.tensors[0]
			if d.Region != test.region || d.Length != uint64(len(in.Data)) || (d.Ticket != 0) != (d.Region == ipc.InRequests) {
				t.Errorf("got %v with ticket %d, want region %d and %d bytes", &d, d.Ticket, test.region, len(in.Data))
			}
			if own := d.Region == ipc.InRequests && d.Offset == block.Offset(); own != test.own {
				t.Errorf("the block itself is lent: %t, want %t", own, test.own)
			}
			p.encoder.undo()
			if loans, _ := p.loans.Count(); loans != 0 || p.pool.Stats().Blocks != 1 {
				t.Errorf("%d loans and %d blocks after it was taken back, want none and the test's", loans, p.pool.Stats().Blocks)
			}
		})
	}
}

// TestNothingStaysLentAfterAFailedFrame checks that nothing stays lent, whichever way a frame with
// a lent block fails.
func TestNothingStaysLentAfterAFailedFrame(t *testing.T) {
	large := infer.Tensor{Name: "IN0", DataType: infer.Uint8, Shape: []int64{8192}, Data: make([]byte, 8192)}
	huge := infer.Tensor{Name: "OUT0", DataType: infer.Uint8, Shape: []int64{600 << 10}, Data: make([]byte, 600<<10)}
	bad := large
	bad.Memory = (*shm.Block)(nil) // using it panics, like a bug in the server
	var written atomic.Uint64
	execute := func(e *Encoder, inputs ...infer.Tensor) error {
		_, _, err := e.Execute(1, []*infer.Request{{Inputs: inputs}}, []uint64{1}, false, &written, func(*shm.Group) {})
		return err
	}
	for name, fail := range map[string]func(p *peer) error{
		"an input without a name": func(p *peer) error {
			stranger := large
			stranger.Name = "IN1"
			return execute(p.encoder, large, stranger)
		},
		"no room for an input": func(p *peer) error {
			second := huge
			second.Name = "IN0"
			return execute(p.encoder, large, second, second)
		},
		"a panic": func(p *peer) (err error) {
			defer func() {
				if recover() != nil {
					err = errors.New("panic")
				}
			}()
			return execute(p.encoder, large, bad)
		},
		"a closed channel": func(p *peer) error {
			p.channel.Close()
			return execute(p.encoder, large)
		},
		"no loans any more": func(p *peer) error {
			p.loans.Close()
			return execute(p.encoder, large)
		},
		"no room for an output": func(p *peer) error {
			_, err := p.encoder.Prepare(&infer.Response{Outputs: []infer.Tensor{huge, huge}})
			return err
		},
		"a response to a closed channel": func(p *peer) error {
			r, err := p.encoder.Prepare(&infer.Response{Outputs: []infer.Tensor{huge}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Release()
			p.channel.Close()
			return r.Send(1)
		},
		"a spilled body for a closed channel": func(p *peer) error {
			p.channel.Close()
			return p.encoder.Send(ipc.Result, 1, make([]byte, ipc.MaxInlineBody+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, shm.Memfd{})
			if err := fail(p); err == nil {
				t.Error("got no error")
			}
			if loans, _ := p.loans.Count(); loans != 0 {
				t.Errorf("%d loans are left, want none", loans)
			}
			if n := p.pool.Stats().Blocks; n != 0 {
				t.Errorf("%d blocks are left, want none", n)
			}
			if written.Load() != 0 {
				t.Error("the batch counts as written")
			}
		})
	}
}

// TestCrowdedArenaCopiesThenRefuses lends more and more of the arena. Outputs are passed on in
// place, then copied, then refused once there is no room for copies and little left to lend.
func TestCrowdedArenaCopiesThenRefuses(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	output := func(n int64) *ipc.ResponseBody {
		return &ipc.ResponseBody{Flags: ipc.FlagPresent | ipc.FlagFinal, Outputs: []ipc.Descriptor{{
			Name: 1, Type: uint8(infer.Uint8), Region: ipc.InArena, Offset: shm.ArenaOffset, Length: uint64(n), Shape: []int64{n},
		}}}
	}
	if _, err := p.files.Up.WriteAt(bytes.Repeat([]byte{7}, peerArena), shm.ArenaOffset); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		lent   uint64 // bytes of the arena, lent to others
		copied int64  // bytes of copies held by others
		want   string // the type of memory; "" if refused
	}{
		{0, 0, "extent"},
		{peerArena / 4, 0, "extent"},
		{peerArena/4 + 1, 0, "copy"},
		{peerArena/4 + 1, peerArena, "extent"},
		{peerArena * 3 / 4, peerArena, "extent"},
		{peerArena*3/4 + 1, peerArena, ""},
		{peerArena, 0, "copy"},
	} {
		others, _, err := p.channel.Arena().Lend(0, shm.ArenaOffset, test.lent)
		if err != nil {
			t.Fatal(err)
		}
		p.decoder.copies.used.Add(test.copied)
		var r infer.Response
		if err := p.decoder.Response(output(8192), new(ipc.Frame), "m", nil, &r, new(Kept)); err != nil {
			t.Fatal(err)
		}
		got := ""
		if r.Err == nil {
			switch r.Outputs[0].Memory.(type) {
			case *shm.Extent:
				got = "extent"
			case *privateCopy:
				got = "copy"
			}
			if !bytes.Equal(r.Outputs[0].Data, bytes.Repeat([]byte{7}, 8192)) {
				t.Error("the output has other bytes than the stub has written")
			}
		} else if r.Err.Code != infer.Unavailable || len(r.Outputs) != 0 {
			t.Errorf("got error %v of code %d with %d outputs, want one of code Unavailable", r.Err, r.Err.Code, len(r.Outputs))
		}
		if got != test.want {
			t.Errorf("with %d bytes lent and %d copied: got %q, want %q", test.lent, test.copied, got, test.want)
		}
		r.Release()
		p.decoder.copies.used.Add(-test.copied)
		others.Release()
	}
	// A model that passes on an input releases it at once, so it is not copied first.
	others, _, err := p.channel.Arena().Lend(0, shm.ArenaOffset, peerArena)
	if err != nil {
		t.Fatal(err)
	}
	defer others.Release()
	var request infer.Request
	refusal, err := p.decoder.Request(&ipc.InferBody{RequestBody: ipc.RequestBody{Inputs: output(8192).Outputs}}, new(ipc.Frame), &request, new(Kept), 0)
	if refusal != nil || err != nil {
		t.Fatalf("got refusal %v, error %v, want none", refusal, err)
	}
	if _, ok := request.Inputs[0].Memory.(*shm.Extent); !ok {
		t.Errorf("got the input in %T, want it where it lies", request.Inputs[0].Memory)
	}
	request.Inputs[0].Release()
}

// FuzzResponse decodes arbitrary RESPONSE bodies. The result is a protocol error or matches the
// descriptors, and nothing is held after its release.
func FuzzResponse(f *testing.F) {
	outputs := []ipc.Descriptor{
		{Name: 1, Type: uint8(infer.Uint8), Region: ipc.InArena, Offset: shm.ArenaOffset, Length: 8192, Shape: []int64{8192}},
		{Name: 2, Type: uint8(infer.Bytes), Region: ipc.InArena, Offset: shm.ArenaOffset, Length: 12, Shape: []int64{2}},
		{Name: 3, Type: uint8(infer.FP32), Region: ipc.InRequests, Length: 4096, Ticket: 1 << 32, Shape: []int64{2, 512}},
		{Name: 4, Type: uint8(infer.Uint8), Region: ipc.InFrame, Offset: ipc.HeaderSize, Length: 8, Shape: []int64{8}},
	}
	for i := range outputs {
		f.Add(responseBody(outputs[i:]...), i%2 == 0)
	}
	for _, d := range []ipc.Descriptor{claim(nil), claim(func(d *ipc.Descriptor) { d.Offset++ }), claim(func(d *ipc.Descriptor) { d.Mapping = 6 })} {
		f.Add(responseBody(d), false)
	}
	onDevice := ipc.Descriptor{Name: 2, Type: uint8(infer.Uint8), Region: ipc.InDevice, Offset: 64, Length: 4000, Ticket: 1<<31 | 3, Mapping: 1, Shape: []int64{4000}}
	for _, change := range []func(*ipc.Descriptor){
		func(*ipc.Descriptor) {},
		func(d *ipc.Descriptor) { d.Offset = 97 },
		func(d *ipc.Descriptor) { d.Mapping = 2 },
		func(d *ipc.Descriptor) { d.Type = uint8(infer.Bytes) },
		func(d *ipc.Descriptor) { d.Name = 3 }, // may not stay on the device
		func(d *ipc.Descriptor) { d.Region = ipc.InOwnDevice },
	} {
		d := onDevice
		change(&d)
		f.Add(responseBody(d, outputs[3]), false)
		f.Add(responseBody(d), true)
	}
	for _, change := range []func(*ipc.Descriptor){
		func(*ipc.Descriptor) {}, func(d *ipc.Descriptor) { d.Offset++ }, func(d *ipc.Descriptor) { d.Mapping = 2 }, func(d *ipc.Descriptor) { d.Name = 1 },
	} {
		d := claimThere(func(d *ipc.Descriptor) { d.Name = 3 })
		change(&d)
		f.Add(responseBody(d, outputs[3]), false)
	}
	f.Add(responseBody(outputs[0], outputs[3], ipc.Descriptor{Name: 9, Type: uint8(infer.Uint8), Shape: []int64{0}}), false)
	f.Fuzz(func(t *testing.T, body []byte, named bool) {
		var backing shm.Backing = shm.Memfd{}
		if named {
			backing = shm.Named{Prefix: "nereid_test_frames_"}
		}
		p := newPeer(t, backing)
		block, err := p.pool.Alloc(8192)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := p.loans.Lend(block); !ok {
			t.Fatal("new loans lend nothing")
		}
		block.Release()
		var parsed ipc.ResponseBody
		if _, err := ipc.ParseResponse(body, &parsed); err != nil {
			return
		}
		var r infer.Response
		c := newClientMemory(t)
		p.decoder.Mapped = mappedForOutputs
		lent := cudaipc.NewLent(p.channel.Arena(), nil)
		defer lent.Close()
		allocation := make([]byte, ipc.AllocationSize)
		binary.LittleEndian.PutUint64(allocation[8:], 4096)
		if err := lent.Receive(ipc.Frame{Kind: ipc.Lend, ID: 1, Body: allocation}); err != nil {
			t.Fatal(err)
		}
		if !named { // otherwise it lends nothing
			p.decoder.Devices = lent
		}
		stub, m := newAnnouncer(), newDeviceMemory(100, 70_000)
		if _, err := stub.known.Announce(m.allocation); err != nil {
			t.Fatal(err)
		}
		p.decoder.Announced = stub.known
		places := []infer.Place{{Output: "OUT0", Memory: c}, {Output: "OUT1", OnDevice: true}, {Output: "OUT2", Memory: m}}
		err = p.decoder.Response(&parsed, &ipc.Frame{Body: body}, "m", places, &r, new(Kept))
		var broken *ipc.ProtocolError
		if err != nil && !errors.As(err, &broken) {
			t.Errorf("got error %v, want a protocol error", err)
		}
		if err == nil && r.Err == nil {
			if len(r.Outputs) != len(parsed.Outputs) {
				t.Errorf("got %d outputs, want %d", len(r.Outputs), len(parsed.Outputs))
			}
			for i := range r.Outputs {
				if uint64(r.Outputs[i].Size()) != parsed.Outputs[i].Length {
					t.Errorf("output %d has %d bytes, want %d", i, r.Outputs[i].Size(), parsed.Outputs[i].Length)
				}
				if name := r.Outputs[i].Name; r.Outputs[i].InPlace() && (name != "OUT0" && name != "OUT2" || r.Outputs[i].Size() > 70_000) {
					t.Errorf("output %d, %q of %d bytes, is taken to be in the place of OUT0, or of OUT2", i, name, r.Outputs[i].Size())
				}
			}
		}
		r.Release()
		if err := lent.Receive(ipc.Frame{Kind: ipc.Unlend, ID: 1}); err != nil {
			t.Errorf("the allocation is held still: %v", err)
		}
		if c.refs != 1 || m.refs != 1 {
			t.Errorf("the places have %d and %d references, want one each", c.refs, m.refs)
		}
	})
}

// responseBody returns the body of a final RESPONSE.
func responseBody(outputs ...ipc.Descriptor) []byte {
	body := make([]byte, 8+ipc.ResponseSize) // no tickets
	head := ipc.ResponseHead{Flags: ipc.FlagPresent | ipc.FlagFinal, Outputs: uint16(len(outputs))}
	head.Put(body[8:])
	for i := range outputs {
		at := len(body)
		body = append(body, make([]byte, outputs[i].Size())...)
		outputs[i].Put(body[at:])
	}
	return body
}

// TestEncoderKeepsNoLongTraces checks that the encoder does not keep a large buffer for a batch
// with a long trace.
func TestEncoderKeepsNoLongTraces(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	var written, number atomic.Uint64
	for _, state := range []string{strings.Repeat("x", 2*keptTraces), ""} {
		request := &infer.Request{Trace: trace.New(trace.Config{IDs: &number, TraceID: trace.TraceID{1}, State: state})}
		if _, _, err := p.encoder.Execute(1, []*infer.Request{request}, []uint64{1}, false, &written, func(*shm.Group) {}); err != nil {
			t.Fatal(err)
		}
		if got := cap(p.encoder.traces); got > keptTraces {
			t.Errorf("got a buffer of %d bytes, want at most %d", got, keptTraces)
		}
	}
}

// TestLongParametersTakeNoHeap encodes parameters whose text is six times as long, for a batch and
// a response. The text goes into memory charged elsewhere, not to the heap.
func TestLongParametersTakeNoHeap(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	const n, size = 16, 1 << 20
	long := []infer.Parameter{{Name: "p", Kind: infer.StringParameter, String: strings.Repeat("\x01", size)}}
	requests := make([]*infer.Request, n)
	for i := range requests {
		requests[i] = &infer.Request{Parameters: long}
	}
	body := make([]byte, 6*(n+1)*size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := p.encoder.plan(requests, make([]uint64, n)); err != nil {
		t.Fatal(err)
	}
	p.encoder.write(body[:p.encoder.size], requests)
	response, err := p.encoder.Prepare(&infer.Response{Parameters: long})
	if err != nil {
		t.Fatal(err)
	}
	response.write(body[:response.size])
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > size {
		t.Errorf("got %d bytes allocated for %d texts of %d bytes, want at most %d", got, n+1, size, size)
	}
	if p.encoder.size < 6*n*size || response.size < 6*size {
		t.Errorf("got bodies of %d and %d bytes, want all of the parameters in them", p.encoder.size, response.size)
	}
}
