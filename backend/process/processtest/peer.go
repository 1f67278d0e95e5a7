package processtest

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
)

// Arena is the size of a peer's arena in bytes.
const Arena = 1 << 20

// Backings are the kinds of files of a life, by the names that tests use.
var Backings = map[string]shm.Backing{"sealed": shm.Memfd{}, "named": shm.Named{Prefix: "nereid_test_process_"}}

// Peer is the other side of a channel.
type Peer struct {
	Channel *ipc.Channel
	Files   ipc.PeerFiles
	Pool    *shm.Pool // of requests, of 1 MiB

	read uint64 // position in the down ring
}

// New creates a channel that is closed when the test ends.
func New(t testing.TB, backing shm.Backing) *Peer {
	t.Helper()
	p := &Peer{}
	var err error
	if p.Channel, err = ipc.New(ipc.Config{Life: ipctest.Life, Backing: backing, UpSize: 4 << 20, MaxArena: Arena}); err != nil {
		t.Fatal(err)
	}
	p.Files = p.Channel.Peer()
	if err := p.Channel.Attached(); err != nil {
		t.Fatal(err)
	}
	region, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if p.Pool, err = shm.NewPool(region, shm.PoolConfig{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Files.Close()
		p.Channel.Close()
		p.Pool.Close()
	})
	// The arena starts with two strings, repeated.
	var strings []byte
	for len(strings) < 64<<10 {
		strings = append(strings, "\x02\x00\x00\x00ab\x02\x00\x00\x00cd"...)
	}
	if _, err := p.Files.Up.WriteAt(strings, shm.ArenaOffset); err != nil {
		t.Fatal(err)
	}
	return p
}

// Life is the supervisor's data for one process.
type Life struct {
	Loans   *shm.Loans
	Encoder *frames.Encoder
	Decoder *frames.Decoder
}

// NewLife begins a life without names.
func (p *Peer) NewLife() Life {
	loans := &shm.Loans{}
	return Life{Loans: loans, Encoder: frames.NewEncoder(p.Channel, p.Pool, loans), Decoder: frames.NewDecoder(p.Channel, loans, nil)}
}

// Returned returns the number of tickets that the process has got back.
func (p *Peer) Returned(t testing.TB) uint64 {
	t.Helper()
	return word(t, p.Files, shm.ReturnOffset)
}

func word(t testing.TB, files ipc.PeerFiles, at int64) uint64 {
	t.Helper()
	var b [8]byte
	if _, err := files.Down.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

// Skip skips the frames that have been sent.
func (p *Peer) Skip(t testing.TB) {
	t.Helper()
	p.read = word(t, p.Files, shm.TailOffset)
}

// Response is an INFER_RESPONSE as the process reads it.
type Response struct {
	Number  uint64
	Body    ipc.ResponseBody
	Outputs [][]byte
}

// Responses reads the frames of the down ring and returns the INFER_RESPONSEs among them, whose
// outputs loans holds.
func (p *Peer) Responses(t testing.TB, loans *shm.Loans) (list []Response) {
	t.Helper()
	le := binary.LittleEndian
	for tail := word(t, p.Files, shm.TailOffset); p.read < tail; {
		at := shm.RingOffset + int64(p.read%shm.RingSize)
		head := make([]byte, ipc.HeaderSize)
		if _, err := p.Files.Down.ReadAt(head, at); err != nil {
			t.Fatal(err)
		}
		size := le.Uint32(head)
		frame := make([]byte, size)
		if _, err := p.Files.Down.ReadAt(frame, at); err != nil {
			t.Fatal(err)
		}
		p.read += uint64(ipc.Align8(int(size)))
		if ipc.Kind(le.Uint16(head[4:])) != ipc.InferResponse {
			continue
		}
		r := Response{Number: le.Uint64(head[16:])}
		body := frame[ipc.HeaderSize:]
		if _, err := ipc.ParseResponse(body, &r.Body); err != nil {
			t.Fatal(err)
		}
		for i := range r.Body.Outputs {
			d := &r.Body.Outputs[i]
			switch d.Region {
			case ipc.InFrame:
				bytes, err := d.InlineBytes(body)
				if err != nil {
					t.Fatal(err)
				}
				r.Outputs = append(r.Outputs, bytes)
			case ipc.InRequests:
				block, bytes, err := loans.Borrow(shm.Ticket(d.Ticket), d.Offset, d.Length)
				if err != nil {
					t.Fatal(err)
				}
				r.Outputs = append(r.Outputs, append([]byte(nil), bytes...))
				block.Release()
			}
		}
		list = append(list, r)
	}
	if _, err := p.Files.Up.WriteAt(le.AppendUint64(nil, p.read), shm.HeadOffset); err != nil {
		t.Fatal(err)
	}
	return list
}

// InArena describes n bytes of the arena as the tensor with this index of a name.
func InArena(name uint16, offset, n uint64) ipc.Descriptor {
	return ipc.Descriptor{
		Name: name, Type: uint8(infer.Uint8), Region: ipc.InArena, Offset: shm.ArenaOffset + offset, Length: n,
		Ticket: 9<<32 | 3, Shape: []int64{int64(n)},
	}
}

// RuleOf returns the rule of a protocol error, "" for other errors.
func RuleOf(err error) string {
	var broken *ipc.ProtocolError
	if errors.As(err, &broken) {
		return broken.Rule
	}
	return ""
}
