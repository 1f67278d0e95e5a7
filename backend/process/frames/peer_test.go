package frames

import (
	"testing"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// peer is a life without a process. The test acts as the stub.
type peer struct {
	channel *ipc.Channel
	files   ipc.PeerFiles
	pool    *shm.Pool
	loans   *shm.Loans
	encoder *Encoder
	decoder *Decoder
}

// peerArena is the usable size of a peer's arena.
const peerArena = 1 << 20

// newPeer starts a life with the golden frames' names. When the test ends, nothing may be lent in
// either direction, except loans that the life's end takes back.
func newPeer(t testing.TB, backing shm.Backing) *peer {
	t.Helper()
	p := &peer{loans: &shm.Loans{}}
	var err error
	if p.channel, err = ipc.New(ipc.Config{Life: 7, Backing: backing, UpSize: 4 << 20, MaxArena: peerArena}); err != nil {
		t.Fatal(err)
	}
	p.files = p.channel.Peer()
	if err := p.channel.Attached(); err != nil {
		t.Fatal(err)
	}
	region, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if p.pool, err = shm.NewPool(region, shm.PoolConfig{}); err != nil {
		t.Fatal(err)
	}
	p.encoder, p.decoder = NewEncoder(p.channel, p.pool, p.loans), NewDecoder(p.channel, p.loans, nil)
	inputs, outputs := []string{"IN0"}, []string{"OUT0", "OUT1", "OUT2", "OUT3"}
	p.encoder.Names = mustName(t, inputs, outputs)
	p.decoder.Names = mustName(t, inputs, outputs)
	t.Cleanup(func() {
		p.loans.Close()
		if n := p.pool.Stats().Blocks; n != 0 {
			t.Errorf("%d blocks of requests are in use, want none", n)
		}
		if n := p.channel.Arena().Outstanding(); n != 0 {
			t.Errorf("%d descriptors are outstanding, want none", n)
		}
		if n := p.decoder.Copied(); n != 0 {
			t.Errorf("%d bytes of copies are in use, want none", n)
		}
		p.files.Close()
		p.channel.Close()
		p.pool.Close()
	})
	return p
}
