package process_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// sized is a model whose outputs have as many MiB as the first byte of the input says.
const sized = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(r.inputs()[0].as_numpy().flat[0]) << 20 for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.full((1, n), 7, np.uint8))]) for n in sizes]
`

// openSized opens that model.
func (c *charged) openSized(name string, instances int) *running {
	c.t.Helper()
	m, err := c.open(c.writeModel(name, sized), modelConfig(name, instances, infer.Uint8))
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// give returns an output of that many MiB of an instance.
func (m *running) give(instance int, mib byte) *infer.Response {
	responses := make(chan *infer.Response, 1)
	request := &infer.Request{Inputs: []infer.Tensor{{Name: "IN0", DataType: infer.Uint8, Shape: []int64{1, 1}, Data: []byte{mib}}}}
	task := &backend.Task{Context: context.Background(), Request: request, Send: func(r *infer.Response) { responses <- r }}
	m.model.Instances()[instance].Execute(&backend.Batch{Tasks: []*backend.Task{task}, Done: func(*backend.Batch, backend.Report) {}})
	return <-responses
}

// mustGive is give for a request that succeeds.
func (m *running) mustGive(instance int, mib byte) *infer.Response {
	m.fixture.t.Helper()
	r := m.give(instance, mib)
	if r.Err != nil {
		m.fixture.t.Fatalf("%d MiB of instance %d: got error %v", mib, instance, r.Err)
	}
	return r
}

// TestOutputsStayWithinAShare checks that all instances of a model share a bound of memory for
// outputs. Beyond it only the request fails whose output has no room, with an error that names the
// model and the bound.
func TestOutputsStayWithinAShare(t *testing.T) {
	const large = 11 // MiB; two fit into the share, three do not
	c := newCharged(t, 64<<20)
	other, m := c.openSized("other", 1), c.openSized("sized", 2)
	kept := []*infer.Response{m.mustGive(0, large), m.mustGive(1, large)}
	refused := m.give(1, large)
	share := c.share(budget.Arenas)
	if err := refused.Err; err == nil || err.Code != infer.Unavailable || !err.OutOfMemory ||
		!strings.Contains(err.Message, "Failed to increase the shared memory pool size to ") ||
		!strings.Contains(err.Message, `and model "sized" version 1 holds `) ||
		!strings.HasSuffix(err.Message, fmt.Sprintf(", but may hold %d (--model-max-memory-share)", share)) {
		t.Errorf("got error %v, want one with the model and its share of %d bytes", err, share)
	}
	m.mustGive(1, 1).Release()
	other.mustGive(0, 20).Release()
	for _, one := range c.supervisor.Instances() {
		for _, b := range one.Holds {
			if b.Kind == "arenas" && b.Limit != share {
				t.Errorf("%s: the status shows the limit %d, want %d", one.Name, b.Limit, share)
			}
		}
	}
	if n := strings.Count(c.log.String(), "requests of the model fail because memory is short"); n != 1 {
		t.Errorf("the log has %d warnings, want one", n)
	}
	releaseAll(append(kept, refused))
	m.mustGive(1, large).Release()
}

// TestRefusedOutputsReturnEarlierMemory checks that the memory of an earlier output is not charged
// any more once the process has released it for an output that is refused nevertheless.
func TestRefusedOutputsReturnEarlierMemory(t *testing.T) {
	c := newCharged(t, 64<<20)
	m := c.openSized("sized", 2)
	kept := m.mustGive(1, 11)
	rest := c.held(m, budget.Arenas)
	m.mustGive(0, 11).Release()
	refused := m.give(0, 20)
	if refused.Err == nil {
		t.Error("an output beyond the share is not refused")
	}
	testkit.Eventually(t, patience, func() bool { return c.held(m, budget.Arenas) <= rest })
	releaseAll([]*infer.Response{kept, refused})
}

// TestOutputsBeyondTheAccountAreItsFault checks that an output without room in the account does not
// blame the share of its model.
func TestOutputsBeyondTheAccountAreItsFault(t *testing.T) {
	c := newCharged(t, 64<<20)
	m, several := c.openSized("sized", 1), []*running{c.openSized("first", 1), c.openSized("second", 1)}
	kept := []*infer.Response{several[0].mustGive(0, 23), several[1].mustGive(0, 23)}
	refused := m.give(0, 23)
	if err := refused.Err; err == nil || err.Code != infer.Unavailable || !strings.HasSuffix(err.Message, ", or all of it, is used up (--request-memory-byte-size)") {
		t.Errorf("got error %v, want one about the server's memory", err)
	}
	releaseAll(append(kept, refused))
}

// TestCopiesOfOutputsStayWithinAShare checks that copies of outputs that clients hold end at the
// model's share of replies. Further outputs stay in the memory of the process.
func TestCopiesOfOutputsStayWithinAShare(t *testing.T) {
	const size = 5 // MiB
	c := newCharged(t, 64<<20)
	other, m := c.start("copies", infer.Uint8), c.openSized("sized", 1)
	var kept []*infer.Response
	copied := int64(0)
	for len(kept) == 0 || kept[len(kept)-1].Err == nil {
		kept = append(kept, m.give(0, size))
		copied = max(copied, c.held(m, budget.Replies))
	}
	if share := c.share(budget.Replies); copied > share || copied <= share-size<<20 {
		t.Errorf("%d bytes of %d outputs were copied, want most of the share of %d", copied, len(kept), share)
	}
	if err := kept[len(kept)-1].Err; !strings.Contains(err.Message, `model "sized" version 1 holds `) {
		t.Errorf("the outputs end with error %v, want one that names the model", err)
	}
	c.wantServing(other)
	releaseAll(kept)
}

// TestCopiesOfBLSInputsStayWithinAShare checks that a model whose BLS requests wait with copies of
// large inputs is refused at its share of blocks, and that others are served meanwhile.
func TestCopiesOfBLSInputsStayWithinAShare(t *testing.T) {
	const size, fit = 5 << 20, 4
	c := newCharged(t, 64<<20)
	host := &pausedModel{runningModels: &runningModels{}, open: make(chan struct{})}
	c.host = host
	other := c.start("copies", infer.Uint8)
	m, err := c.openWith(c.copyModel("asks"), modelConfig("asks", 1, infer.Uint8), map[string]string{"shm-default-byte-size": "33554432"}) // so that its outputs are not charged
	if err != nil {
		t.Fatal(err)
	}
	m.ask(fmt.Sprintf(`
said = []
def call():
    inputs = [pb.Tensor("IN0", np.zeros((1, %d), np.uint8))]
    said.append(pb.InferenceRequest(model_name="gate", requested_output_names=["OUT0"], inputs=inputs).exec().error().message())
threads = [threading.Thread(target=call) for _ in range(%d)]
for thread in threads:
    thread.start()
`, size, fit))
	testkit.Eventually(t, patience, func() bool { held, _ := m.instance().Held(); return held.Copied == fit*size })
	want := fmt.Sprintf(`model "asks" version 1 keeps %d bytes of input tensors after its responses and may keep %d (--model-max-memory-share)`,
		fit*size, c.share(budget.Blocks))
	if got := m.ask("call() or said[0]"); !strings.Contains(got, want) {
		t.Errorf("one more call: got %s, want %s", got, want)
	}
	c.wantServing(other)
	close(host.open)
	m.ask("for thread in threads: thread.join()")
	if got := m.ask("call() or said[-1]"); !strings.Contains(got, "the gate is open") {
		t.Errorf("a call after the others: got %s, want the error of the called model", got)
	}
	host.ended.Wait()
}
