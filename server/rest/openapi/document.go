package openapi

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
)

// Version of the specification of OpenAPI that documents follow.
const Version = "3.1.0"

// object is a JSON object; its members are written in the order of their names.
type object = map[string]any

// Document returns the JSON of the document. Left is how many models more are served, for which
// there was no room.
func Document(serverVersion string, served []*models.Info, left int) ([]byte, error) {
	paths := object{
		"/v2":              object{"get": operation("server", "server_metadata", "Name, version and extensions of the server", nil, object{"type": "object"})},
		"/v2/health/live":  object{"get": operation("server", "server_live", "Whether the server works", nil, nil)},
		"/v2/health/ready": object{"get": operation("server", "server_ready", "Whether the server and its models are ready", nil, nil)},
		"/v2/models/stats": object{"get": operation("server", "statistics", "Counts and durations of all models", nil, object{"type": "object"})},
		"/v2/repository/index": object{"post": operation("server", "repository_index", "The models of the repository and their states", nil,
			object{"type": "array", "items": object{"type": "object"}})},
	}
	tags := []any{object{"name": "server"}}
	for _, info := range served {
		tags = append(tags, object{"name": info.Name, "description": describe(info)})
		addModel(paths, info)
	}
	description := "KServe v2 with Triton's extensions. Binary tensors, sequences, shared memory and the rest of the protocol are Triton's."
	if left > 0 {
		description += " More models are served than are described here."
	}
	return json.Marshal(object{
		"openapi": Version,
		"info":    object{"title": "Nereid", "version": serverVersion, "description": description},
		"tags":    tags,
		"paths":   paths,
		"components": object{"schemas": object{"Error": object{
			"type": "object", "required": []string{"error"}, "properties": object{"error": object{"type": "string"}},
		}}},
	})
}

// describe is one sentence about a model.
func describe(info *models.Info) string {
	text := "Platform " + info.Platform()
	if n := info.Config.GetMaxBatchSize(); n > 0 {
		text += "; tensors have a batch dimension in front"
	}
	if info.Decoupled() {
		text += "; any number of responses to each request"
	}
	return text + "."
}

func addModel(paths object, info *models.Info) {
	name, path := info.Name, "/v2/models/"+url.PathEscape(info.Name)
	op := func(kind, summary string, request, reply object) object {
		return operation(name, kind+"_"+name, summary, request, reply)
	}
	paths[path] = object{"get": op("metadata", "Inputs and outputs of "+name, nil, object{"type": "object"})}
	paths[path+"/config"] = object{"get": op("config", "The configuration of "+name, nil, object{"type": "object"})}
	paths[path+"/ready"] = object{"get": op("ready", "Whether "+name+" is ready", nil, nil)}
	paths[path+"/stats"] = object{"get": op("stats", "Counts and durations of "+name, nil, object{"type": "object"})}
	stream := op("generate_stream", "Ask "+name+" with a flat object, for server-sent events", flat(info), nil)
	paths[path+"/generate_stream"] = object{"post": stream}
	stream["responses"].(object)["200"] = object{"description": "An event for each response", "content": object{"text/event-stream": object{}}}
	if info.Decoupled() {
		return // the endpoints for one response refuse it
	}
	paths[path+"/generate"] = object{"post": op("generate", "Ask "+name+" with a flat object", flat(info), object{"type": "object"})}
	infer := op("infer", "Ask "+name, inferRequest(info), inferReply(info))
	if in := info.Config.GetInput(); len(in) == 1 && in[0].GetDataType() == kserve.DataType_TYPE_STRING {
		content := infer["requestBody"].(object)["content"].(object)
		for _, media := range []string{"image/*", "audio/*", "application/octet-stream"} {
			content[media] = object{}
		}
	}
	paths[path+"/infer"] = object{"post": infer}
}

// operation describes a method of a path; request and reply are schemas of JSON, nil for none.
func operation(tag, id, summary string, request, reply object) object {
	good := object{"description": "Done"}
	if reply != nil {
		good["content"] = object{"application/json": object{"schema": reply}}
	}
	o := object{
		"tags": []string{tag}, "operationId": id, "summary": summary,
		"responses": object{"200": good, "default": object{
			"description": "Why it was refused",
			"content":     object{"application/json": object{"schema": object{"$ref": "#/components/schemas/Error"}}},
		}},
	}
	if request != nil {
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": request}}}
	}
	return o
}

// tensor is an input or an output of a configuration.
type tensor struct {
	name     string
	dataType infer.DataType
	shape    []int64 // with the batch dimension
	optional bool
}

func inputsOf(info *models.Info) (list []tensor) {
	for _, in := range info.Config.GetInput() {
		list = append(list, tensor{in.GetName(), infer.DataType(in.GetDataType()), shapeOf(info, in.GetDims()), in.GetOptional()})
	}
	return list
}

func outputsOf(info *models.Info) (list []tensor) {
	for _, out := range info.Config.GetOutput() {
		list = append(list, tensor{out.GetName(), infer.DataType(out.GetDataType()), shapeOf(info, out.GetDims()), false})
	}
	return list
}

func shapeOf(info *models.Info, dims []int64) []int64 {
	if info.Config.GetMaxBatchSize() > 0 {
		return append([]int64{-1}, dims...)
	}
	return dims
}

func inferRequest(info *models.Info) object {
	inputs, outputs := inputsOf(info), outputsOf(info)
	var kinds []any
	required := 0
	example := []any{}
	for _, in := range inputs {
		kinds = append(kinds, in.schema(true))
		if !in.optional {
			required++
			example = append(example, in.example())
		}
	}
	list := object{"type": "array", "minItems": required, "maxItems": len(inputs)}
	if len(kinds) > 0 {
		list["items"] = object{"anyOf": kinds}
	}
	return object{
		"type": "object", "required": []string{"inputs"},
		"properties": object{
			"id": object{"type": "string"}, "parameters": object{"type": "object"}, "inputs": list,
			"outputs": object{"type": "array", "items": object{
				"type": "object", "required": []string{"name"},
				"properties": object{"name": nameOf(outputs), "parameters": object{"type": "object"}},
			}},
		},
		"examples": []any{object{"inputs": example}},
	}
}

// nameOf is the schema of the name of one of the tensors.
func nameOf(list []tensor) object {
	if len(list) == 0 {
		return object{"type": "string"}
	}
	names := make([]string, 0, len(list))
	seen := map[string]bool{}
	for _, t := range list {
		if !seen[t.name] { // values of an enum are unique
			seen[t.name] = true
			names = append(names, t.name)
		}
	}
	return object{"type": "string", "enum": names}
}

func inferReply(info *models.Info) object {
	var kinds []any
	for _, out := range outputsOf(info) {
		kinds = append(kinds, out.schema(false))
	}
	list := object{"type": "array"}
	if len(kinds) > 0 {
		list["items"] = object{"anyOf": kinds}
	}
	return object{
		"type": "object", "required": []string{"model_name", "model_version", "outputs"},
		"properties": object{
			"id": object{"type": "string"}, "model_name": object{"type": "string"}, "model_version": object{"type": "string"},
			"parameters": object{"type": "object"}, "outputs": list,
		},
	}
}

// schema is that of the tensor in the list of inputs or outputs. Of an output the shape is the
// model's to say: it may answer otherwise than configured.
func (t tensor) schema(input bool) object {
	shape := object{"type": "array", "items": object{"type": "integer", "minimum": 0}}
	if input {
		dims := make([]any, 0, len(t.shape))
		for _, d := range t.shape {
			if d < 0 {
				dims = append(dims, object{"type": "integer", "minimum": 0})
			} else {
				dims = append(dims, object{"const": d})
			}
		}
		shape["minItems"], shape["maxItems"] = len(dims), len(dims)
		if len(dims) > 0 {
			shape["prefixItems"] = dims
		}
	}
	required := []string{"name", "datatype", "shape"}
	return object{
		"type": "object", "title": t.name + " " + t.dataType.String() + " " + infer.ShapeString(t.shape), "required": required,
		"properties": object{
			"name": object{"const": t.name}, "datatype": object{"const": t.dataType.String()}, "shape": shape,
			"data": object{"type": "array"}, "parameters": object{"type": "object"},
		},
	}
}

// maxExample bounds the elements of an example.
const maxExample = 16

// example is the tensor with one element in each dimension of any size, if it is small.
func (t tensor) example() object {
	n := int64(1)
	shape := make([]int64, len(t.shape))
	for i, d := range t.shape {
		shape[i] = max(d, 1)
		if n <= maxExample {
			n *= min(shape[i], maxExample+1)
		}
	}
	e := object{"name": t.name, "datatype": t.dataType.String(), "shape": shape}
	if n > maxExample {
		return e
	}
	data := make([]any, n)
	for i := range data {
		data[i] = t.zero()
	}
	e["data"] = data
	return e
}

func (t tensor) zero() any {
	switch t.dataType {
	case infer.Bytes:
		return "text"
	case infer.Bool:
		return false
	default:
		return 0
	}
}

// flat is the schema of a request to generate: inputs by name, and parameters beside them.
func flat(info *models.Info) object {
	properties, required := object{}, []string{}
	for _, in := range inputsOf(info) {
		if _, twice := properties[in.name]; twice {
			continue
		}
		one := object{"type": in.jsonType()}
		properties[in.name] = object{"anyOf": []any{one, object{"type": "array"}}}
		if !in.optional {
			required = append(required, in.name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

func (t tensor) jsonType() string {
	switch name := t.dataType.String(); {
	case t.dataType == infer.Bytes:
		return "string"
	case t.dataType == infer.Bool:
		return "boolean"
	case strings.Contains(name, "INT"):
		return "integer"
	default:
		return "number"
	}
}
