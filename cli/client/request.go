package client

import (
	"encoding/json"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// LengthHeader has the length of the JSON in a body with binary tensors.
const LengthHeader = "Inference-Header-Content-Length"

// Tensor is an input or an output of a request. Region are the parameters of its place in shared
// memory, or empty.
type Tensor struct {
	infer.Tensor
	Region []infer.Parameter
}

// Request is an inference.
type Request struct {
	Model, Version  string // Version is "" for the server's choice
	ID              string
	Parameters      []infer.Parameter
	Inputs, Outputs []Tensor
}

// Int returns a parameter with a whole number.
func Int(name string, value int64) infer.Parameter {
	return infer.Parameter{Name: name, Kind: infer.IntParameter, Int: value}
}

// Bool returns a parameter with a truth value.
func Bool(name string, value bool) infer.Parameter {
	return infer.Parameter{Name: name, Kind: infer.BoolParameter, Bool: value}
}

// Message returns the request as a gRPC message.
func (r *Request) Message() *kserve.ModelInferRequest {
	m := &kserve.ModelInferRequest{ModelName: r.Model, ModelVersion: r.Version, Id: r.ID, Parameters: Parameters(r.Parameters)}
	for i := range r.Inputs {
		t := &r.Inputs[i]
		m.Inputs = append(m.Inputs, &kserve.ModelInferRequest_InferInputTensor{
			Name: t.Name, Datatype: t.DataType.String(), Shape: t.Shape, Parameters: Parameters(t.Region),
		})
		if len(t.Region) == 0 {
			m.RawInputContents = append(m.RawInputContents, t.Data)
		}
	}
	for i := range r.Outputs {
		t := &r.Outputs[i]
		m.Outputs = append(m.Outputs, &kserve.ModelInferRequest_InferRequestedOutputTensor{Name: t.Name, Parameters: Parameters(t.Region)})
	}
	return m
}

// Parameters returns parameters for a gRPC message.
func Parameters(list []infer.Parameter) map[string]*kserve.InferParameter {
	all := make(map[string]*kserve.InferParameter, len(list))
	for _, p := range list {
		one := &kserve.InferParameter{}
		switch {
		case p.Kind == infer.StringParameter:
			one.ParameterChoice = &kserve.InferParameter_StringParam{StringParam: p.String}
		case p.Kind == infer.BoolParameter:
			one.ParameterChoice = &kserve.InferParameter_BoolParam{BoolParam: p.Bool}
		case p.Kind == infer.DoubleParameter:
			one.ParameterChoice = &kserve.InferParameter_DoubleParam{DoubleParam: p.Double}
		case p.Name == "priority":
			one.ParameterChoice = &kserve.InferParameter_Uint64Param{Uint64Param: uint64(p.Int)} //nolint:gosec // as the protocol requires
		default:
			one.ParameterChoice = &kserve.InferParameter_Int64Param{Int64Param: p.Int}
		}
		all[p.Name] = one
	}
	return all
}

// jsonTensor is a tensor of the JSON of a request.
type jsonTensor struct {
	Name       string          `json:"name"`
	Shape      []int64         `json:"shape,omitzero"`
	DataType   string          `json:"datatype,omitempty"`
	Parameters json.RawMessage `json:"parameters"`
}

// HTTP returns the JSON of the request, and the tensors that follow it.
func (r *Request) HTTP() (head, body []byte, err error) {
	fields := struct {
		ID         string          `json:"id,omitempty"`
		Parameters json.RawMessage `json:"parameters,omitempty"`
		Inputs     []jsonTensor    `json:"inputs"`
		Outputs    []jsonTensor    `json:"outputs,omitempty"`
	}{ID: r.ID, Parameters: infer.AppendParameters(nil, r.Parameters), Inputs: []jsonTensor{}}
	add := func(to *[]jsonTensor, t *Tensor, kind string, otherwise infer.Parameter) {
		parameters := t.Region
		if len(parameters) == 0 {
			parameters = []infer.Parameter{otherwise}
		}
		*to = append(*to, jsonTensor{t.Name, t.Shape, kind, infer.AppendParameters(nil, parameters)})
	}
	for i := range r.Inputs {
		t := r.Inputs[i]
		if t.Shape == nil {
			t.Shape = []int64{}
		}
		add(&fields.Inputs, &t, t.DataType.String(), Int("binary_data_size", int64(len(t.Data))))
		if len(t.Region) == 0 {
			body = append(body, t.Data...)
		}
	}
	for i := range r.Outputs {
		add(&fields.Outputs, &r.Outputs[i], "", Bool("binary_data", true))
	}
	head, err = json.Marshal(fields)
	return head, body, err
}
