package sequence_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// accounted is a fixture of a model with one state that is charged.
type accounted struct {
	*fixture
	t       *testing.T
	account *budget.Account
}

func newAccounted(t *testing.T, config sequence.Config) accounted {
	a := accounted{t: t, account: budget.New(budget.Config{Limit: 256 << 20})}
	config.Memory = a.account
	config.States = []sequence.State{{Input: "IN", Output: "OUT", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{42}}}
	a.fixture = newFixture(t, config)
	return a
}

// answer answers a request with a state of n MiB.
func (a accounted) answer(id string, n int, final bool) {
	a.t.Helper()
	a.clients[id].respond(&infer.Response{Final: final, Outputs: []infer.Tensor{
		{Name: "OUT", DataType: infer.Uint8, Shape: []int64{1, int64(n) << 20}, Data: make([]byte, n<<20)},
	}})
	synctest.Wait()
}

// charged checks the charge: 512 bytes for each sequence, and MiB of states.
func (a accounted) charged(sequences, mebibytes int64) {
	a.t.Helper()
	if got, want := a.account.Used(budget.States), 512*sequences+mebibytes<<20; got != want {
		a.t.Errorf("%d bytes are charged, want %d", got, want)
	}
}

// TestStatesOfEndedSequencesAreCharged checks that the states of a sequence are charged while its
// queued and executing requests need them, although its END has arrived or it has begun again.
func TestStatesOfEndedSequencesAreCharged(t *testing.T) {
	for name, config := range map[string]sequence.Config{"direct": direct(2, 0, 0), "oldest": oldest(2, 4, 0)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccounted(t, config)
				a.run("up i; send s 1 S; send m 1 -; send e 1 E; live 0; has i s; return i")
				a.charged(1, 0)
				a.answer("s", 1, true)
				a.charged(1, 1)
				a.run("has i m; return i")
				a.answer("m", 2, true)
				a.charged(1, 3) // with the bytes of the first state, to be reused
				a.run("has i e")
				if got := len(a.clients["e"].seen.Input("IN").Data); got != 2<<20 {
					t.Errorf("the last request began with %d bytes", got)
				}
				a.run("restart i; up i")
				a.charged(0, 0)

				a.run("send s 1 S; return i")
				a.answer("s", 1, true)
				a.run("send e 1 E; staged i; waits e; up i; has i e") // it comes back, and executes once more
				a.charged(1, 1)
				a.run("return i")
				a.answer("e", 100, true) // no request begins with this one
				a.run("got e")
				a.charged(0, 0)

				a.run("send s 1 S; return i")
				a.answer("s", 1, true)
				a.run("send m 1 -; return i; wait 2s; live 0") // idle, by its arrivals
				a.charged(1, 1)
				a.answer("m", 1, true)
				a.charged(0, 0)
				a.leave()
			})
		})
	}
}

// TestStatesOfUnansweredRequestsAreCharged checks that each of several states that the requests of
// a decoupled model began with is charged until those requests are answered, and that its bytes are
// not reused before.
func TestStatesOfUnansweredRequestsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := oldest(2, 4, 0)
		config.Decoupled = true
		a := newAccounted(t, config)
		a.run("up i")
		for n := 1; n <= 5; n++ {
			id, flags := fmt.Sprint("r", n), "-"
			if n == 1 {
				flags = "S"
			}
			a.run("send " + id + " 1 " + flags + "; has i " + id + "; return i; waits " + id)
			a.answer(id, n, false)
		}
		a.charged(1, 1+2+3+4+5)
		for n := 2; n <= 5; n++ { // r1 began with the initial state
			if got := len(a.clients[fmt.Sprint("r", n)].seen.Input("IN").Data); got != (n-1)<<20 {
				t.Errorf("request %d began with %d bytes", n, got)
			}
		}
		a.run("answer r3")
		a.charged(1, 1+3+4+5)
		a.run("send again 1 S; has i again")
		a.charged(1, 1+3+4)
		a.answer("r2", 9, false) // of the sequence before
		a.charged(1, 1+3+4)
		a.run("return i")
		a.answer("again", 2, false)
		a.answer("again", 2, false)
		a.answer("again", 2, false)
		a.charged(1, 1+3+4+2+2)
		a.run("answer again; send e 1 E; has i e; return i; answer r5; answer r4; answer r2; answer r1")
		a.charged(1, 2+2)
		a.run("answer e")
		a.charged(0, 0)
		a.leave()
	})
}

// TestManyStatesAreCharged checks that a sequence of a model with many states is charged for them
// before they have values.
func TestManyStatesAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := budget.New(budget.Config{Limit: 64 << 20})
		config := direct(2, 0, 0)
		config.Memory = account
		for n := range 1001 {
			config.States = append(config.States, sequence.State{Input: fmt.Sprint("IN", n), Output: fmt.Sprint("OUT", n), DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{42}})
		}
		c := newFixture(t, config)
		c.run("up i; send a 1 S; has i a")
		if got, want := account.Used(budget.States), int64(512+384*1000); got != want {
			t.Errorf("%d bytes are charged, want %d", got, want)
		}
		c.leave()
		if got := account.Used(budget.States); got != 0 {
			t.Errorf("%d bytes are charged at the end", got)
		}
	})
}

// TestStatesWithoutMemoryDoNotChange checks that a response with several states changes none of
// them if one has no room.
func TestStatesWithoutMemoryDoNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := budget.New(budget.Config{Limit: 64 << 20})
		config := direct(2, 0, 0)
		config.Memory = account
		for _, x := range []string{"0", "1"} {
			config.States = append(config.States, sequence.State{Input: "IN" + x, Output: "OUT" + x, DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{42}})
		}
		c := newFixture(t, config)
		answer := func(id string, sizes ...int) {
			b := c.instance("i").take()
			b.Done(b, backend.Report{Executed: true})
			r := &infer.Response{Final: true}
			for n, size := range sizes {
				r.Outputs = append(r.Outputs, infer.Tensor{Name: fmt.Sprint("OUT", n), DataType: infer.Uint8, Shape: []int64{1, int64(size)}, Data: make([]byte, size)})
			}
			c.clients[id].respond(r)
			synctest.Wait()
		}
		c.run("up i; send a 1 S; has i a")
		answer("a", 2<<20, 1<<20)
		c.run("send b 1 -; has i b")
		answer("b", 3<<20, 15<<20)
		if err := infer.AsError(c.clients["b"].final.Err); err == nil || err.Code != infer.Unavailable {
			t.Errorf("got error %v", err)
		}
		if got, want := account.Used(budget.States), int64(512+384+3<<20); got != want {
			t.Errorf("%d bytes are charged, want %d", got, want)
		}
		c.run("send c 1 -; has i c")
		if got := c.clients["c"].seen; len(got.Input("IN0").Data) != 2<<20 || len(got.Input("IN1").Data) != 1<<20 {
			t.Errorf("states have %d and %d bytes", len(got.Input("IN0").Data), len(got.Input("IN1").Data))
		}
		c.leave()
		if got := account.Used(budget.States); got != 0 {
			t.Errorf("%d bytes are charged at the end", got)
		}
	})
}
