package inference

import (
	"math"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// requestHead has the meaningful members of the JSON of an inference. Errors win in the order in
// which Triton finds them: id, parameters, each input with its data before the next input,
// left-over bytes, outputs.
type requestHead struct {
	id, parameters, inputs, outputs jsontext.Value
}

func readRequestHead(t *jsontext.Document) (h requestHead) {
	_ = findMembers(t.Root(), nil, member{"id", &h.id}, member{"parameters", &h.parameters}, member{"inputs", &h.inputs}, member{"outputs", &h.outputs})
	return h
}

// member is a member of an object, and where its value goes.
type member struct {
	name  string
	value *jsontext.Value
}

// findMembers sets the values of the wanted members of v. The first of several members of one name
// counts. The error is that of check, which may be nil and is called for each member.
func findMembers(v jsontext.Value, check func(name jsontext.String, value jsontext.Value) error, wanted ...member) error {
	for m := v.Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			return nil
		}
		if check != nil {
			if err := check(name, value); err != nil {
				return err
			}
		}
		for _, w := range wanted {
			if !w.value.Exists() && name.Is(w.name) {
				*w.value = value
			}
		}
	}
}

// maxCorrelationID is the longest correlation id that is a text, in bytes.
const maxCorrelationID = 128

// ReadParameters reads the JSON of a request's parameters into req, like the front end, for a
// program that sends requests itself. The error is Triton's text, or that of a JSON error.
func ReadParameters(text []byte, req *infer.Request) error {
	var scanner jsontext.Scanner
	t, err := scanner.Scan(nil, text)
	if err != nil {
		return err
	}
	var q Request
	q.charge.Account = budget.New(budget.Config{}) // the program's own memory
	q.all.Items = &q.items
	_, err = q.readParameters(t.Root(), req)
	return err
}

// readParameters reads the request's parameters into req. binary is the value of
// binary_data_output.
func (q *Request) readParameters(v jsontext.Value, req *infer.Request) (binary bool, err error) {
	if !v.IsObject() {
		return false, &infer.Error{Code: infer.Internal, Message: "failed to get request params.: " + jsontext.ErrNotObject.Error()}
	}
	var seen struct{ id, start, end, priority, timeout, binary bool }
	once := func(seen *bool) bool {
		first := !*seen
		*seen = true
		return first
	}
	custom := server.Names{}
	for m := v.Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			return binary, nil
		}
		switch {
		case name.Is("sequence_id"):
			if once(&seen.id) {
				err = readCorrelation(value, req)
			}
		case name.Is("sequence_start"):
			if once(&seen.start) {
				err = readFlag(value, "sequence_start", req, infer.SequenceStart)
			}
		case name.Is("sequence_end"):
			if once(&seen.end) {
				err = readFlag(value, "sequence_end", req, infer.SequenceEnd)
			}
		case name.Is("priority"):
			if once(&seen.priority) {
				if req.Priority, err = value.Uint(); err != nil {
					err = values.UnableTo("parse", "priority", err)
				}
			}
		case name.Is("timeout"):
			if once(&seen.timeout) {
				if req.TimeoutMicros, err = value.Uint(); err != nil {
					err = values.UnableTo("parse", "timeout", err)
				}
			}
		case name.Is("binary_data_output"):
			if once(&seen.binary) {
				if binary, err = value.Bool(); err != nil {
					err = values.UnableTo("parse", "binary_data_output", err)
				}
			}
		default:
			if err := q.all.Add(name, value); err != nil {
				return false, err
			}
			key := name.String() // bound: charged by Add
			if strings.HasPrefix(key, server.ReservedPrefix) {
				return false, infer.Errorf(infer.InvalidArg,
					"parameter keys starting with '%s' are reserved for Triton usage and should not be specified.", server.ReservedPrefix)
			}
			p, ok := values.ReadParameter(value, key)
			if !ok {
				return false, infer.Errorf(infer.InvalidArg,
					"parameter '%s' has invalid type. It should be either 'int', 'bool', or 'string'.", key)
			}
			if custom.Add(key, len(req.Parameters), func(i int) string { return req.Parameters[i].Name }) {
				req.Parameters = append(req.Parameters, p) // bound: tallied
			}
		}
		if err != nil {
			return false, err
		}
	}
}

func readCorrelation(v jsontext.Value, req *infer.Request) error {
	if n, err := v.Uint(); err == nil {
		req.Correlation.Number = n
		return nil
	}
	s, err := v.Text()
	if err != nil {
		return values.UnableTo("parse", "sequence_id", err)
	}
	if s.Len() > maxCorrelationID {
		return infer.Errorf(infer.Unsupported, "string correlation ID cannot be longer than %d characters", maxCorrelationID)
	}
	req.Correlation.Text = s.String() // bound: maxCorrelationID
	return nil
}

func readFlag(v jsontext.Value, name string, req *infer.Request, flag uint32) error {
	on, err := v.Bool()
	if err != nil {
		return values.UnableTo("parse", name, err)
	}
	if on {
		req.Flags |= flag
	}
	return nil
}

// outputForm is the requested form of an output.
type outputForm struct {
	name    string
	binary  bool
	classes int // top-K classification; 0: none
	// region is the range of a client's region for the output, nil if it goes into the reply. The
	// Request owns it.
	region *clientshm.Slice
}

// readOutputs reads the requested outputs and their forms. An empty list counts as none.
func (q *Request) readOutputs(v jsontext.Value, req *infer.Request) error {
	elements, err := v.Elements()
	if err != nil {
		return values.UnableTo("parse", "outputs", err)
	}
	var names server.Names
	for {
		v, ok := elements.Next()
		if !ok {
			return nil
		}
		if err := q.items.Add(values.ItemBytes); err != nil {
			return err
		}
		form, err := q.readOutput(v)
		if err != nil {
			return err
		}
		q.forms = append(q.forms, form) // owned by the Request before anything can fail; bound: tallied
		if !names.Add(form.name, len(req.Outputs), func(i int) string { return req.Outputs[i] }) {
			return infer.Errorf(infer.InvalidArg, "%soutput '%s' already exists in request", req.LogPrefix(), form.name)
		}
		req.Outputs = append(req.Outputs, form.name) // bound: tallied
	}
}

func (q *Request) readOutput(v jsontext.Value) (form outputForm, err error) {
	var binary, classes, region, regionOffset, regionLen jsontext.Value
	err = findMembers(v.Member("parameters"), q.all.Check,
		member{"binary_data", &binary}, member{"classification", &classes}, member{"shared_memory_region", &region},
		member{"shared_memory_offset", &regionOffset}, member{"shared_memory_byte_size", &regionLen})
	if err != nil {
		return form, err
	}
	if region.Exists() {
		if classes.Exists() {
			return form, infer.Errorf(infer.InvalidArg, "Output can't set both 'shared_memory_region' and 'classification'")
		}
		if binary.Exists() {
			on, err := binary.Bool()
			if err != nil {
				return form, values.UnableTo("set", "binary_data", err)
			}
			if on {
				return form, infer.Errorf(infer.InvalidArg, "Output can't set both 'shared_memory_region' and 'binary_data'")
			}
		}
	}
	if form.name, err = q.readName(v.Member("name")); err != nil {
		return form, err
	}
	if classes.Exists() {
		k, err := classes.Uint()
		if err != nil {
			return form, values.UnableTo("set", "classification", err)
		}
		form.classes = int(min(k, math.MaxInt32))
	}
	if region.Exists() {
		if form.region, err = q.findRegion(region, regionOffset, regionLen); err != nil {
			return form, err
		}
		q.req.Places = append(q.req.Places, infer.Place{Output: form.name, Memory: form.region}) // bound: tallied
		return form, nil
	}
	if _, _, err = readRange(regionOffset, regionLen); err != nil {
		return form, err
	}
	if binary.Exists() {
		if form.binary, err = binary.Bool(); err != nil {
			return form, values.UnableTo("parse", "binary_data", err)
		}
	}
	return form, nil
}

// form returns the requested form of the output of that name.
func (q *Request) form(name string) outputForm {
	for i := range q.forms {
		if q.forms[i].name == name {
			return q.forms[i]
		}
	}
	return outputForm{binary: q.binary}
}
