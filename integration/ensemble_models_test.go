package integration

import (
	"fmt"
	"strings"
)

// modelFiles adds the files of a model. Tensors have the form "IN0:INT32[1]".
func modelFiles(files map[string]string, name, inputs, outputs, more, code string) {
	files[name+"/config.pbtxt"] = "backend: \"python\"\n" + tensorLines("input", inputs) + tensorLines("output", outputs) + more
	files[name+"/1/model.py"] = code
}

// ensembleFiles adds the files of an ensemble. Steps have the form "id(IN0=A)->OUT0=B".
func ensembleFiles(files map[string]string, name, inputs, outputs, more string, steps ...string) {
	var b strings.Builder
	b.WriteString("platform: \"ensemble\"\n" + tensorLines("input", inputs) + tensorLines("output", outputs) + "ensemble_scheduling {\n")
	for _, step := range steps {
		model, rest, _ := strings.Cut(step, "(")
		in, out, _ := strings.Cut(rest, ")->")
		version := "-1"
		if m, v, pinned := strings.Cut(model, "@"); pinned {
			model, version = m, v
		}
		fmt.Fprintf(&b, "  step { model_name: %q model_version: %s", model, version)
		for kind, pairs := range map[string]string{"input_map": in, "output_map": out} {
			for _, pair := range strings.Split(pairs, ",") {
				of, tensor, _ := strings.Cut(pair, "=")
				fmt.Fprintf(&b, " %s { key: %q value: %q }", kind, of, tensor)
			}
		}
		b.WriteString(" }\n")
	}
	inside, more, _ := strings.Cut(more, "|")
	files[name+"/config.pbtxt"] = b.String() + inside + "}\n" + more
	files[name+"/1/.keep"] = ""
}

// tensorLines parses "A", "A:FP32[4]" and "A:INT32[1]?"; the default is INT32[1].
func tensorLines(kind, tensors string) string {
	var b strings.Builder
	for _, tensor := range strings.Fields(tensors) {
		name, rest, _ := strings.Cut(tensor, ":")
		if rest == "" {
			rest = "INT32[1]"
		}
		dataType, dims, _ := strings.Cut(rest, "[")
		dims, more, _ := strings.Cut(dims, "]")
		if more == "?" {
			more = "optional: true"
		} else if more != "" {
			more = "reshape { shape: " + more + " }"
		}
		fmt.Fprintf(&b, "%s { name: %q data_type: TYPE_%s dims: [ %s ] %s }\n", kind, name, dataType, dims, more)
	}
	return b.String()
}

const (
	// echoes returns its inputs.
	echoes = `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(t.name().replace("IN", "OUT"), t.as_numpy()) for t in r.inputs()])
            for r in requests
        ]
`
	// chooses returns zero to two outputs, or an error, depending on its input.
	chooses = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r.inputs()[0].as_numpy()) for r in requests]

    def answer(self, t):
        one, other = pb_utils.Tensor("OUT0", t), pb_utils.Tensor("OUT1", t)
        n = int(t.flat[0])
        if n == 3:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("bad luck", pb_utils.TritonError.NOT_FOUND))
        if n == 4:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.zeros([0], np.int32)), other])
        if n == 5:
            raise RuntimeError("boom")
        return pb_utils.InferenceResponse({0: [], 1: [one], 2: [one, other], 6: [other]}[n])
`
	// repeats sends the number of responses in its input. 11 is an error, and 12 is a response with
	// the final flag.
	repeats = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            t = r.inputs()[0].as_numpy()
            n = int(t.flat[0])

            def send(i, flags=0):
                sender.send(pb_utils.InferenceResponse(
                    [pb_utils.Tensor("OUT0", np.full(t.shape, i, t.dtype)), pb_utils.Tensor("OUT1", np.full(t.shape, 10 * i, t.dtype))]
                ), flags=flags)

            if n == 12:
                send(12, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                continue
            if n == 11:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("mid")))
            else:
                for i in range(n):
                    send(i)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`
	// sees reports its request.
	sees = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.array([self.seen(r).encode()], dtype=object))]) for r in requests]

    def seen(self, r):
        return "|".join([
            r.request_id(), str(r.correlation_id()), str(r.flags()), str(r.timeout()), r.parameters().replace(" ", ""),
            ",".join(sorted(r.requested_output_names())), ",".join(t.name() + str(list(t.shape())).replace(" ", "") for t in r.inputs()),
        ])
`
	// belongs returns response parameters that set the sequence, depending on its input.
	belongs = `
import triton_python_backend_utils as pb_utils

CHOICES = [
    {}, {"sequence_id": 5}, {"sequence_id": "five", "sequence_start": True}, {"sequence_end": True}, {"sequence_id": True},
    {"sequence_start": "x"}, {"other": 1},
]

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())], parameters=CHOICES[int(r.inputs()[0].as_numpy()[0])])
            for r in requests
        ]
`
	// counts returns the number of requests in its batch.
	counts = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        n = np.array([[len(requests)]], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", n)]) for _ in requests]
`
	// takesTime returns the times of its start and end, in seconds of the monotonic clock.
	takesTime = `
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        began = time.monotonic()
        time.sleep(0.2)
        times = np.array([began, time.monotonic()])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", times)]) for _ in requests]
`
	// waitsForLeave responds once its client has disconnected.
	waitsForLeave = `
import os
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        with open(os.path.join(DIRECTORY, "begun"), "w"):
            pass
        while not requests[0].is_cancelled():
            time.sleep(0.001)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
`
	// asksEnsemble calls the ensemble in its parameter "callee" if its input is 7.
	asksEnsemble = `
import json
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.callee = json.loads(args["model_config"])["parameters"]["callee"]["string_value"]

    def execute(self, requests):
        answers = []
        for r in requests:
            t = r.inputs()[0].as_numpy()
            if t[0] == 7:
                called = pb_utils.InferenceRequest(
                    model_name=self.callee, requested_output_names=["B"], inputs=[pb_utils.Tensor("A", t)]
                ).exec()
                if called.has_error():
                    answers.append(pb_utils.InferenceResponse(error=called.error()))
                    continue
                t = pb_utils.get_output_tensor_by_name(called, "B").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", t)]))
        return answers
`
)

const oneAsked = `{"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":[1]}]}`

// stepModels returns the models that the ensembles of these tests call.
func stepModels() (files map[string]string, names []string) {
	files = make(map[string]string)
	add := func(name, inputs, outputs, more, code string) {
		modelFiles(files, name, inputs, outputs, more, code)
		names = append(names, name)
	}
	const streams = "model_transaction_policy { decoupled: true }\n"
	add("id", "IN0", "OUT0", "", echoes)
	add("id2", "IN0 IN1", "OUT0 OUT1", "", echoes)
	add("idopt", "IN0 IN1:INT32[1]?", "OUT0 OUT1", "", echoes)
	add("idb4", "IN0:INT32[-1]", "OUT0:INT32[-1]", "max_batch_size: 4\n", echoes)
	add("idb8", "IN0", "OUT0", "max_batch_size: 8\n", echoes)
	add("idv", "IN0:INT32[-1]", "OUT0:INT32[-1]", "", echoes)
	add("id4", "IN0:INT32[4]", "OUT0:INT32[4]", "", echoes)
	add("idf", "IN0:FP32[1]", "OUT0:FP32[1]", "", echoes)
	add("rep", "IN0", "OUT0 OUT1", streams, repeats)
	add("rep2", "IN0", "OUT0 OUT1", streams, repeats)
	add("choice", "IN0", "OUT0:INT32[-1] OUT1", "", chooses)
	add("seen", "IN0:INT32[-1]", "OUT0:STRING[1]", "", sees)
	return files, names
}
