package message

import (
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
)

const (
	emptyFinalParam = "triton_enable_empty_final_response"
	// maxCorrelation is the maximum length of a string correlation id.
	maxCorrelation = 128
	// fewParams is the number of parameters up to which a linear search finds duplicates.
	fewParams = 16
)

// Request is one inference: the request to the Core, and the form of its reply.
type Request struct {
	// Infer is filled by Lookup and Build.
	Infer   infer.Request
	message message
	// Forwarded are parameters made from metadata. Refusal is the error if that has failed.
	Forwarded []infer.Parameter
	Refusal   error
	// Classes lists the outputs that the client wants as classes, Places those that it wants in
	// its regions.
	Classes []Classes
	Places  []RegionOutput
	// EmptyFinal: the client wants a reply for a final flag without a response.
	EmptyFinal bool
	inputs     [2]infer.Tensor // room for a typical request
	foreign    []int           // indexes of inputs in clients' regions

	// Space for the message of a typical request.
	messageInputs  [1]input
	messageOutputs [1]output
	messageRaw     [1]raw
}

// Classes is the number of classes wanted of an output.
type Classes struct {
	Output string
	Count  int
}

// NewRequest returns a Request whose message is charged to the account and holder.
func NewRequest(account *budget.Account, holder *budget.Holder) *Request {
	q := &Request{}
	q.message.charge.Account, q.message.charge.Holder = account, holder
	q.message.inputs, q.message.outputs, q.message.raw = q.messageInputs[:0], q.messageOutputs[:0], q.messageRaw[:0]
	return q
}

// Receive reads and decodes the next message of r; it returns io.EOF after the last one. After a
// *OutOfMemory only this request fails, and the rest of its message is still in r.
func (q *Request) Receive(r *Receiver, alloc server.Allocator) error {
	if err := r.next(&q.message.charge, r.cfg.MaxBytes); err != nil {
		return err
	}
	if err := q.message.decode(&r.source, alloc); err != nil {
		return err
	}
	r.source.close()
	return nil
}

// ReceiveOnly is Receive for an RPC with one message.
func (q *Request) ReceiveOnly(r *Receiver, alloc server.Allocator) error {
	if err := q.Receive(r, alloc); err != nil {
		if err == io.EOF {
			err = errNoMessage
		}
		return err
	}
	return r.last()
}

// Asked returns the model, the text of the version and the id of the message.
func (q *Request) Asked() (model, version, id string) {
	return q.message.model, q.message.version, q.message.id
}

// Classify replaces the response's outputs that the client wants as classes.
func (q *Request) Classify(r *infer.Response, info *models.Info) error {
	return Classify(&q.message.charge, r, q.Classes, info)
}

// Charge charges n bytes, in addition to the message, until Release.
func (q *Request) Charge(n int64) error {
	return AsOutOfMemory(q.message.charge.Take(budget.Bodies, n))
}

// Release releases all memory of the request. It may be called again.
func (q *Request) Release() {
	q.ReleaseInputs()
	for i := range q.Places {
		q.Places[i].Slice.Release()
	}
	q.Places = nil
}

// ReleaseInputs releases the memory that is not needed for the reply.
func (q *Request) ReleaseInputs() {
	for _, i := range q.foreign {
		q.Infer.Inputs[i].Release()
	}
	q.foreign = nil
	q.message.release()
}

// Lookup finds the message's model. It checks the version's text first.
func (q *Request) Lookup(core server.Core) (models.Target, error) {
	version, err := ParseVersion(q.message.version)
	if err != nil {
		return nil, err
	}
	q.Infer.Model, q.Infer.Version = q.message.model, version
	return core.Target(q.message.model, version)
}

// Build makes the request from the message. The order of the checks decides which error a client
// sees: parameters, names, forwarded headers, input bytes, output parameters.
func (q *Request) Build(alloc server.Allocator, named *clientshm.Registry) error {
	m, r := &q.message, &q.Infer
	r.ID = m.id
	if err := q.parameters(); err != nil {
		return err
	}
	if err := q.names(); err != nil {
		return err
	}
	if q.Refusal != nil {
		return q.Refusal
	}
	r.Parameters = append(r.Parameters, q.Forwarded...) // bound: the headers of a call
	if err := q.data(alloc, named); err != nil {
		return err
	}
	return q.wanted(named)
}

// parameters interprets the parameters that Triton defines and passes all others to the model.
func (q *Request) parameters() error {
	m, r := &q.message, &q.Infer
	last := lastParams(m.params)
	for i := range m.params {
		if !last(i) {
			continue
		}
		p := &m.params[i]
		v := &p.value
		switch p.name {
		case "sequence_id":
			switch v.kind {
			case int64Param:
				r.Correlation = infer.CorrelationID{Number: v.bits}
			case stringParam:
				if len(v.string) > maxCorrelation {
					return infer.Errorf(infer.Unsupported, "string correlation ID cannot be longer than %d characters", maxCorrelation)
				}
				r.Correlation = infer.CorrelationID{Text: v.string}
			default:
				return invalid("invalid value type for 'sequence_id' parameter, expected int64_param or string_param.")
			}
		case "sequence_start", "sequence_end", emptyFinalParam:
			if v.kind != boolParam {
				return invalid("invalid value type for '%s' parameter, expected bool_param.", p.name)
			}
			switch {
			case p.name == emptyFinalParam:
				q.EmptyFinal = v.bits != 0
			case v.bits == 0:
			case p.name == "sequence_start":
				r.Flags |= infer.SequenceStart
			default:
				r.Flags |= infer.SequenceEnd
			}
		case "priority":
			switch {
			case v.kind == int64Param && int64(v.bits) < 0:
				return invalid("invalid value for 'priority', expected value >= 0.")
			case v.kind != int64Param && v.kind != uint64Param:
				return invalid("invalid value type for 'priority' parameter, expected int64_param or uint64_param.")
			}
			r.Priority = v.bits
		case "timeout":
			if v.kind != int64Param {
				return invalid("invalid value type for 'timeout' parameter, expected int64_param.")
			}
			r.TimeoutMicros = v.bits
		default:
			if strings.HasPrefix(p.name, server.ReservedPrefix) {
				return invalid("parameter keys starting with 'triton_' are reserved for Triton usage. "+
					"Only the following keys starting with 'triton_' are allowed: %s", emptyFinalParam)
			}
			param, err := p.custom()
			if err != nil {
				return err
			}
			r.Parameters = append(r.Parameters, param) // bound: the message's parameters, which are charged
		}
	}
	return nil
}

// custom converts a parameter for the model.
func (p *param) custom() (infer.Parameter, error) {
	v := &p.value
	out := infer.Parameter{Name: p.name}
	switch v.kind {
	case boolParam:
		out.Kind, out.Bool = infer.BoolParameter, v.bits != 0
	case int64Param:
		out.Kind, out.Int = infer.IntParameter, int64(v.bits)
	case stringParam:
		out.Kind, out.String = infer.StringParameter, v.string
	case doubleParam:
		out.Kind, out.Double = infer.DoubleParameter, math.Float64frombits(v.bits)
	default:
		return out, invalid("invalid value type for '%s' parameter, expected int64_param, bool_param, or string_param.", p.name)
	}
	return out, nil
}

// names sets the names, types and shapes of the inputs and the names of the outputs. Duplicate
// names are errors.
func (q *Request) names() error {
	m, r := &q.message, &q.Infer
	r.Inputs = q.inputs[:0]
	var seen server.Names
	for i := range m.inputs {
		in := &m.inputs[i]
		if !seen.Add(in.name, len(r.Inputs), func(k int) string { return r.Inputs[k].Name }) {
			return invalid("%sinput '%s' already exists in request", r.LogPrefix(), in.name)
		}
		r.Inputs = append(r.Inputs, infer.Tensor{Name: in.name, DataType: in.dataType, Shape: in.shape}) // bound: the message's inputs, which are charged
	}
	seen = server.Names{}
	for i := range m.outputs {
		name := m.outputs[i].name
		if !seen.Add(name, len(r.Outputs), func(k int) string { return r.Outputs[k] }) {
			return invalid("%soutput '%s' already exists in request", r.LogPrefix(), name)
		}
		r.Outputs = append(r.Outputs, name) // bound: the message's outputs, which are charged
	}
	return nil
}

// data sets the bytes of each input: a client's region, its contents, or the next entry of
// raw_input_contents.
func (q *Request) data(alloc server.Allocator, named *clientshm.Registry) error {
	m, r := &q.message, &q.Infer
	next := 0
	for i := range m.inputs {
		in, t := &m.inputs[i], &r.Inputs[i]
		where, err := readRange(in.name, in.params)
		if err != nil {
			return err
		}
		switch {
		case where.given && in.contents.given:
			return invalid("unexpected 'content' provided when using shared memory for input tensor '%s' for model '%s'", in.name, r.Model)
		case where.given:
			slice, err := where.find(named)
			if err != nil {
				return err
			}
			t.Memory = slice
			q.foreign = append(q.foreign, i) // bound: the message's inputs, which are charged
		case in.contents.given && len(m.raw) > 0:
			return invalid("contents field must not be specified when using raw_input_contents for '%s' for model '%s'", in.name, r.Model)
		case in.contents.given:
			if t.Data, t.Memory, err = m.typed(in, r.Model, alloc); err != nil {
				return err
			}
			in.contents = contents{}
		case next < len(m.raw):
			t.Data, t.Memory = m.raw[next].data, m.raw[next].memory
			next++
		default:
			return invalid("unable to find data for input tensor '%s' for model '%s' in request.", in.name, r.Model)
		}
	}
	return nil
}

// wanted reads the parameters of the outputs.
//
// bound: the message's outputs, which are charged
func (q *Request) wanted(named *clientshm.Registry) error {
	for i := range q.message.outputs {
		out := &q.message.outputs[i]
		if len(out.params) == 0 {
			continue
		}
		where, err := readRange(out.name, out.params)
		if err != nil {
			return err
		}
		classes := findParam(out.params, "classification")
		switch {
		case where.given && classes != nil:
			return invalid("output can't set both 'shared_memory_region' and 'classification'")
		case where.given:
			slice, err := where.find(named)
			if err != nil {
				return err
			}
			q.Places = append(q.Places, RegionOutput{out.name, slice})
			q.Infer.Places = append(q.Infer.Places, infer.Place{Output: out.name, Memory: slice})
		case classes == nil:
		case classes.kind != int64Param:
			return invalid("invalid value type for 'classification' parameter, expected int64_param")
		case int64(classes.bits) <= 0:
			return invalid("invalid value for 'classification' parameter, expected >= 0")
		default:
			q.Classes = append(q.Classes, Classes{out.name, int(min(classes.bits, math.MaxInt32))})
		}
	}
	return nil
}

// findParam returns the value of a parameter, or nil.
func findParam(params []param, name string) *value {
	for i := len(params) - 1; i >= 0; i-- {
		if params[i].name == name {
			return &params[i].value
		}
	}
	return nil
}

// lastParams returns a function that reports whether params[i] is the last one with its name.
func lastParams(params []param) func(i int) bool {
	if len(params) <= fewParams {
		return func(i int) bool { return findParam(params, params[i].name) == &params[i].value }
	}
	last := make(map[string]int, len(params)) // bound: the message's parameters, which are charged
	for i := range params {
		last[params[i].name] = i // bound: the message's parameters, which are charged
	}
	return func(i int) bool { return last[params[i].name] == i }
}

// ParseVersion parses a version as C's stol does: leading white space, a sign, digits, then
// anything. An empty text means the latest version.
func ParseVersion(text string) (int64, error) {
	if text == "" {
		return infer.LatestVersion, nil
	}
	digits := strings.TrimLeft(text, " \t\n\v\f\r")
	end := 0
	if strings.HasPrefix(digits, "-") || strings.HasPrefix(digits, "+") {
		end = 1
	}
	for end < len(digits) && digits[end] >= '0' && digits[end] <= '9' {
		end++
	}
	version, err := strconv.ParseInt(digits[:end], 10, 64)
	if err != nil {
		return 0, invalid("failed to get model version from specified version string '%s' (details: stol), "+
			"version should be an integral value > 0", text)
	}
	if version < 0 {
		return 0, invalid("invalid model version specified '%s' , version should be an integral value > 0", text)
	}
	return version, nil
}
