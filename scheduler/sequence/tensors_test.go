package sequence_test

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// lent is memory that counts its references.
type lent struct{ references int }

func (l *lent) Retain()  { l.references++ }
func (l *lent) Release() { l.references-- }

// TestStateFollowsItsSequence checks the states that the successive requests of sequences get.
func TestStateFollowsItsSequence(t *testing.T) {
	for _, strategy := range []struct {
		name   string
		config sequence.Config
	}{{"direct", sequence.Direct(2, 0, 0)}, {"oldest", sequence.Oldest(2, 4, 0)}} {
		t.Run(strategy.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := strategy.config
				config.Outputs = []string{"SHOWN", "OUT"}
				first := []byte{1, 2, 3, 4}
				config.States = []sequence.State{
					{Input: "HIDDEN_IN", Output: "HIDDEN", DataType: infer.Int32, Shape: []int64{1}, Data: first},
					{Input: "SHOWN_IN", Output: "SHOWN", DataType: infer.Bytes, Shape: []int64{0}},
				}
				c := sequence.NewFixture(t, config)
				c.Run("up i")
				// answer sends a response with a new state.
				answer := func(id string, hidden []byte, shown string) (memory *lent) {
					memory = &lent{references: 2}
					i := c.Instance("i")
					b := i.Take()
					b.Done(b, backend.Report{Executed: true})
					for _, task := range b.Tasks {
						if task.Request.ID != id {
							task.Send(&infer.Response{Final: true})
							continue
						}
						text := append([]byte{byte(len(shown)), 0, 0, 0}, shown...)
						task.Send(&infer.Response{Final: true, Outputs: []infer.Tensor{
							{Name: "OUT"},
							{Name: "HIDDEN", DataType: infer.Int8, Shape: []int64{1, int64(len(hidden))}, Data: hidden, Memory: memory},
							{Name: "SHOWN", DataType: infer.Bytes, Shape: []int64{1, 1}, Data: text, Memory: memory},
						}})
						clear(hidden) // the memory is reused
						clear(text)
					}
					synctest.Wait()
					return memory
				}
				saw := func(id string, hidden []byte, dataType infer.DataType, shape []int64, shown string) {
					t.Helper()
					r := c.Clients[id].Seen
					h, s := r.Input("HIDDEN_IN"), r.Input("SHOWN_IN")
					if !bytes.Equal(h.Data, hidden) || h.DataType != dataType || !slices.Equal(h.Shape, shape) {
						t.Errorf("request %s saw %v %v %v, want %v %v %v", id, h.DataType, h.Shape, h.Data, dataType, shape, hidden)
					}
					if want := len(shown) + 4; shown != "" && (len(s.Data) != want || string(s.Data[4:]) != shown) {
						t.Errorf("request %s saw %q, want %q", id, s.Data, shown)
					}
				}
				c.Run("send a 1 S; has i a")
				saw("a", first, infer.Int32, []int64{1, 1}, "")
				memory := answer("a", []byte{9, 8}, "one")
				if got := c.Clients["a"].Final.Outputs; len(got) != 2 || got[0].Name != "OUT" || got[1].Name != "SHOWN" || memory.references != 1 {
					t.Errorf("the client got %v, references %d", got, memory.references)
				}
				c.Run("send b 1 -; has i b; send other 2 S")
				saw("b", []byte{9, 8}, infer.Int8, []int64{1, 2}, "one")
				b := answer("b", []byte{7}, "three")
				saw("other", first, infer.Int32, []int64{1, 1}, "")
				if b.references != 1 {
					t.Errorf("%d references", b.references)
				}
				c.Run("end i")
				// A client that requests one output gets only that one; the state is kept.
				c.Send(&infer.Request{ID: "c", Correlation: infer.CorrelationID{Number: 1}, BatchSize: 1, Outputs: []string{"OUT"}})
				saw("c", []byte{7}, infer.Int8, []int64{1, 1}, "three")
				if want := c.Clients["c"].Seen.Outputs; !slices.Equal(want, []string{"OUT", "HIDDEN", "SHOWN"}) {
					t.Errorf("the instance was asked for %v", want)
				}
				memory = answer("c", []byte{5, 5, 5, 5, 5}, "four")
				if got := c.Clients["c"].Final.Outputs; len(got) != 1 || memory.references != 0 {
					t.Errorf("the client got %v, references %d", got, memory.references)
				}
				// An error leaves the state unchanged; a START resets it.
				c.Run("send d 1 -; fail i; send e 1 -")
				saw("e", []byte{5, 5, 5, 5, 5}, infer.Int8, []int64{1, 5}, "four")
				c.Run("restart i; send f 1 -; up i; has i f") // the state outlives the process
				saw("f", []byte{5, 5, 5, 5, 5}, infer.Int8, []int64{1, 5}, "four")
				c.Run("end i; send g 1 S; has i g")
				saw("g", first, infer.Int32, []int64{1, 1}, "")
				// The next request waits for the response, not only for the end of execute.
				c.Run("send h 1 -; return i; has i; answer g; has i h")
				c.Leave()
				if !bytes.Equal(first, []byte{1, 2, 3, 4}) {
					t.Errorf("what sequences begin with has become %v", first)
				}
			})
		})
	}
}

// TestPaddingGetsInitialStates checks that padding gets the initial states of sequences.
func TestPaddingGetsInitialStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := sequence.Direct(2, 0, 0)
		config.States = []sequence.State{{Input: "IN", Output: "OUT", DataType: infer.Int8, Shape: []int64{1}, Data: []byte{42}}}
		c := sequence.NewFixture(t, config)
		c.Run("up i; send a 1 S; send b 2 S; end i; has i . b")
		if padding := c.Instance("i").Has().Tasks[0].Request; padding.Input("IN").Data[0] != 42 {
			t.Errorf("padding has %v", padding.Inputs)
		}
		c.Leave()
	})
}
