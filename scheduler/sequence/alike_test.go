package sequence_test

import (
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestDirectPadsOtherShapes fills an instance's slots with requests of two shapes. It checks that a
// batch has the shape of the request that has waited longest and that the other slots are padded.
func TestDirectPadsOtherShapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := direct(4, 0, 0)
		config.Alike = batching.NewAlike(&kserve.ModelConfig{Input: []*kserve.ModelInput{{Name: "IN", Dims: []int64{-1}}}})
		config.Batching.ControlInput = []*kserve.ModelSequenceBatching_ControlInput{{Name: "READY", Control: []*kserve.ModelSequenceBatching_Control{{
			Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY, BoolFalseTrue: []bool{false, true},
		}}}}
		c := newFixture(t, config)
		c.run("up i")
		send := func(id string, number uint64, n int, flags string) {
			c.send(&infer.Request{ID: id, Correlation: infer.CorrelationID{Number: number}, Flags: sequenceFlags[flags], BatchSize: 1, Inputs: []infer.Tensor{
				{Name: "IN", DataType: infer.Bytes, Shape: []int64{1, int64(n)}, Data: make([]byte, 4*n)},
			}})
		}
		send("a", 1, 1, "S")
		send("b", 2, 1, "S")
		send("c", 3, 2, "S")
		send("d", 4, 1, "S")
		send("e", 1, 1, "-")
		c.run("has i a; end i; has i e b . d")
		for _, task := range c.instances["i"].has().Tasks {
			in, ready := task.Request.Input("IN"), task.Request.Input("READY")
			if len(in.Data) != 4 || in.Shape[1] != 1 || (ready.Data[0] == 0) != task.Request.Padding {
				t.Errorf("request %q (padding %v) has IN %v with %d bytes, READY %v", task.Request.ID, task.Request.Padding, in.Shape, len(in.Data), ready.Data)
			}
		}
		c.run("wait 1ms")
		send("f", 1, 1, "-")
		send("g", 2, 1, "-")
		c.run("end i; has i . . c; end i; has i f g; end i")
		if got := c.counts.sizes; len(got) != 4 || got[1] != 4 || got[2] != 3 {
			t.Errorf("batches have sizes %v, with padding", got)
		}
		c.leave()
	})
}
