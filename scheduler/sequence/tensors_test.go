package sequence_test

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
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
	}{{"direct", direct(2, 0, 0)}, {"oldest", oldest(2, 4, 0)}} {
		t.Run(strategy.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := strategy.config
				config.Outputs = []string{"SHOWN", "OUT"}
				first := []byte{1, 2, 3, 4}
				config.States = []sequence.State{
					{Input: "HIDDEN_IN", Output: "HIDDEN", DataType: infer.Int32, Shape: []int64{1}, Data: first},
					{Input: "SHOWN_IN", Output: "SHOWN", DataType: infer.Bytes, Shape: []int64{0}},
				}
				c := newFixture(t, config)
				c.run("up i")
				// answer sends a response with a new state.
				answer := func(id string, hidden []byte, shown string) (memory *lent) {
					memory = &lent{references: 2}
					i := c.instance("i")
					b := i.take()
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
					r := c.clients[id].seen
					h, s := r.Input("HIDDEN_IN"), r.Input("SHOWN_IN")
					if !bytes.Equal(h.Data, hidden) || h.DataType != dataType || !slices.Equal(h.Shape, shape) {
						t.Errorf("request %s saw %v %v %v, want %v %v %v", id, h.DataType, h.Shape, h.Data, dataType, shape, hidden)
					}
					if want := len(shown) + 4; shown != "" && (len(s.Data) != want || string(s.Data[4:]) != shown) {
						t.Errorf("request %s saw %q, want %q", id, s.Data, shown)
					}
				}
				c.run("send a 1 S; has i a")
				saw("a", first, infer.Int32, []int64{1, 1}, "")
				memory := answer("a", []byte{9, 8}, "one")
				if got := c.clients["a"].final.Outputs; len(got) != 2 || got[0].Name != "OUT" || got[1].Name != "SHOWN" || memory.references != 1 {
					t.Errorf("the client got %v, references %d", got, memory.references)
				}
				c.run("send b 1 -; has i b; send other 2 S")
				saw("b", []byte{9, 8}, infer.Int8, []int64{1, 2}, "one")
				b := answer("b", []byte{7}, "three")
				saw("other", first, infer.Int32, []int64{1, 1}, "")
				if b.references != 1 {
					t.Errorf("%d references", b.references)
				}
				c.run("end i")
				// A client that requests one output gets only that one; the state is kept.
				c.send(&infer.Request{ID: "c", Correlation: infer.CorrelationID{Number: 1}, BatchSize: 1, Outputs: []string{"OUT"}})
				saw("c", []byte{7}, infer.Int8, []int64{1, 1}, "three")
				if want := c.clients["c"].seen.Outputs; !slices.Equal(want, []string{"OUT", "HIDDEN", "SHOWN"}) {
					t.Errorf("the instance was asked for %v", want)
				}
				memory = answer("c", []byte{5, 5, 5, 5, 5}, "four")
				if got := c.clients["c"].final.Outputs; len(got) != 1 || memory.references != 0 {
					t.Errorf("the client got %v, references %d", got, memory.references)
				}
				// An error leaves the state unchanged; a START resets it.
				c.run("send d 1 -; fail i; send e 1 -")
				saw("e", []byte{5, 5, 5, 5, 5}, infer.Int8, []int64{1, 5}, "four")
				c.run("restart i; send f 1 -; up i; has i f") // the state outlives the process
				saw("f", []byte{5, 5, 5, 5, 5}, infer.Int8, []int64{1, 5}, "four")
				c.run("end i; send g 1 S; has i g")
				saw("g", first, infer.Int32, []int64{1, 1}, "")
				// The next request waits for the response, not only for the end of execute.
				c.run("send h 1 -; return i; has i; answer g; has i h")
				c.leave()
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
		config := direct(2, 0, 0)
		config.States = []sequence.State{{Input: "IN", Output: "OUT", DataType: infer.Int8, Shape: []int64{1}, Data: []byte{42}}}
		c := newFixture(t, config)
		c.run("up i; send a 1 S; send b 2 S; end i; has i . b")
		if padding := c.instance("i").has().Tasks[0].Request; padding.Input("IN").Data[0] != 42 {
			t.Errorf("padding has %v", padding.Inputs)
		}
		c.leave()
	})
}

// TestControlTensorsDescribeTheRequest checks the content of the control tensors for requests and
// padding.
func TestControlTensorsDescribeTheRequest(t *testing.T) {
	inputs := []*kserve.ModelSequenceBatching_ControlInput{
		{Name: "S", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START, Int32FalseTrue: []int32{-1, 7}}}},
		{Name: "E", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END, Fp32FalseTrue: []float32{0, 1}}}},
		{Name: "R", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY, BoolFalseTrue: []bool{true, false}}}},
	}
	one := []byte{0, 0, 0x80, 0x3f}
	for _, c := range []struct {
		name     string
		flags    uint32
		padding  bool
		id       infer.CorrelationID
		idType   kserve.DataType
		s, e, r  []byte
		i        []byte
		batching bool
	}{
		{"start", infer.SequenceStart, false, infer.CorrelationID{Number: 0x1_0203_0405}, kserve.DataType_TYPE_UINT64, []byte{7, 0, 0, 0}, make([]byte, 4), []byte{0}, []byte{5, 4, 3, 2, 1, 0, 0, 0}, true},
		{"middle", 0, false, infer.CorrelationID{Number: 0x1_0203_0405}, kserve.DataType_TYPE_INT32, []byte{255, 255, 255, 255}, make([]byte, 4), []byte{0}, []byte{5, 4, 3, 2}, false},
		{"end", infer.SequenceEnd, false, infer.CorrelationID{Text: "ab"}, kserve.DataType_TYPE_STRING, []byte{255, 255, 255, 255}, one, []byte{0}, []byte{2, 0, 0, 0, 'a', 'b'}, true},
		{"both", 3, false, infer.CorrelationID{Number: 12}, kserve.DataType_TYPE_STRING, []byte{7, 0, 0, 0}, one, []byte{0}, []byte{2, 0, 0, 0, '1', '2'}, false},
		{"padding", 0, true, infer.CorrelationID{}, kserve.DataType_TYPE_STRING, []byte{255, 255, 255, 255}, make([]byte, 4), []byte{1}, make([]byte, 4), true},
		{"padding of a number", 0, true, infer.CorrelationID{}, kserve.DataType_TYPE_INT64, []byte{255, 255, 255, 255}, make([]byte, 4), []byte{1}, make([]byte, 8), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := direct(2*boolToInt(c.batching), 0, 0)
				config.Batching.ControlInput = append(slices.Clone(inputs), &kserve.ModelSequenceBatching_ControlInput{Name: "I", Control: []*kserve.ModelSequenceBatching_Control{{
					Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID, DataType: c.idType,
				}}})
				m := newFixture(t, config)
				send := func(id string, correlation infer.CorrelationID, flags uint32) *client {
					return m.send(&infer.Request{ID: id, Correlation: correlation, Flags: flags, BatchSize: int64(boolToInt(c.batching)),
						Inputs: []infer.Tensor{{Name: "X"}, {Name: "E", Data: []byte("client")}}}) // E is replaced
				}
				m.run("up i")
				var got []infer.Tensor
				switch {
				case c.padding: // in the slot of an idle sequence
					m.run("send a 1 S")
					send("r", infer.CorrelationID{Number: 2}, infer.SequenceStart)
					m.run("end i; has i . r")
					got = m.instance("i").has().Tasks[0].Request.Inputs
				case c.flags&infer.SequenceStart == 0:
					send("before", c.id, infer.SequenceStart)
					m.run("end i")
					fallthrough
				default:
					got = send("r", c.id, c.flags).seen.Inputs
				}
				if names := []string{got[0].Name, got[1].Name, got[2].Name, got[3].Name, got[4].Name}; !slices.Equal(names, []string{"X", "E", "S", "R", "I"}) {
					t.Fatalf("inputs are %v", names)
				}
				for i, want := range map[int][]byte{1: c.e, 2: c.s, 3: c.r, 4: c.i} {
					if !bytes.Equal(got[i].Data, want) {
						t.Errorf("%s is %v, want %v", got[i].Name, got[i].Data, want)
					}
					if shape := []int64{1, 1}; !slices.Equal(got[i].Shape, shape[:1+boolToInt(c.batching)]) {
						t.Errorf("%s has shape %v", got[i].Name, got[i].Shape)
					}
				}
				if got[4].DataType != infer.DataType(c.idType) || got[2].DataType != infer.Int32 || got[1].DataType != infer.FP32 || got[3].DataType != infer.Bool {
					t.Errorf("types are %v %v %v %v", got[1].DataType, got[2].DataType, got[3].DataType, got[4].DataType)
				}
				m.leave()
			})
		})
	}
}
