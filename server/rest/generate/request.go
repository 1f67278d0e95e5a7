package generate

import (
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// nested is the member whose own members are mapped like those beside it.
const nested = "parameters"

var errCoding = &infer.Error{Code: infer.InvalidArg, Message: "Unsupported content-encoding, only 'identity' is supported."}

// Codec creates the Requests of one front end.
type Codec struct {
	bodies     *body.Gatherer
	allocate   server.Allocator
	forwarding *server.Forwarding
}

// NewCodec returns a Codec. bodies reads request bodies; allocate lends memory for inputs, which
// are on the Go heap if it is nil; forwarding chooses the headers that become parameters, none if
// it is nil.
func NewCodec(bodies *body.Gatherer, allocate server.Allocator, forwarding *server.Forwarding) *Codec {
	return &Codec{bodies: bodies, allocate: allocate, forwarding: forwarding}
}

// Request is one request and the encoder of its responses.
type Request struct {
	infer.Request
	codec   *Codec
	inputs  []*kserve.ModelInput // of the model
	batched bool
	tops    []bool         // whether each parameter is of the outer object
	at      map[string]int // the index of a parameter, once there are more than few
	charge  budget.Charge
	items   values.ItemCharges
	all     values.Parameters
	members []member // scratch memory of Append
}

// few is how many parameters are searched linearly.
const few = 16

// Read makes a request from the body of r for the version that was found for a model. The caller
// releases it. The error is the client's, with Triton's text.
func (c *Codec) Read(r *http1.Request, found *models.Info, model string, version int64) (*Request, error) {
	if coding, known := r.Coding(); !known || coding != http1.Identity {
		return nil, errCoding
	}
	q := &Request{codec: c, inputs: found.Config.GetInput(), batched: found.Config.GetMaxBatchSize() > 0}
	q.Model, q.Version = model, version
	q.begin(budget.Charge{Account: c.bodies.Account, Holder: r.Holder()})
	err := c.bodies.Whole(r, func(text []byte, c *budget.Charge) error {
		doc, err := body.Parse(c, new(jsontext.Scanner), text)
		if err != nil {
			return err
		}
		return q.read(doc.Root())
	})
	if err == nil {
		n := len(q.Parameters)
		if q.Parameters, err = body.ForwardHeaders(q.Parameters, r, c.forwarding); err == nil {
			err = q.items.Add((len(q.Parameters) - n) * values.ItemBytes)
		}
	}
	if err != nil {
		q.Release()
		return nil, err
	}
	return q, nil
}

// begin sets up the charges of the request.
func (q *Request) begin(c budget.Charge) {
	q.charge = c
	q.items.Charge, q.all.Items = &q.charge, &q.items
}

// Release releases the memory of the request. It may be called again.
func (q *Request) Release() {
	for i := range q.Inputs {
		q.Inputs[i].Release()
	}
	q.Inputs = nil
	q.charge.Settle()
}

func (q *Request) read(v jsontext.Value) error {
	if !v.IsObject() {
		return &infer.Error{Code: infer.Internal, Message: "attempt to get members for non-object"}
	}
	if id := v.Member("id"); id.Exists() {
		text, err := id.Text()
		if err != nil {
			return values.UnableTo("parse", "id", err)
		}
		if err := values.Check("id", text.Len(), q.charge.Limits().RequestID, "--client-max-id-size"); err != nil {
			return err
		}
		if q.ID, err = q.items.Text(text); err != nil {
			return err
		}
	}
	return q.readMembers(v, true)
}

// readMembers reads the members of an object: the body, or the object that is nested in it. Of
// duplicate names in one object the first counts.
func (q *Request) readMembers(v jsontext.Value, top bool) error {
	dived := false
	for m := v.Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			return nil
		}
		input := q.input(name)
		var err error
		switch {
		case top && name.Is(nested):
			if input != nil {
				return infer.Errorf(infer.InvalidArg, "Keyword '%s' for nested schema also given as input tensor name", nested)
			}
			if dived {
				continue
			}
			dived = true
			err = q.readNested(value)
		case input != nil:
			err = q.addInput(input, value)
		default:
			if err = q.all.Add(name, value); err == nil {
				err = q.addParameter(name.String(), value, top) // bound: charged by Add
			}
		}
		if err != nil {
			return err
		}
	}
}

func (q *Request) readNested(v jsontext.Value) error {
	if !v.IsObject() {
		return &infer.Error{Code: infer.Internal, Message: "Expected JSON object for keyword: '" + nested + "': attempt to access JSON non-object as object"}
	}
	if err := q.readMembers(v, false); err != nil {
		e := infer.AsError(err)
		return &infer.Error{Code: e.Code, Message: "Converting keyword: '" + nested + "': " + e.Message}
	}
	return nil
}

// input returns the model's input of that name, or nil.
func (q *Request) input(name jsontext.String) *kserve.ModelInput {
	for _, in := range q.inputs {
		if name.Is(in.GetName()) {
			return in
		}
	}
	return nil
}

// addParameter adds a parameter of the outer or the nested object. It overwrites a parameter of the
// other object.
func (q *Request) addParameter(name string, v jsontext.Value, top bool) error {
	p, ok := values.ReadParameter(v, name)
	if !ok {
		return infer.Errorf(infer.InvalidArg, "parameter '%s' has invalid type. It should be either 'int', 'bool', or 'string'.", name)
	}
	switch at, found := q.find(name); {
	case !found:
		q.Parameters, q.tops = append(q.Parameters, p), append(q.tops, top) // bound: tallied
	case q.tops[at] != top:
		q.Parameters[at], q.tops[at] = p, top
	}
	return nil
}

func (q *Request) find(name string) (at int, found bool) {
	n := len(q.Parameters)
	if n <= few {
		for i := range q.Parameters {
			if q.Parameters[i].Name == name {
				return i, true
			}
		}
		return 0, false
	}
	if q.at == nil {
		q.at = make(map[string]int, 2*n) // bound: the parameters, which are tallied
	}
	for i := len(q.at); i < n; i++ {
		q.at[q.Parameters[i].Name] = i // bound: the parameters, which are tallied
	}
	at, found = q.at[name]
	return at, found
}

// addInput makes a tensor from a value, which is its only element or the array of all.
func (q *Request) addInput(in *kserve.ModelInput, v jsontext.Value) error {
	for i := range q.Inputs {
		if q.Inputs[i].Name == in.GetName() {
			return infer.Errorf(infer.InvalidArg, "%sinput '%s' already exists in request", q.LogPrefix(), in.GetName())
		}
	}
	t := infer.Tensor{Name: in.GetName(), DataType: infer.DataType(in.GetDataType())}
	n := int64(1)
	if elements, err := v.Elements(); err == nil {
		n = 0
		for _, ok := elements.Next(); ok; _, ok = elements.Next() {
			n++
		}
	}
	size := n * int64(t.DataType.Size())
	if t.DataType == infer.Bytes {
		var err error
		if size, err = values.StringsSize(v.Items()); err != nil {
			return err
		}
	}
	var fits bool
	if t.Shape, fits = Shape(q.batched, in.GetDims(), n); !fits {
		return infer.Errorf(infer.InvalidArg, "The schema can not convert input '%s' to tensor with proper shape", t.Name)
	}
	if t.DataType == infer.FP16 || t.DataType == infer.BF16 {
		return infer.Errorf(infer.InvalidArg, "receiving %s data via JSON is not supported. Please use the binary data format for input %s", t.DataType, t.Name)
	}
	if err := q.codec.bodies.CheckInput(t.Name, size); err != nil {
		return err
	}
	if err := q.codec.allocate.Tensor(&t, int(size), &q.charge); err != nil {
		return err
	}
	q.Inputs = append(q.Inputs, t) // bound: the model's inputs
	if t.DataType == infer.Bytes {
		values.ReadStrings(v.Items(), t.Data[:0])
		return nil
	}
	return values.ReadNumbers(v.Items(), t.DataType, n, t.Data)
}

// Shape gives n elements the dimensions of an input, after the batch dimension if batched. Fixed
// dimensions keep their size, the last variable one takes the rest, and other variable ones are 1.
// ok is false if n elements do not fit.
//
// bound: the dimensions of the config
func Shape(batched bool, dims []int64, n int64) (shape []int64, ok bool) {
	if batched {
		shape = append(make([]int64, 0, len(dims)+1), -1)
	}
	shape = append(shape, dims...)
	rest := -1 // the last variable dimension
	for i, d := range shape {
		switch {
		case d < 0:
			shape[i], rest = 1, i
		case d == 0 || n%d != 0:
			return nil, false
		default:
			n /= d
		}
	}
	if rest < 0 {
		return shape, n == 1
	}
	shape[rest] = n
	return shape, true
}
