package integration

import "testing"

const (
	// feeds responds to a request for n with 1 to n, as one complete sequence with the request's
	// correlation id.
	feeds = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            n = int(r.inputs()[0].as_numpy()[0])
            for i in range(1, n + 1):
                answer = pb_utils.Tensor("OUT0", np.array([i], np.int32))
                sender.send(pb_utils.InferenceResponse([answer], parameters={"sequence_start": i == 1, "sequence_end": i == n}))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`
	// adds returns the running total of a sequence.
	adds = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    totals = {}

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.array([self.add(r)], np.int32))]) for r in requests]

    def add(self, r):
        key, start = r.correlation_id(), pb_utils.get_input_tensor_by_name(r, "START").as_numpy()[0]
        total = (0 if start else self.totals[key]) + int(pb_utils.get_input_tensor_by_name(r, "IN0").as_numpy()[0])
        self.totals[key] = total
        if r.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            del self.totals[key]
        return total
`
)

// TestEnsemblesKeepTheStateOfSequences checks ensembles with a stateful step before or after steps
// with any number of responses.
func TestEnsemblesKeepTheStateOfSequences(t *testing.T) {
	files := make(map[string]string)
	const streams = "model_transaction_policy { decoupled: true }\n"
	modelFiles(files, "id", "IN0", "OUT0", "", echoes)
	modelFiles(files, "rep", "IN0", "OUT0 OUT1", streams, repeats)
	modelFiles(files, "feeds", "IN0", "OUT0", streams, feeds)
	const begins = `control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ]`
	for strategy, says := range map[string]string{"direct": "direct { }", "oldest": "oldest { max_candidate_sequences: 3 }"} {
		adder := "adds_" + strategy
		modelFiles(files, adder, "IN0", "OUT0", "instance_group [ { count: 2 kind: KIND_CPU } ]\n"+
			"sequence_batching { max_sequence_idle_microseconds: 60000000 "+says+" "+begins+" }\n", adds)
		ensembleFiles(files, "total_"+strategy, "A", "B C", "", "id(IN0=A)->OUT0=X", adder+"(IN0=X)->OUT0=Y", "id(IN0=Y)->OUT0=B", "id(IN0=Y)->OUT0=C")
		ensembleFiles(files, "fed_"+strategy, "A", "B", "", "feeds(IN0=A)->OUT0=X", adder+"(IN0=X)->OUT0=Y", "id(IN0=Y)->OUT0=B")
		ensembleFiles(files, "counted_"+strategy, "A", "B C", "", adder+"(IN0=A)->OUT0=X", "rep(IN0=X)->OUT0=B,OUT1=C")
		ensembleFiles(files, "nested_"+strategy, "A", "B", "", "id(IN0=A)->OUT0=X", "fed_"+strategy+"(A=X)->B=B")
	}
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, files))
			s.runClient("ensemble_sequences.py")
		})
	}
}
