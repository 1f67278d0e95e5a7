package openapi

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
)

// Version is the version of the OpenAPI specification.
const Version = "3.1.0"

// object is a JSON object; its members are written in the order of their names.
type object = map[string]any

// Document returns the JSON of the document. Left is the number of further models for which there
// was no room.
func Document(serverVersion string, served []*models.Info, left int) ([]byte, error) {
	paths := object{
		"/v2":              object{"get": operation("server", "server_metadata", "Name, version and extensions of the server", nil, object{"type": "object"})},
		"/v2/health/live":  object{"get": operation("server", "server_live", "Whether the server works", nil, nil)},
		"/v2/health/ready": object{"get": operation("server", "server_ready", "Whether the server and its models are ready", nil, nil)},
		"/v2/models/stats": object{"get": operation("server", "statistics", "Counts and durations of all models", nil, object{"type": "object"})},
		"/v2/repository/index": object{"post": operation("server", "repository_index", "The models of the repository and their states",
			fields(object{"ready": boolean}), object{"type": "array", "items": object{"type": "object"}})},
	}
	addControl(paths)
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

// mostDescription is the number of bytes of a model's own description that Description returns.
const mostDescription = 4096

// Description returns the text that the parameter "description" of a model's config has, or "".
func Description(info *models.Info) string {
	text := info.Config.GetParameters()["description"].GetStringValue()
	return strings.ToValidUTF8(text[:min(len(text), mostDescription)], "")
}

// describe returns the model's own description and one sentence about its form.
func describe(info *models.Info) string {
	text := Description(info)
	if text != "" {
		text += "\n\n"
	}
	text += "Platform " + info.Platform()
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
		return // the endpoints for a single response reject it
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

// The schemas of simple members.
var (
	boolean = object{"type": "boolean"}
	text    = object{"type": "string"}
	count   = object{"type": "integer", "minimum": 0}
)

// fields returns the schema of an object with optional members.
func fields(properties object) object { return object{"type": "object", "properties": properties} }

// addControl adds the endpoints for metadata, settings and control.
func addControl(paths object) {
	logging := fields(object{"log_info": boolean, "log_warning": boolean, "log_error": boolean, "log_verbose_level": count, "log_format": text})
	tracing := fields(object{"trace_level": object{"type": "array", "items": text}, "trace_rate": text, "trace_count": text, "log_frequency": text})
	load := fields(object{"parameters": object{"type": "object", "properties": object{"config": object{"type": "string", "contentMediaType": "application/json"}}, "additionalProperties": text}})
	handle := fields(object{"raw_handle": fields(object{"b64": text}), "device_id": count, "byte_size": count})
	for _, e := range []struct {
		method, path, id, summary string
		request                   object
	}{
		{"get", "/v2/logging", "log_settings", "The settings of the log", nil},
		{"post", "/v2/logging", "change_log_settings", "Change settings of the log", logging},
		{"get", "/v2/trace/setting", "trace_settings", "The settings of traces", nil},
		{"post", "/v2/trace/setting", "change_trace_settings", "Change settings of traces", tracing},
		{"get", "/v2/models/{model}/trace/setting", "model_trace_settings", "The settings of the traces of a model", nil},
		{"post", "/v2/models/{model}/trace/setting", "change_model_trace_settings", "Change settings of the traces of a model", tracing},
		{"post", "/v2/repository/models/{model}/load", "load", "Load a model", load},
		{"post", "/v2/repository/models/{model}/unload", "unload", "Unload a model",
			fields(object{"parameters": fields(object{"unload_dependents": boolean})})},
		{"post", "/v2/repository/models/{model}/instances", "instances", "Change how many instances a model has",
			fields(object{"count": count, "group": text})},
		{"get", "/v2/systemsharedmemory/status", "system_regions", "The regions of shared memory", nil},
		{"get", "/v2/systemsharedmemory/region/{region}/status", "system_region", "A region of shared memory", nil},
		{"post", "/v2/systemsharedmemory/region/{region}/register", "register_system_region", "Register a region of shared memory",
			fields(object{"key": text, "offset": count, "byte_size": count})},
		{"post", "/v2/systemsharedmemory/region/{region}/unregister", "unregister_system_region", "Unregister a region of shared memory", nil},
		{"post", "/v2/systemsharedmemory/unregister", "unregister_system_regions", "Unregister all regions of shared memory", nil},
		{"get", "/v2/cudasharedmemory/status", "cuda_regions", "The regions on devices", nil},
		{"get", "/v2/cudasharedmemory/region/{region}/status", "cuda_region", "A region on a device", nil},
		{"post", "/v2/cudasharedmemory/region/{region}/register", "register_cuda_region", "Register a region on a device", handle},
		{"post", "/v2/cudasharedmemory/region/{region}/unregister", "unregister_cuda_region", "Unregister a region on a device", nil},
		{"post", "/v2/cudasharedmemory/unregister", "unregister_cuda_regions", "Unregister all regions on devices", nil},
	} {
		op := operation("server", e.id, e.summary, e.request, nil)
		if e.request != nil {
			op["requestBody"].(object)["required"] = false
		}
		if _, after, ok := strings.Cut(e.path, "{"); ok {
			name, _, _ := strings.Cut(after, "}")
			op["parameters"] = []any{object{"name": name, "in": "path", "required": true, "schema": text}}
		}
		if paths[e.path] == nil {
			paths[e.path] = object{}
		}
		paths[e.path].(object)[e.method] = op
	}
}

// operation describes a method of a path. request and reply are JSON schemas, nil for none.
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

// nameOf returns the schema of the name of one of the tensors.
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

// schema returns the schema of the tensor in the list of inputs or outputs. An output has no fixed
// shape, since a model may deviate from its configuration.
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

// example returns the tensor with one element in each variable dimension, if it is small.
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

// flat returns the schema of a request to generate: inputs by name, and parameters beside them.
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
