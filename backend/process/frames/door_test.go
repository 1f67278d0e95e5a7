package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// readAsStub reads the body of an EXECUTE frame by the stub's rules and returns the first fault.
// allocations is the number of announced allocations of 1 MiB.
func readAsStub(body []byte, names, allocations int) (requests int, err error) {
	le := binary.LittleEndian
	at := 0
	take := func(n int) []byte {
		if err == nil && n > len(body)-at {
			err = fmt.Errorf("%d bytes at %d of %d", n, at, len(body))
		}
		if err != nil {
			return make([]byte, n)
		}
		at += n
		return body[at-n : at : at]
	}
	text := func(what string, n uint32) int {
		if err == nil && uint64(n) > uint64(len(body)-at) {
			err = fmt.Errorf("%s of %d bytes at %d of %d", what, n, at, len(body))
		}
		if err == nil && !utf8.Valid(take(int(n))) {
			err = fmt.Errorf("%s is not UTF-8", what)
		}
		return int(n)
	}
	pad := func(n int) { take(ipc.Align8(n) - n) }
	inside := func(number uint32, offset, n uint64) error {
		if number == 0 || int(number) > allocations || offset > fuzzedSize || n > fuzzedSize-offset {
			return fmt.Errorf("[%d, +%d) of allocation %d, of %d", offset, n, number, allocations)
		}
		return nil
	}
	for range le.Uint32(take(ipc.ExecuteSize)) {
		if err != nil {
			return requests, err
		}
		head := take(ipc.RequestSize)
		for range le.Uint16(head[28:]) {
			d := take(ipc.DescriptorSize)
			if name := le.Uint16(d); int(name) >= names {
				return requests, fmt.Errorf("name %d of %d", name, names)
			}
			if rank := d[3]; rank > ipc.MaxRank {
				return requests, fmt.Errorf("rank %d", rank)
			}
			offset, n := le.Uint64(d[8:])-ipc.HeaderSize, le.Uint64(d[16:])
			if le.Uint32(d[4:]) == ipc.InFrame && (offset > uint64(len(body)) || n > uint64(len(body))-offset) {
				return requests, fmt.Errorf("bytes [%d, +%d) of %d", offset, n, len(body))
			}
			switch region := le.Uint32(d[4:]); region {
			case ipc.InFrame, ipc.InRequests:
			case ipc.InDevice:
				if err := inside(le.Uint32(d[36:]), le.Uint64(d[8:]), n); err != nil {
					return requests, err
				}
				if d[2] == byte(infer.Bytes) || le.Uint64(d[24:]) == 0 || le.Uint32(d[32:]) > ipc.ClientsBytes {
					return requests, fmt.Errorf("a tensor on a device of type %d, ticket %d, reader %d", d[2], le.Uint64(d[24:]), le.Uint32(d[32:]))
				}
			default:
				return requests, fmt.Errorf("region %d", region)
			}
			take(8 * int(d[3]))
		}
		if n := le.Uint16(head[30:]); n != ipc.AllOutputs {
			for list := take(2 * int(n)); len(list) > 0; list = list[2:] {
				if index := le.Uint16(list); int(index) >= names {
					return requests, fmt.Errorf("output %d of %d", index, names)
				}
			}
			pad(2 * int(n))
		}
		for range le.Uint32(head[52:]) {
			p := take(ipc.PlaceSize)
			name, kind, number, offset, n := le.Uint16(p), le.Uint16(p[2:]), le.Uint32(p[4:]), le.Uint64(p[8:]), le.Uint64(p[16:])
			switch {
			case err != nil:
			case int(name) >= names && (name != ipc.AllOutputs || kind != ipc.PlaceDevice):
				err = fmt.Errorf("place of output %d of %d", name, names)
			case kind == ipc.PlaceAllocation:
				err = inside(number, offset, n)
			case kind != ipc.PlaceDevice:
				err = fmt.Errorf("place of kind %d", kind)
			}
		}
		pad(text("id", le.Uint32(head[32:])) + text("parameters", le.Uint32(head[36:])) +
			text("correlation id", le.Uint32(head[40:])) + text("trace", le.Uint32(head[44:])))
		requests++
	}
	return requests, err
}

// fuzzedSize is the size of an allocation in FuzzDoor.
const fuzzedSize = 1 << 20

// fuzzed is device memory whose copy to the host may fail.
type fuzzed struct {
	*deviceMemory
	fails bool
}

func (m fuzzed) Copy(context.Context) ([]byte, infer.Memory, error) {
	if m.fails {
		return nil, nil, infer.Errorf(infer.Internal, "failed to copy data")
	}
	return make([]byte, m.size), nil, nil
}

// FuzzDoor's use of devices, as bits.
const (
	takes   = 1 << iota // the stub accepts inputs on a device
	input               // an input is on a device
	cannot              // it cannot be copied to the host
	broken              // announcements of allocations fail
	stays               // outputs may stay on a device, one by name
	wanted              // an output is wanted in a client's memory on a device
	another             // another one in the same allocation
)

// FuzzDoor encodes a batch with arbitrary strings, shapes and data, and with inputs and places on
// devices. It is refused with an error for its clients, or the stub can read it.
func FuzzDoor(f *testing.F) {
	for _, s := range []string{"", "id", "grün", "\xff", "\xed\xb0\x80", "a\x00b", "\xf0\x9f\x98", string(make([]byte, 40_000))} {
		f.Add(s, s, s, s, uint16(2), []byte(s), uint8(1), uint8(0), uint32(0), uint32(0))
	}
	f.Add("a", "b", "c", "d", uint16(65), []byte("x"), uint8(3), uint8(takes|input), uint32(7), uint32(70_000))
	f.Add("a", "b", "c", "d", uint16(300), make([]byte, 5000), uint8(200), uint8(input), uint32(0), uint32(5000))
	for _, what := range []uint8{takes | input | wanted | stays, takes | input | another, takes | input | broken, input | cannot, wanted | another | stays, wanted | broken} {
		f.Add("a", "b", "c", "OUT0", uint16(1), []byte("x"), uint8(1), what, uint32(fuzzedSize-1), uint32(1))
		f.Add("a", "b", "c", "none", uint16(1), []byte("x"), uint8(2), what, uint32(1000), uint32(0))
	}
	region, err := shm.NewRegion(shm.Memfd{}, 16<<20, shm.ReadWrite)
	if err != nil {
		f.Fatal(err)
	}
	pool, err := shm.NewPool(region, shm.PoolConfig{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(pool.Close)
	f.Fuzz(func(t *testing.T, id, correlation, key, value string, rank uint16, data []byte, count, what uint8, offset, size uint32) {
		e := NewEncoder(nil, pool, &shm.Loans{})
		e.Names = mustName(t, []string{"IN0"}, []string{"OUT0"})
		stub := newAnnouncer()
		defer stub.known.Close()
		e.Announced = stub.known
		e.PutsThere = true
		if what&takes != 0 {
			e.TakesDevices = true
		}
		if what&broken != 0 {
			stub.broken = errors.New("the ring is full")
		}
		offset %= fuzzedSize
		client := fuzzed{newDeviceMemory(int64(offset), int64(size%(fuzzedSize-offset+1))), what&cannot != 0}
		defer func() {
			e.loans.Close()
			if client.refs != 1 {
				t.Errorf("the client's memory has %d references, want that of the request", client.refs)
			}
		}()
		var places []infer.Place
		if what&stays != 0 {
			places = append(places, infer.Place{OnDevice: true}, infer.Place{OnDevice: true, Output: value})
		}
		if what&wanted != 0 {
			places = append(places, infer.Place{Output: value, Memory: client})
		}
		if what&another != 0 {
			places = append(places, infer.Place{Output: "OUT0", Memory: client})
		}
		good := &infer.Request{ID: "good", Inputs: []infer.Tensor{{Name: "IN0", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{1}}}}
		requests := []*infer.Request{good}
		for range count % 4 {
			requests = append(requests, &infer.Request{
				ID: id, Correlation: infer.CorrelationID{Text: correlation},
				Parameters: []infer.Parameter{
					{Name: key, Kind: infer.StringParameter, String: value}, {Name: "n", Kind: infer.DoubleParameter, Double: math.NaN()},
				},
				Inputs:  []infer.Tensor{{Name: "IN0", DataType: infer.Bytes, Shape: make([]int64, rank%400), Data: data}},
				Outputs: []string{"OUT0", value}, Places: places,
			})
			if what&input != 0 {
				requests[len(requests)-1].Inputs = append(requests[len(requests)-1].Inputs, infer.Tensor{
					Name: "IN0", DataType: infer.Uint8, Shape: []int64{client.size}, Memory: client,
				})
			}
		}
		handles := make([]uint64, len(requests))
		if err := e.plan(requests, handles); err != nil {
			if Refusal(err) == nil {
				t.Fatalf("plan: got error %v, want one for clients", err)
			}
			if loans, _ := e.loans.Count(); loans > 0 {
				t.Fatalf("%d blocks are lent after an error", loans)
			}
			return
		}
		body := make([]byte, e.size)
		e.write(body, requests)
		if n, err := readAsStub(body, 2, len(stub.told)); err != nil || n != len(requests) {
			t.Fatalf("the stub reads %d of %d requests: %v", n, len(requests), err)
		}
	})
}

// TestDoorNamesTheFieldThatIsRefused checks that the error about an invalid map of INITIALIZE or
// RESULT names the field.
func TestDoorNamesTheFieldThatIsRefused(t *testing.T) {
	type Tensors struct {
		Names []string `msgpack:"names"`
	}
	type search struct {
		Path   string   `msgpack:"path"`
		Search []string `msgpack:"search"`
	}
	body := &struct {
		Args map[string]string `msgpack:"args"`
		Tensors
		search
	}{
		Args: map[string]string{"model_name": "m"}, Tensors: Tensors{Names: []string{"IN0"}},
		search: search{Path: "/models/m/1/model.py", Search: []string{"/models/m"}},
	}
	if err := checkFields(ipc.Initialize, body); err != nil {
		t.Errorf("got error %v, want none", err)
	}
	body.Search = append(body.Search, "/mod\xe8les")
	if err := checkFields(ipc.Initialize, body); err == nil || err.Error() != `INITIALIZE: field 'search' is not valid UTF-8: "/mod\xe8les"` {
		t.Errorf("got error %v, want one that names the field", err)
	}
	body.Search = nil
	body.Args["model_config"] = "\xff"
	if err := checkFields(ipc.Initialize, body); err == nil || err.Error() != `INITIALIZE: field 'args' is not valid UTF-8: "\xff"` {
		t.Errorf("got error %v, want one that names the field", err)
	}
	names := make([]string, maxNames/2+1)
	if _, err := NewNames(names, names); err == nil {
		t.Error("more names were let through than a table has")
	}
}

// TestRefusalTellsShortageFromDeath checks that Refusal distinguishes a lack of memory from the end
// of a life.
func TestRefusalTellsShortageFromDeath(t *testing.T) {
	short := outOfMemory(ipc.Execute, 40_000, fmt.Errorf("allocate: %w", shm.ErrExhausted))
	if own := Refusal(short); own == nil || own.Code != infer.Unavailable || !errors.Is(short, shm.ErrExhausted) {
		t.Errorf("no room: got %v, want an error for clients that is about memory", own)
	}
	for _, err := range []error{nil, ipc.ErrClosed, fmt.Errorf("send: %w", ipc.ErrClosed), ipc.Broken("head", "it moves back")} {
		if own := Refusal(err); own != nil {
			t.Errorf("%v: got %v, want none for clients", err, own)
		}
	}
	if own := Refusal(errors.New("frame EXECUTE of 70000 bytes: want at most 65536")); own == nil || own.Code != infer.Internal {
		t.Errorf("our own fault: got %v, want an internal error", own)
	}
}
