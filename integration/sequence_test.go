package integration

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// tellerModel keeps a total per sequence in its process. It returns the values of the control
// tensors and of the request, and the number of padded requests.
const tellerModel = `
import json
import numpy as np
import triton_python_backend_utils as pb_utils


def control(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    value = tensor.as_numpy()
    got = value.reshape(-1)[0]
    return [list(value.shape), str(value.dtype), got.decode() if isinstance(got, bytes) else got.item()]


class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}
        self.name = args["model_instance_name"]

    def execute(self, requests):
        responses = []
        ready = [control(r, "READY") for r in requests]
        padding = sum(1 for r in ready if r is not None and r[2] <= 0)
        for request in requests:
            start, end, corrid = (control(request, name) for name in ("START", "END", "CORRID"))
            value = pb_utils.get_input_tensor_by_name(request, "VALUE").as_numpy()
            key = request.correlation_id()
            if request.flags() & 1:
                self.totals[key] = 0
            self.totals[key] = self.totals.get(key, 0) + int(value.sum())
            saw = json.dumps({"start": start, "end": end, "corrid": corrid, "ready": control(request, "READY"),
                              "id": key, "flags": request.flags(), "batch": len(requests), "padding": padding,
                              "instance": self.name})
            if request.flags() & 2:
                total = self.totals.pop(key)
            else:
                total = self.totals[key]
            shape = (1, 1) if value.ndim == 2 else (1,)
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("TOTAL", np.full(shape, total, np.int32)),
                pb_utils.Tensor("SAW", np.full(shape, saw.encode(), np.object_)),
            ]))
        return responses
`

// keeperModel keeps its total, its history and their text form in implicit state.
const keeperModel = `
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            value, total, history, words = (
                pb_utils.get_input_tensor_by_name(request, n).as_numpy() for n in ("VALUE", "TOTAL_IN", "HISTORY_IN", "WORDS_IN"))
            if value.reshape(-1)[0] < 0:
                raise ValueError("below zero")
            axis = history.ndim - 1
            history = np.concatenate([history, value], axis=axis)
            words = np.concatenate([words, value.astype(np.int64).astype(np.bytes_).astype(np.object_)], axis=axis)
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("TOTAL", total + value),
                pb_utils.Tensor("HISTORY_OUT", history),
                pb_utils.Tensor("WORDS", words),
                pb_utils.Tensor("LENGTH", np.full(value.shape, history.shape[axis], np.int32)),
            ]))
        return responses
`

func tellerConfig(maxBatch, instances, sequence string) string {
	return `backend: "python"
max_batch_size: ` + maxBatch + `
input [ { name: "VALUE" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "TOTAL" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "SAW" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { count: ` + instances + ` kind: KIND_CPU } ]
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  ` + sequence + `
}
`
}

// controlsOf returns all four control tensors. The boolean ones have the given type.
func controlsOf(field, values, corrid string) string {
	var b strings.Builder
	for _, kind := range []string{"START", "END", "READY"} {
		b.WriteString(`control_input [ { name: "` + kind + `" control [ { kind: CONTROL_SEQUENCE_` + kind + ` ` + field + `: [ ` + values + ` ] } ] } ]` + "\n")
	}
	return b.String() + `control_input [ { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: ` + corrid + ` } ] } ]` + "\n"
}

func keeperConfig(maxBatch, sequence string) string {
	return `backend: "python"
max_batch_size: ` + maxBatch + `
input [ { name: "VALUE" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "TOTAL" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "LENGTH" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "WORDS" data_type: TYPE_STRING dims: [ -1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  ` + sequence + `
  state [
    { input_name: "TOTAL_IN" output_name: "TOTAL" data_type: TYPE_INT32 dims: [ 1 ]
      initial_state: { name: "t" data_type: TYPE_INT32 dims: [ 1 ] data_file: "hundred" } },
    { input_name: "HISTORY_IN" output_name: "HISTORY_OUT" data_type: TYPE_INT32 dims: [ -1 ]
      initial_state: { name: "h" data_type: TYPE_INT32 dims: [ 2 ] zero_data: true } },
    { input_name: "WORDS_IN" output_name: "WORDS" data_type: TYPE_STRING dims: [ -1 ] }
  ]
}
`
}

// sequenceModels returns the models for testdata/sequences.py.
func sequenceModels() map[string]string {
	hundred := string(binary.LittleEndian.AppendUint32(nil, 100)) + "what follows is passed over"
	files := map[string]string{}
	for name, config := range map[string]string{
		"direct":   tellerConfig("4", "1", "direct { }\n"+controlsOf("int32_false_true", "0, 1", "TYPE_UINT64")),
		"fill":     tellerConfig("4", "1", "direct { max_queue_delay_microseconds: 1000000 minimum_slot_utilization: 0.75 }\n"+controlsOf("fp32_false_true", "-1, 2", "TYPE_INT32")),
		"oldest":   tellerConfig("4", "1", "oldest { max_candidate_sequences: 16 max_queue_delay_microseconds: 10000 }\n"+controlsOf("bool_false_true", "false, true", "TYPE_INT64")),
		"texts":    tellerConfig("0", "2", "direct { }\n"+controlsOf("fp32_false_true", "0.5, 1.5", "TYPE_STRING")),
		"one_slot": tellerConfig("0", "1", ""),
		"short":    strings.Replace(tellerConfig("0", "1", "oldest { max_candidate_sequences: 1 }"), "60000000", "300000", 1),
	} {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"] = config, tellerModel
	}
	for name, config := range map[string]string{
		"keeper": keeperConfig("0", ""), "keeper_direct": keeperConfig("2", "direct { }"), "keeper_oldest": keeperConfig("4", "oldest { max_candidate_sequences: 100 }"),
	} {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"] = config, keeperModel
		files[name+"/initial_state/hundred"] = hundred
	}
	return files
}

// TestSequencesRunInBothStrategies sends sequences over HTTP and gRPC to models of both strategies,
// with all kinds of control tensors and with implicit state, and checks the responses.
func TestSequencesRunInBothStrategies(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, sequenceModels()))
			s.runClient("sequences.py")
		})
	}
}

// TestSequencesOfALostProcess kills stubs that have sequences, during an execution and between two
// requests. A sequence with implicit state must continue in a new stub, and others must not.
func TestSequencesOfALostProcess(t *testing.T) {
	files := map[string]string{}
	const dies = "            if value.reshape(-1)[0] == 666:\n                import os\n                os._exit(1)\n"
	const diesSoon = "            if value.reshape(-1)[0] == 777:\n                import os, threading\n                threading.Timer(0.001, os._exit, (1,)).start()\n"
	teller := strings.Replace(tellerModel, "            key = request", dies+diesSoon+"            key = request", 1)
	models := map[string][2]string{
		"teller": {tellerConfig("0", "1", ""), teller},
		"keeper": {keeperConfig("0", ""), strings.Replace(keeperModel, "            axis = history", dies+"            axis = history", 1)},
	}
	for i := range 3 { // few deaths each, because a model in a crash loop gets no requests
		models[fmt.Sprintf("direct_%d", i)] = [2]string{tellerConfig("0", "1", "direct { }"), teller}
		models[fmt.Sprintf("oldest_%d", i)] = [2]string{tellerConfig("0", "1", "oldest { max_candidate_sequences: 3 }"), teller}
	}
	for name, m := range models {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"] = strings.Replace(m[0], "count: 2", "count: 1", 1), m[1]
	}
	files["keeper/initial_state/hundred"] = "d\x00\x00\x00"
	s := start(t, testkit.Python(t).Path, writeFiles(t, files))
	s.runClient("sequences_lost.py")
}
