package integration

import (
	"strings"
	"testing"
)

// callsSequences makes the BLS requests in its input: a model, and for each sequence its id and its
// requests, each with a value and flags. The requests of a sequence follow each other. The code
// that replaces HOW determines the rest of the order.
const callsSequences = `
import asyncio
import json
import numpy as np
import triton_python_backend_utils as pb_utils


def request(model, batched, number, value, flags):
    value = np.full((1, 1) if batched else (1,), value, np.int32)
    return pb_utils.InferenceRequest(
        model_name=model, requested_output_names=[], inputs=[pb_utils.Tensor("VALUE", value)], correlation_id=number, flags=flags)


def told(response):
    if response.has_error():
        return {"error": response.error().message()}
    answer = {t.name(): t.as_numpy().reshape(-1)[0] for t in response.output_tensors()}
    return {"total": int(answer["TOTAL"]), **(json.loads(answer["SAW"]) if "SAW" in answer else {})}


HOW
    def one(self, asked):
        try:
            return json.dumps(self.calls(asked))
        except Exception as e:
            return json.dumps({"raised": type(e).__name__ + ": " + str(e)})


def answer(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.array([text.encode()], np.object_))])


def plan(r):
    return json.loads(pb_utils.get_input_tensor_by_name(r, "CALLS").as_numpy()[0])
`

// callOneByOne makes the first request of each sequence, then the second of each, and so on.
const callOneByOne = `
class TritonPythonModel:
    def execute(self, requests):
        return [answer(self.one(plan(r))) for r in requests]

    def calls(self, asked):
        answers = [[] for _ in asked["sequences"]]
        for n in range(max(len(calls) for _, calls in asked["sequences"])):
            for i, (number, calls) in enumerate(asked["sequences"]):
                if n < len(calls):
                    answers[i].append(told(request(asked["model"], asked["batched"], number, *calls[n]).exec()))
        return answers
`

// callSideBySide runs the sequences concurrently.
const callSideBySide = `
class TritonPythonModel:
    async def execute(self, requests):
        return [answer(await self.all(plan(r))) for r in requests]

    async def all(self, asked):
        try:
            return json.dumps(await asyncio.gather(*[self.sequence(asked, *s) for s in asked["sequences"]]))
        except Exception as e:
            return json.dumps({"raised": type(e).__name__ + ": " + str(e)})

    async def sequence(self, asked, number, calls):
        return [told(await request(asked["model"], asked["batched"], number, *c).async_exec()) for c in calls]
`

const callsConfig = `backend: "python"
input [ { name: "CALLS" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "TOLD" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
`

// calledSequences returns the calling models, and called models for both strategies and both kinds
// of correlation ids.
func calledSequences() map[string]string {
	files := sequenceModels()
	for _, model := range []string{"fill", "one_slot", "short"} { // these are for clients only
		for path := range files {
			if strings.HasPrefix(path, model+"/") {
				delete(files, path)
			}
		}
	}
	files["oldest_texts/config.pbtxt"] = tellerConfig("4", "2", "oldest { max_candidate_sequences: 4 }\n"+controlsOf("int32_false_true", "0, 1", "TYPE_STRING"))
	files["oldest_texts/1/model.py"] = tellerModel
	for name, how := range map[string]string{"exec": callOneByOne, "async_exec": callSideBySide} {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"] = callsConfig, strings.Replace(callsSequences, "HOW\n", how+"\n", 1)
	}
	return files
}

// TestModelsCallModelsWithSequences checks that sequence parameters have the same effect in BLS
// requests as in requests of clients, and that models and clients can take turns in a sequence.
func TestModelsCallModelsWithSequences(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, calledSequences()))
			s.runClient("sequence_calls.py")
		})
	}
}
