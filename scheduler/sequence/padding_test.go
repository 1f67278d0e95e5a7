package sequence_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// paddingPool lends memory that is not zeroed, and counts it.
type paddingPool struct {
	lent  []*lent
	bytes int
	err   error
}

func (p *paddingPool) allocate(n int) ([]byte, infer.Memory, error) {
	if p.err != nil {
		return nil, nil, p.err
	}
	m := &lent{references: 1}
	p.lent = append(p.lent, m)
	p.bytes += n
	return bytes.Repeat([]byte{0xaa}, n), m, nil
}

func (p *paddingPool) held() (n int) {
	for _, m := range p.lent {
		n += m.references
	}
	return n
}

// large returns a request of a sequence with an input of n bytes.
func large(id string, sequence uint64, flags uint32, n int) *infer.Request {
	return &infer.Request{ID: id, Correlation: infer.CorrelationID{Number: sequence}, Flags: flags, BatchSize: 1,
		Inputs: []infer.Tensor{{Name: "X", DataType: infer.Uint8, Shape: []int64{1, int64(n)}, Data: bytes.Repeat([]byte{1}, n)}}}
}

// inTheLastSlot starts sequences in all four slots and sends a request of n bytes to the last one
// only.
func inTheLastSlot(c *fixture, n int) {
	c.run("up i; send a 1 S; send b 2 S; send c 3 S; send d 4 S; end i; end i")
	c.send(large("e", 4, 0, n))
	synctest.Wait()
}

// TestPaddingIsLentOnce checks that all empty slots of a batch share the same zeros, which are
// returned when nothing is executed.
func TestPaddingIsLentOnce(t *testing.T) {
	const size = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		pool := &paddingPool{}
		config := direct(4, 0, 0)
		config.Allocate = pool.allocate
		c := newFixture(t, config)
		inTheLastSlot(c, size)
		c.run("has i . . . e")
		tasks := c.instance("i").has().Tasks
		for _, task := range tasks[:3] {
			in := task.Request.Input("X")
			if len(in.Data) != size || in.Memory == nil || bytes.Count(in.Data, []byte{0}) != size || &in.Data[0] != &tasks[0].Request.Input("X").Data[0] {
				t.Errorf("padding has %d bytes in %v, want %d zeros in memory that all have", len(in.Data), in.Memory, size)
			}
		}
		if pool.bytes != size {
			t.Errorf("%d bytes were lent, want %d", pool.bytes, size)
		}
		// The next waiting batch reuses them; after it they are returned.
		c.send(large("f", 4, 0, size/2))
		c.run("end i; got e; has i . . . f")
		if pool.bytes != size || pool.held() == 0 {
			t.Errorf("%d bytes were lent, %d references held, want those of before", pool.bytes, pool.held())
		}
		c.run("end i; got f")
		if pool.held() != 0 {
			t.Errorf("%d references are held by nobody", pool.held())
		}
		// A process that is lost, and one that gives its batch back.
		for _, step := range []string{"fail i", "staged i; up i"} {
			c.send(large("g", 4, 0, size))
			synctest.Wait()
			if pool.held() == 0 {
				t.Errorf("%s: no padding is lent", step)
			}
			c.run(step)
			if c.instance("i").has() != nil {
				c.run("end i")
			}
			if pool.held() != 0 {
				t.Errorf("%s: %d references are held by nobody", step, pool.held())
			}
		}
		c.leave()
	})
}

// TestPaddingWithoutMemoryRefusesOneRequest checks that only the request that needs the large
// padding is rejected, and that its sequence continues.
func TestPaddingWithoutMemoryRefusesOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := &paddingPool{err: infer.Errorf(infer.Unavailable, "no memory")}
		config := direct(4, 0, 0)
		config.Allocate = pool.allocate
		c := newFixture(t, config)
		inTheLastSlot(c, 1<<20)
		c.run("got e Unavailable: no memory; send f 4 -; has i . . . f; end i; got f")
		c.leave()
	})
}

// TestStatesAreCharged checks that sequences and their states are charged to the account until the
// sequences end, and that only a response or a sequence that does not fit fails.
func TestStatesAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := budget.New(budget.Config{Limit: 64 << 20})
		config := direct(2, 0, 0)
		config.Memory = account
		config.States = []sequence.State{{Input: "IN", Output: "OUT", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{42}}}
		c := newFixture(t, config)
		c.run("up i")
		answer := func(n int) *lent {
			memory := &lent{references: 1}
			b := c.instance("i").take()
			b.Done(b, backend.Report{Executed: true})
			for _, task := range b.Tasks {
				task.Send(&infer.Response{Final: true, Outputs: []infer.Tensor{
					{Name: "OUT", DataType: infer.Uint8, Shape: []int64{1, int64(n)}, Data: make([]byte, n), Memory: memory},
				}})
			}
			synctest.Wait()
			return memory
		}
		charged := func(sequences, states int64) {
			t.Helper()
			want := 512*sequences + states
			if got := account.Used(budget.States); got != want {
				t.Errorf("%d bytes are charged, want %d", got, want)
			}
		}
		c.run("send a 1 S; has i a")
		answer(1 << 20)
		charged(1, 1<<20)
		c.run("send b 1 -; has i b")
		answer(1 << 20) // in addition to the state that b was executed with
		charged(1, 2<<20)
		c.run("send c 1 -; has i c")
		answer(1 << 20) // replaces the older one
		charged(1, 2<<20)
		c.run("send d 1 -; has i d")
		refused := answer(17 << 20) // only a quarter of the account may be states
		if refused.references != 0 {
			t.Errorf("the answer has %d references", refused.references)
		}
		if e := infer.AsError(c.clients["d"].final.Err); e == nil || e.Code != infer.Unavailable {
			t.Errorf("17 MiB of state: got %v, want it Unavailable", e)
		}
		charged(1, 2<<20)
		c.run("send e 1 -; has i e")
		if got := c.clients["e"].seen.Input("IN").Data; len(got) != 1<<20 {
			t.Errorf("the next request has a state of %d bytes, want that of before", len(got))
		}
		answer(1 << 20)
		c.run("send f 1 S; has i f") // a new sequence with the same id
		charged(1, 0)
		answer(3 << 20)
		charged(1, 3<<20)
		c.run("send g 1 E; has i g")
		answer(3 << 20)
		charged(0, 0)
		c.run("send h 2 S; has i h")
		answer(5 << 20)
		charged(1, 5<<20)
		c.run("wait 2s") // it idled out
		charged(0, 0)
		c.run("send k 3 S; has i k")
		answer(5 << 20)
		rest := account.Most(budget.States) - account.Used(budget.States)
		account.Must(budget.States, rest)
		c.run("send l 4 S; refused l Unavailable: request needs 512 bytes of memory, but 16777216 of the server's 67108864 bytes for requests are in use, 16777216 of them for states; send m 3 -; has i m")
		account.Give(budget.States, rest)
		answer(5 << 20)
		c.leave()
		charged(0, 0)
	})
}
