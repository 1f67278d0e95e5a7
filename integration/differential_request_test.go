package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// echo reports its request: name, type, shape and value of each input, the requested outputs, and
// the id. The parameter "outputs" gives the name, shape and type of the outputs other than SEEN.
const echo = `
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.outputs = json.loads(config["parameters"].get("outputs", {"string_value": "[]"})["string_value"])

    def execute(self, requests):
        responses = []
        for r in requests:
            seen = [[t.name(), str(t.as_numpy().dtype), list(t.as_numpy().shape), repr(t.as_numpy().tolist())] for t in r.inputs()]
            text = json.dumps([sorted(seen), sorted(r.requested_output_names()), r.request_id()])
            batch = r.inputs()[0].as_numpy().shape[0] if self.outputs and r.inputs() and r.inputs()[0].as_numpy().ndim else 1
            tensors = [pb_utils.Tensor("SEEN", np.array([text], object))]
            for name, shape, kind in self.outputs:
                shape = [batch if d == "batch" else d for d in shape]
                tensors.append(pb_utils.Tensor(name, np.zeros(shape, kind)))
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
`

// echoModels are configs by model name. The output SEEN is added to each.
var echoModels = map[string]string{
	"plain":      `input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } input { name: "B" data_type: TYPE_INT32 dims: [ -1 ] optional: true }`,
	"two":        `input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] } input { name: "B" data_type: TYPE_INT32 dims: [ 1 ] }`,
	"batched":    `max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } input { name: "B" data_type: TYPE_INT32 dims: [ -1 ] optional: true }`,
	"both":       `max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } input { name: "B" data_type: TYPE_INT32 dims: [ 1 ] }`,
	"ragged":     `max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } input { name: "B" data_type: TYPE_INT32 dims: [ 1 ] allow_ragged_batch: true }`,
	"optional":   `input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] optional: true } input { name: "B" data_type: TYPE_INT32 dims: [ -1 ] optional: true }`,
	"voluntary":  `max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] optional: true } input { name: "B" data_type: TYPE_INT32 dims: [ -1 ] optional: true }`,
	"none":       ``,
	"many":       `input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } input { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } input { name: "C" data_type: TYPE_FP32 dims: [ 1 ] } input { name: "D" data_type: TYPE_FP32 dims: [ 1 ] optional: true } input { name: "E" data_type: TYPE_FP32 dims: [ 1 ] }`,
	"reshape":    `input { name: "A" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 3, 2 ] } } input { name: "B" data_type: TYPE_INT32 dims: [ 2, -1, 3 ] reshape { shape: [ 2, 1, -1, 3 ] } optional: true }`,
	"scalar":     `max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] reshape { } } input { name: "B" data_type: TYPE_INT32 dims: [ -1, 2, -1 ] reshape { shape: [ -1, 1, 2, -1, 1 ] } optional: true }`,
	"strings":    `input { name: "A" data_type: TYPE_STRING dims: [ 2 ] } input { name: "B" data_type: TYPE_STRING dims: [ -1 ] optional: true }`,
	"texts":      `max_batch_size: 3 input { name: "A" data_type: TYPE_STRING dims: [ -1 ] }`,
	"text":       `input { name: "A" data_type: TYPE_STRING dims: [ 1 ] }`,
	"text_batch": `max_batch_size: 3 input { name: "A" data_type: TYPE_STRING dims: [ 1 ] }`,
	"flags":      `input { name: "A" data_type: TYPE_BOOL dims: [ -1 ] }`,
	"wild":       `input { name: "A" data_type: TYPE_INT16 dims: [ 2, -1 ] }`,
	"wilder":     `input { name: "A" data_type: TYPE_INT16 dims: [ -1, -1 ] }`,
	"fixed":      `input { name: "A" data_type: TYPE_FP64 dims: [ 2, 2 ] }`,
	"wild_batch": `max_batch_size: 4 input { name: "A" data_type: TYPE_UINT8 dims: [ -1, 3 ] }`,
	"half":       `input { name: "A" data_type: TYPE_FP16 dims: [ -1 ] }`,
	"long":       `max_batch_size: 1 input { name: "A" data_type: TYPE_UINT64 dims: [ -1, -1, -1 ] }`,
	"same_name":  `input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } input { name: "A" data_type: TYPE_FP32 dims: [ 3 ] }`,
	"in_and_out": `input { name: "SEEN" data_type: TYPE_FP32 dims: [ 2 ] }`,

	"out_same": `max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "O" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 3, 2 ] } }
parameters { key: "outputs" value { string_value: "[[\"O\",[\"batch\",3,2],\"float32\"]]" } }`,
	"out_dims": `max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "O" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 6 ] } }
parameters { key: "outputs" value { string_value: "[[\"O\",[\"batch\",2,3],\"float32\"]]" } }`,
	"out_scalar": `max_batch_size: 4 input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "O" data_type: TYPE_FP32 dims: [ 1 ] reshape { } }
parameters { key: "outputs" value { string_value: "[[\"O\",[\"batch\"],\"float32\"]]" } }`,
	"out_wild": `input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "O" data_type: TYPE_FP32 dims: [ -1, 2, -1 ] reshape { shape: [ -1, 1, 2, -1 ] } }
parameters { key: "outputs" value { string_value: "[[\"O\",[5,1,2,7],\"float32\"]]" } }`,
	"out_other": `input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "O" data_type: TYPE_FP32 dims: [ -1, 2, -1 ] reshape { shape: [ -1, 1, 2, -1 ] } }
parameters { key: "outputs" value { string_value: "[[\"O\",[5,3],\"float32\"]]" } }`,
	"out_more": `input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "O" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } } output { name: "P" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "outputs" value { string_value: "[[\"O\",[4],\"float32\"],[\"P\",[1],\"float32\"]]" } }`,
	"out_empty": `input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "O" data_type: TYPE_FP32 dims: [ -1, 2 ] reshape { shape: [ -1, 1, 2 ] } }
parameters { key: "outputs" value { string_value: "[[\"O\",[0,1,2],\"float32\"]]" } }`,
}

// sentInput is one input of a request, with its bytes.
type sentInput struct {
	name, dataType string
	shape          []int64
	data           []byte
}

// sent is a request to one of echoModels.
type sent struct {
	model   string
	inputs  []sentInput
	outputs []string
	raw     []byte // HTTP only: the body of a raw binary request
}

func (r sent) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s outputs %v", r.model, r.outputs)
	if r.raw != nil {
		fmt.Fprintf(&text, " raw %q", r.raw)
	}
	for _, in := range r.inputs {
		fmt.Fprintf(&text, " %s %s %v %d bytes %.40q", in.name, in.dataType, in.shape, len(in.data), in.data)
	}
	return text.String()
}

// http encodes the request in the format of the binary extension.
func (r sent) http() []byte {
	if r.raw != nil {
		return httpRequest("POST", "/v2/models/"+r.model+"/infer", "Inference-Header-Content-Length: 0", string(r.raw))
	}
	type tensor struct {
		Name       string         `json:"name"`
		DataType   string         `json:"datatype"`
		Shape      []int64        `json:"shape"`
		Parameters map[string]int `json:"parameters"`
	}
	type output struct {
		Name string `json:"name"`
	}
	request := struct {
		ID      string   `json:"id"`
		Inputs  []tensor `json:"inputs"`
		Outputs []output `json:"outputs,omitempty"`
	}{ID: "r", Inputs: []tensor{}}
	var tail strings.Builder
	for _, in := range r.inputs {
		request.Inputs = append(request.Inputs, tensor{in.name, in.dataType, append([]int64{}, in.shape...), map[string]int{"binary_data_size": len(in.data)}})
		tail.Write(in.data)
	}
	for _, name := range r.outputs {
		request.Outputs = append(request.Outputs, output{name})
	}
	head, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	return binaryPost(r.model, string(head), tail.String())
}

// grpc encodes the request with its bytes in raw_input_contents.
func (r sent) grpc() *kserve.ModelInferRequest {
	request := &kserve.ModelInferRequest{ModelName: r.model, Id: "r"}
	for _, in := range r.inputs {
		request.Inputs = append(request.Inputs, &kserve.ModelInferRequest_InferInputTensor{Name: in.name, Datatype: in.dataType, Shape: in.shape})
		request.RawInputContents = append(request.RawInputContents, in.data)
	}
	for _, name := range r.outputs {
		request.Outputs = append(request.Outputs, &kserve.ModelInferRequest_InferRequestedOutputTensor{Name: name})
	}
	return request
}

// gotInputs matches a list that Triton writes in the order of a hash table.
var gotInputs = regexp.MustCompile(`Got input\(s\) \[([^]]*)\]`)

func sortGot(text string) string {
	return gotInputs.ReplaceAllStringFunc(text, func(list string) string {
		names := strings.Split(gotInputs.FindStringSubmatch(list)[1], ",")
		slices.Sort(names)
		return "Got input(s) [" + strings.Join(names, ",") + "]"
	})
}

// askGRPC makes an RPC and returns its reply as text.
func askGRPC(client grpcservice.GRPCInferenceServiceClient, request *kserve.ModelInferRequest) string {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	response, err := client.ModelInfer(ctx, request)
	if err != nil {
		return fmt.Sprintf("%s: %s", status.Code(err), sortGot(status.Convert(err).Message()))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s %v", response.ModelName, response.ModelVersion, response.Id, response.Parameters)
	for i, out := range response.Outputs {
		fmt.Fprintf(&text, " %s %s %v %q", out.Name, out.Datatype, out.Shape, response.RawOutputContents[i])
	}
	return text.String()
}

// zeros returns the bytes of n zero elements of a type. Strings are empty.
func zeros(dataType string, n int64) []byte {
	if dataType == "BYTES" {
		return make([]byte, 4*n)
	}
	kind := infer.ParseDataType(dataType)
	return make([]byte, int64(kind.Size())*n)
}

// writtenRequests returns hand-written requests.
func writtenRequests() []sent {
	var list []sent
	add := func(model string, inputs ...sentInput) { list = append(list, sent{model: model, inputs: inputs}) }
	in := func(name, dataType string, shape ...int64) sentInput {
		n := int64(1)
		for _, d := range shape {
			n *= max(d, 0)
		}
		return sentInput{name, dataType, shape, zeros(dataType, n)}
	}
	with := func(i sentInput, data []byte) sentInput { i.data = data; return i }
	a, b := in("A", "FP32", 2), in("B", "INT32", 3)

	// These requests vary the number and the names of inputs.
	add("plain", a)
	add("plain", a, b)
	add("plain", b, a)
	add("plain", b)
	add("plain", in("C", "FP32", 2))
	add("plain", a, in("C", "FP32", 2))
	add("plain", b, in("C", "FP32", 2))
	add("plain", a, b, in("C", "FP32", 2))
	add("plain")
	add("plain", a, a)
	add("plain", a, b, b)
	add("plain", in("A", "FP64", 2), in("C", "FP32", 2))
	add("plain", in("A", "INT32", 3))
	add("two", in("A", "FP32", 1, 2))
	add("two", in("A", "FP32", 1, 2), in("C", "INT32", 1))
	add("two", in("A", "FP32", 0, 2), in("B", "INT32", 1))
	add("none")
	add("none", a)
	add("none", a, b)
	add("optional")
	add("optional", b)
	add("optional", in("C", "FP32", 2))
	add("voluntary")
	for n := range 6 {
		var inputs []sentInput
		for _, name := range []string{"E", "D", "C", "B", "A"}[:n%6] {
			inputs = append(inputs, in(name, "FP32", 1))
		}
		add("many", inputs...)
	}
	add("many", in("A", "FP32", 1), in("B", "FP32", 1), in("C", "FP32", 1), in("D", "FP32", 1))
	add("same_name", in("A", "FP32", 2))
	add("same_name", in("A", "FP32", 3))
	add("same_name", in("A", "FP32", 2), in("A", "FP32", 3))

	// These requests vary the batch.
	for _, n := range []int64{0, 1, 4, 5, -1, -2} {
		add("batched", in("A", "FP32", n, 2))
		add("batched", in("A", "FP32", n, 2), in("B", "INT32", n, 2))
	}
	add("batched", with(in("A", "FP32", 0, 2), zeros("FP32", 2)))
	add("batched", in("A", "FP32"))
	add("batched", in("A", "FP32", 2))
	add("batched", in("A", "FP32", 1, 2), in("B", "INT32"))
	add("batched", in("A", "FP32", 1, 2, 1))
	add("batched", in("A", "FP32", 4, 2), in("B", "INT32", 3, 2))
	add("batched", in("A", "FP32", 1, 3))
	add("batched", in("A", "FP32", -1, 3))
	add("batched", in("A", "FP32", 1, -1))
	add("both", in("A", "FP32", 2, 2), in("B", "INT32", 2, 1))
	add("both", in("A", "FP32", 2, 0), in("B", "INT32", 2, 1))
	add("ragged", in("A", "FP32", 2, 2), in("B", "INT32", 2, 1))
	add("ragged", in("A", "FP32", 2, 2), in("B", "INT32", 1, 1))
	add("ragged", in("A", "FP32", 2, 2), in("B", "INT32", 2, 2))
	add("wild_batch", in("A", "UINT8", 2, 0, 3))
	add("wild_batch", in("A", "UINT8", 2, 2, 4))

	// These requests use reshapes.
	add("reshape", in("A", "FP32", 2, 3))
	add("reshape", in("A", "FP32", 3, 2))
	add("reshape", in("A", "FP32", 2, 3), in("B", "INT32", 2, 4, 3))
	add("reshape", in("A", "FP32", 2, 3), in("B", "INT32", 2, 0, 3))
	add("scalar", in("A", "FP32", 1))
	add("scalar", in("A", "FP32", 1, 1))
	add("scalar", in("A", "FP32", 4, 1), in("B", "INT32", 4, 3, 2, 5))
	add("scalar", in("A", "FP32", 2, 1), in("B", "INT32", 2, 3, 3, 5))
	for model := range echoModels {
		if strings.HasPrefix(model, "out_") {
			shape := []int64{1}
			if strings.Contains(echoModels[model], "max_batch_size") {
				shape = []int64{2, 1}
			}
			add(model, in("A", "FP32", shape...))
			list = append(list,
				sent{model: model, inputs: []sentInput{in("A", "FP32", shape...)}, outputs: []string{"O"}},
				sent{model: model, inputs: []sentInput{in("A", "FP32", shape...)}, outputs: []string{"SEEN"}})
		}
	}
	slices.SortStableFunc(list, func(a, b sent) int { return strings.Compare(a.model, b.model) })

	// These requests vary types and sizes.
	for _, dataType := range []string{"BOOL", "INT8", "FP16", "FP32", "FP64", "BYTES", "BF16", "INT32", "X", ""} {
		add("fixed", in("A", dataType, 2, 2))
		add("half", in("A", dataType, 2))
		add("text", in("A", dataType, 1))
	}
	for _, n := range []int64{0, 4, 31, 32, 33} {
		add("fixed", with(in("A", "FP64", 2, 2), make([]byte, n)))
	}
	add("wild", in("A", "INT16", 2, 0))
	add("wild", in("A", "INT16", 2, 3))
	add("wild", in("A", "INT16", 2, -1))
	add("wild", in("A", "INT16", 2, -5))
	add("wild", in("A", "INT16", -5, 2))
	add("wild", with(in("A", "INT16", 2, 0), make([]byte, 2)))
	add("wild", with(in("A", "INT16", 2), make([]byte, 8)))
	add("wilder", sentInput{"A", "INT16", []int64{1 << 62, 1}, make([]byte, 8)})

	// These requests vary strings.
	short := []byte{1, 0, 0}
	for _, data := range [][]byte{
		testkit.TensorData("a", "b"), testkit.TensorData("", ""), testkit.TensorData("a"), testkit.TensorData("a", "b", "c"), nil, short, append(testkit.TensorData("a"), short...), append(testkit.TensorData("a", "b"), short...),
		append(testkit.TensorData("a"), 9, 0, 0, 0, 'x'), append(testkit.TensorData("a"), 9, 0, 0, 0), append(testkit.TensorData("a", "b"), 9, 0, 0, 0, 'x'), {255, 255, 255, 255}, append(testkit.TensorData("a"), 0, 0, 0, 128, 1),
	} {
		add("strings", sentInput{"A", "BYTES", []int64{2}, data})
		add("strings", sentInput{"A", "BYTES", []int64{2}, testkit.TensorData("a", "b")}, sentInput{"B", "BYTES", []int64{1}, data})
		add("strings", sentInput{"A", "BYTES", []int64{2}, testkit.TensorData("a", "b")}, sentInput{"B", "BYTES", []int64{0}, data})
		add("texts", sentInput{"A", "BYTES", []int64{2, 1}, data})
		add("texts", sentInput{"A", "BYTES", []int64{2, 0}, data})
	}

	// These requests vary the requested outputs.
	for _, outputs := range [][]string{{"SEEN"}, {"OTHER"}, {"SEEN", "OTHER"}, {""}} {
		list = append(list, sent{model: "plain", inputs: []sentInput{a}, outputs: outputs}, sent{model: "plain", inputs: []sentInput{b}, outputs: outputs})
	}
	list = append(list, sent{model: "out_more", inputs: []sentInput{in("A", "FP32", 1)}, outputs: []string{"P", "O"}})

	// These are raw binary requests.
	for _, model := range []string{"plain", "two", "none", "batched", "optional", "text", "text_batch", "texts", "strings", "flags", "wild", "wilder", "fixed", "wild_batch", "half", "long", "reshape", "same_name"} {
		for _, data := range []string{"", "ab", "\x00\x00\x80\x3f\x00\x00\x00\x40", "0123456789ab", strings.Repeat("x", 32)} {
			list = append(list, sent{model: model, raw: []byte(data)})
		}
	}
	return list
}

// randomRequests returns random requests that are almost valid.
func randomRequests(n int) []sent {
	random := rand.New(rand.NewPCG(1, 2))
	models := slices.Sorted(func(yield func(string) bool) {
		for name := range echoModels {
			if !yield(name) {
				return
			}
		}
	})
	input := regexp.MustCompile(`input \{ name: "(\w+)" data_type: TYPE_(\w+) dims: \[ ([^]]*) \]`)
	list := make([]sent, n)
	for i := range list {
		model := models[random.IntN(len(models))]
		r := sent{model: model}
		batched := strings.Contains(echoModels[model], "max_batch_size")
		batch := int64(1 + random.IntN(2))
		for _, m := range input.FindAllStringSubmatch(echoModels[model], -1) {
			in := sentInput{name: m[1], dataType: m[2]}
			if in.dataType == "STRING" {
				in.dataType = "BYTES"
			}
			if batched {
				in.shape = append(in.shape, batch)
			}
			for dim := range strings.SplitSeq(m[3], ", ") {
				var d int64
				_, _ = fmt.Sscan(dim, &d)
				if d < 0 {
					d = int64(random.IntN(3))
				}
				in.shape = append(in.shape, d)
			}
			r.inputs = append(r.inputs, in)
		}
		// Spoil one input only, because Triton may report any of several bad inputs.
		bad := random.IntN(max(len(r.inputs), 1))
		for range random.IntN(3) {
			spoil(random, &r, bad)
		}
		for k := range r.inputs {
			in := &r.inputs[k]
			elements := int64(1)
			for _, d := range in.shape {
				elements *= max(d, 0)
			}
			in.data = zeros(in.dataType, elements)
			if k == bad && random.IntN(6) == 0 {
				in.data = append(in.data, make([]byte, 4)...)[random.IntN(4):]
			}
		}
		list[i] = r
	}
	return list
}

// spoil changes a part of a request or of its k-th input.
func spoil(random *rand.Rand, r *sent, k int) {
	if len(r.inputs) <= k || random.IntN(8) == 0 {
		r.inputs = append(r.inputs, sentInput{name: "Z", dataType: "FP32", shape: []int64{1}})
		return
	}
	in := &r.inputs[k]
	switch random.IntN(7) {
	case 0:
		r.inputs = slices.Delete(r.inputs, k, k+1)
	case 1:
		in.name = "Y"
	case 2:
		in.dataType = []string{"FP32", "INT64", "BYTES", "BOOL"}[random.IntN(4)]
	case 3:
		in.shape = append(slices.Clone(in.shape), 1)
	case 4:
		if len(in.shape) > 0 {
			in.shape = slices.Clone(in.shape[1:])
		}
	case 5:
		if len(in.shape) > 0 {
			in.shape[random.IntN(len(in.shape))] = int64(random.IntN(7)) - 2
		}
	case 6:
		r.outputs = append(r.outputs, []string{"SEEN", "OTHER"}[random.IntN(2)])
	}
}

// differs returns the reason why this server replies differently, or "".
func (r sent) differs() string {
	config := echoModels[r.model]
	for _, in := range r.inputs {
		elements := int64(1)
		for i, d := range in.shape {
			switch {
			case d < -1:
				return "later releases of Triton say which dimension cannot be"
			case d < 1 && i == 0 && strings.Contains(config, "max_batch_size"):
				return "a batch that is empty or negative is refused, of which Triton makes one without a batch dimension, or hangs"
			case d > 1<<31:
				return "later releases of Triton refuse what overflows, and numpy refuses it in the model, where it ends the model"
			}
			elements *= d
		}
	}
	if r.model == "out_other" {
		return "an output that does not have its reshape is left as it is, where Triton reads dimensions that are not there"
	}
	return ""
}

// firstOf matches an error about inputs with different batch sizes. Which of the inputs it names
// may differ.
var firstOf = regexp.MustCompile(`input '\w+' (batch size does not match other inputs)`)

// TestRequestsSameAsTriton sends valid and invalid requests to Triton and to this server, over HTTP
// and gRPC. Models must receive the same, and clients must get the same replies.
func TestRequestsSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	files := map[string]string{}
	for name, config := range echoModels {
		files[name+"/config.pbtxt"] = "backend: \"python\"\n" + config + "\noutput { name: \"SEEN\" data_type: TYPE_STRING dims: [ 1 ] }"
		if strings.Contains(config, "max_batch_size") && !strings.HasPrefix(name, "out_") {
			files[name+"/config.pbtxt"] = strings.Replace(files[name+"/config.pbtxt"], "name: \"SEEN\" data_type: TYPE_STRING dims: [ 1 ]", "name: \"SEEN\" data_type: TYPE_STRING dims: [ -1 ]", 1)
		}
		files[name+"/1/model.py"] = echo
	}
	repository := writeFiles(t, files)
	servers := []*runningServer{startTriton(t, dir, repository), start(t, "/usr/bin/python3", repository)}
	var clients []grpcservice.GRPCInferenceServiceClient
	for _, s := range servers {
		connection, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", s.grpc), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		clients = append(clients, grpcservice.NewGRPCInferenceServiceClient(connection))
	}
	requests := append(writtenRequests(), randomRequests(300)...)
	compare := func(r sent, form, want, got string) {
		want, got = firstOf.ReplaceAllString(want, "$1"), firstOf.ReplaceAllString(got, "$1")
		if want != got && r.differs() == "" {
			t.Errorf("%s %s\n   Triton: %q\n   Nereid: %q", form, r, want, got)
		}
	}
	for _, r := range requests {
		var answers [2]string
		for i, s := range servers {
			answer, err := s.raw(r.http())
			answers[i] = sortGot(answer)
			if err != nil {
				answers[i] += err.Error()
			}
		}
		compare(r, "HTTP", answers[0], answers[1])
		if r.raw == nil {
			compare(r, "gRPC", askGRPC(clients[0], r.grpc()), askGRPC(clients[1], r.grpc()))
		}
	}
	t.Logf("%d requests", len(requests))
}
