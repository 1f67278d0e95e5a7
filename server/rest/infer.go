package rest

import (
	"math"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// headerLengthName says how many bytes of a body are JSON; binary tensors follow.
const headerLengthName = "Inference-Header-Content-Length"

const (
	// smallBody is the longest body that is read as a whole into one block of
	// the Go heap.
	smallBody = 8 << 10
	// inlineTensor is the longest tensor that lies on the Go heap; larger ones
	// have memory that the stubs see.
	inlineTensor = 4 << 10
	// codecBytes is about what a decompressor takes.
	codecBytes = 48 << 10
	// keptScratch bounds the memory that a call keeps for the next one.
	keptScratch = 64 << 10
)

// inferCall is one inference on its way through the front end. What is in it
// serves the next call again; what the packages below see, the inferRequest, does not.
type inferCall struct {
	h       *FrontEnd
	target  models.Target
	charge  memory.Charge
	body    requestBody
	rest    []byte // binary data of a small body that no input has taken yet
	small   bool   // the body has been read as a whole: rest, not body, has the rest
	inflate *http1.Inflater
	done    bool // the call has not panicked

	*inferRequest
	forms   []outputForm
	binary  bool // outputs without a form of their own are binary
	scanner jsontext.Scanner
	head    []byte // JSON text of a request that is not small
	out     []byte // JSON of the reply
}

// inferRequest is one block of memory for what most requests need.
type inferRequest struct {
	req     infer.Request
	inputs  [2]infer.Tensor
	outputs [2]string
	shapes  [8]int64
	dims    []int64 // the dimensions of all inputs, at first in shapes
	answer  answer
}

// answer collects the responses to a request of which one is wanted.
type answer struct {
	first *infer.Response
	count int // without empty ones
}

// take is an infer.Sender.
func (a *answer) take(r *infer.Response) {
	if r.Empty {
		r.Release()
		return
	}
	if a.count++; a.count == 1 {
		a.first = r
		return
	}
	r.Release()
}

// serveInfer serves POST …/infer.
func (h *FrontEnd) serveInfer(w *http1.Reply, r *http1.Request, model string, version int64) error {
	target, err := h.core.Target(model, version)
	if err != nil {
		return err
	}
	if target.Info().Decoupled() {
		return infer.Errorf(infer.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")
	}
	c := h.calls.Get().(*inferCall)
	c.target = target
	c.charge.Account = h.account
	c.inferRequest = new(inferRequest)
	c.req.Model, c.req.Version = model, version
	c.req.Inputs, c.req.Outputs = c.inputs[:0], c.outputs[:0]
	c.dims = c.shapes[:0]
	defer c.finish()
	err = c.read(w, r)
	if err == nil {
		err = c.run(w, r)
	}
	c.done = true
	return err
}

// finish gives everything back. After a panic the call is not used again.
func (c *inferCall) finish() {
	c.releaseInputs()
	if c.answer.first != nil {
		c.answer.first.Release()
	}
	if !c.done {
		return
	}
	if c.inflate != nil {
		c.h.codecs.Free(c.inflate)
	}
	clear(c.forms)
	next := inferCall{h: c.h, forms: c.forms[:0], scanner: c.scanner}
	if cap(c.head) <= keptScratch {
		next.head = c.head
	}
	if cap(c.out) <= keptScratch {
		next.out = c.out
	}
	if cap(c.forms)+c.scanner.Kept() > 1024 {
		next.forms, next.scanner = nil, jsontext.Scanner{}
	}
	*c = next
	c.h.calls.Put(c)
}

// releaseInputs gives the request's memory back, once.
func (c *inferCall) releaseInputs() {
	for i := range c.req.Inputs {
		c.req.Inputs[i].Release()
	}
	c.req.Inputs = nil
	c.charge.Settle()
}

// read makes the request from its headers and its body.
func (c *inferCall) read(w *http1.Reply, r *http1.Request) error {
	if err := c.openBody(w, r); err != nil {
		return err
	}
	length, given, err := headerLength(r)
	if err != nil {
		return err
	}
	if given && (length < 0 || c.body.left >= 0 && length > c.body.left) {
		return errHeaderRange(r, c.body.left)
	}
	if given && length == 0 || !given && c.body.left == 0 {
		w.ContentType = typeJSON
		err = c.readRaw()
	} else {
		err = c.readHeaded(w, r, length, given)
	}
	if err != nil {
		return err
	}
	c.req.Parameters, err = forwardHeaders(c.h.forwarding, c.req.Parameters, r)
	return err
}

// openBody prepares the body to be read, decompressed if need be.
func (c *inferCall) openBody(w *http1.Reply, r *http1.Request) error {
	coding, known := r.Coding()
	if !known {
		w.OfferCodings = true
		return errUnsupportedEncoding
	}
	if coding != http1.Identity {
		if r.Length == 0 {
			return errBody(http1.ErrNothingCompressed)
		}
		if err := c.charge.Take(memory.Decompression, codecBytes); err != nil {
			return err
		}
		c.inflate = c.h.codecs.Inflater(r.Body(), c.h.cfg.MaxInputBytes)
		c.body = requestBody{src: c.inflate, left: -1}
		return nil
	}
	if r.Length > math.MaxInt32 {
		text, _ := r.Header("Content-Length")
		return errInt32Range("Content-Length", text)
	}
	c.body = requestBody{src: r.Body(), left: r.Length}
	return nil
}

// readHeaded reads a request whose body begins with JSON: of the given length,
// or else all of it.
func (c *inferCall) readHeaded(w *http1.Reply, r *http1.Request, length int64, given bool) error {
	if !given && c.body.left >= 0 {
		length, given = c.body.left, true
	}
	var text []byte
	var room infer.Memory
	var err error
	if given {
		if err := c.h.checkJSONLength(length); err != nil {
			return err
		}
		text, room, err = c.readHead(r, length)
	} else {
		text, room, err = c.h.gather(&c.body, &c.charge, c.kind(memory.JSON), c.h.cfg.MaxInputBytes+1, false)
		if err == nil && len(text) == 0 {
			w.ContentType = typeJSON
			return c.readRaw()
		}
		if err == nil {
			err = c.h.checkJSONLength(int64(len(text)))
		}
	}
	if room != nil {
		defer room.Release()
	}
	if err != nil {
		return err
	}
	w.ContentType = typeJSON
	return c.readJSON(text, r)
}

// readHead reads the JSON of a known length. A small body is read with it.
func (c *inferCall) readHead(r *http1.Request, length int64) ([]byte, infer.Memory, error) {
	if left := c.body.left; left >= 0 && left <= smallBody {
		if err := c.charge.Take(memory.Bodies, left); err != nil {
			return nil, nil, err
		}
		all := make([]byte, left)
		if _, err := c.body.readFull(all); err != nil {
			return nil, nil, err
		}
		c.small, c.rest = true, all[length:]
		return all[:length], nil, nil
	}
	if announced := c.body.left >= 0; !announced || length > keptScratch {
		text, room, err := c.h.gather(&c.body, &c.charge, c.kind(memory.JSON), length, announced)
		if err == nil && int64(len(text)) < length {
			err = errHeaderRange(r, c.body.got)
		}
		return text, room, err
	}
	if err := c.charge.Take(memory.JSON, length); err != nil {
		return nil, nil, err
	}
	if int64(cap(c.head)) < length {
		c.head = make([]byte, length)
	}
	c.head = c.head[:length]
	_, err := c.body.readFull(c.head)
	return c.head, nil, err
}

// readJSON reads the request from its JSON and the binary data after it.
func (c *inferCall) readJSON(text []byte, r *http1.Request) error {
	t, err := parseJSON(&c.scanner, text)
	if err != nil {
		return err
	}
	head := readInferHead(&t)
	if head.id.Exists() {
		id, err := head.id.Text()
		if err != nil {
			return unableTo("parse", "id", err)
		}
		c.req.ID = id.String()
	}
	if head.parameters.Exists() {
		if c.binary, err = c.readParameters(head.parameters, &c.req); err != nil {
			return err
		}
	}
	if err := c.readInputs(head.inputs, &c.req); err != nil {
		return err
	}
	if err := c.checkLeftOver(); err != nil {
		return err
	}
	if head.outputs.Exists() {
		return c.readOutputs(head.outputs, &c.req)
	}
	return nil
}

// run infers and replies.
func (c *inferCall) run(w *http1.Reply, r *http1.Request) error {
	if err := c.infer(r); err != nil {
		return err
	}
	c.releaseInputs()
	w.ContentType = typePlain
	if c.answer.count != 1 {
		return infer.Errorf(infer.Internal, "expected a single response, got %d", c.answer.count)
	}
	if err := c.answer.first.Err; err != nil {
		return err
	}
	return c.reply(w, r)
}

// infer hands the request to the core and looks meanwhile whether its client
// leaves.
func (c *inferCall) infer(r *http1.Request) error {
	r.Watch()
	defer r.Unwatch()
	return server.InferOn(r.Context(), c.h.core, &c.target, &c.req, c.answer.take)
}

// chargeItem charges for the things of which a request has any number: inputs,
// outputs, parameters, dimensions. n of them have been there before.
func (c *inferCall) chargeItem(n int) error {
	const step, bytes = 64, 256
	if n%step != step-1 {
		return nil
	}
	return c.charge.Take(memory.Bodies, step*bytes)
}

// headerLength reads the header that says where the JSON ends, as C's stoi does.
func headerLength(r *http1.Request) (n int64, given bool, err error) {
	text, given := r.Header(headerLengthName)
	if !given {
		return 0, false, nil
	}
	digits := text
	if text != "" && (text[0] == '+' || text[0] == '-') {
		digits = text[1:]
	}
	end := 0
	for end < len(digits) && '0' <= digits[end] && digits[end] <= '9' {
		n = min(n*10+int64(digits[end]-'0'), math.MaxInt32+2)
		end++
	}
	if end == 0 {
		return 0, true, infer.Errorf(infer.InvalidArg, "Unable to parse %s, got: %s", headerLengthName, text)
	}
	if text[0] == '-' {
		n = -n
	}
	if n > math.MaxInt32 || n < math.MinInt32 {
		return 0, true, errInt32Range(headerLengthName, text)
	}
	return n, true, nil
}

func errInt32Range(name, value string) error {
	return infer.Errorf(infer.InvalidArg, "Unable to parse %s, value is out of range [ %d, %d ], got: %s",
		name, math.MinInt32, math.MaxInt32, value)
}

// errHeaderRange refuses a header length that the body, of n bytes, has not.
func errHeaderRange(r *http1.Request, n int64) error {
	text, _ := r.Header(headerLengthName)
	return infer.Errorf(infer.InvalidArg, "inference header size should be in range (0, %d), got: %s", max(n, 0), text)
}

// forwardHeaders appends the headers of r that are to be forwarded to params, as
// the client spelled them and in its order.
func forwardHeaders(f *server.Forwarding, params []infer.Parameter, r *http1.Request) (_ []infer.Parameter, err error) {
	if f == nil {
		return params, nil
	}
	for _, field := range r.Fields {
		if params, err = f.AppendHeader(params, field.Name, field.Value); err != nil {
			return params, err
		}
	}
	return params, nil
}
