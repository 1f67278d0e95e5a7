package inference

import (
	"context"
	"math"
	"sync"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
	"github.com/nereid-serving/nereid/server/rest/values"
)

const (
	// SmallBody is the longest body that is read as a whole into one block of the Go heap, in
	// bytes.
	SmallBody = 8 << 10
	// codecBytes is the approximate memory of a decompressor.
	codecBytes = 48 << 10
	// keptScratch bounds the memory that a Request keeps for the next inference.
	keptScratch = 64 << 10
)

// ErrCoding rejects a body in an unknown coding. Its reply offers the known codings.
var ErrCoding = &infer.Error{Code: infer.Unsupported, Message: "Unsupported compression type"}

// Codec creates the Requests of one front end.
type Codec struct {
	bodies     *body.Gatherer
	allocate   server.Allocator
	regions    *clientshm.Registry
	forwarding *server.Forwarding
	framing    Framing
	requests   sync.Pool // of *Request
	codings    http1.Codecs
}

// NewCodec returns a Codec. bodies reads request bodies; allocate lends memory for decoded tensors,
// which are on the Go heap if it is nil; named has the regions that requests may name; forwarding
// chooses the headers that become parameters, none if it is nil; framing determines where the JSON
// of bodies ends.
func NewCodec(bodies *body.Gatherer, allocate server.Allocator, named *clientshm.Registry, forwarding *server.Forwarding, framing Framing) *Codec {
	c := &Codec{bodies: bodies, allocate: allocate, regions: named, forwarding: forwarding, framing: framing}
	c.requests.New = func() any { return &Request{codec: c} }
	return c
}

// Request is one inference on its way through the front end. Its memory is reused by a later
// inference, except the part that the packages below see, handedOn.
type Request struct {
	codec    *Codec
	target   models.Target
	charge   budget.Charge
	items    values.ItemCharges
	all      values.Parameters // those of the inputs and outputs, too
	body     body.Reader
	rest     []byte // binary data of a small body that no input has consumed yet
	small    bool   // the body has been read as a whole: rest, not body, has the remainder
	inflate  *http1.Inflater
	text     []byte       // the JSON, from ReadHead to Decode; nil if the body is raw
	room     infer.Memory // of text, nil if it is on the heap
	file     bool         // the body is a file: the bytes of the only input, with a JSON reply
	reusable bool         // no method of it has panicked
	left     bool         // the client had disconnected when Infer returned

	*handedOn
	forms   []outputForm
	binary  bool // the default form of outputs
	scanner jsontext.Scanner
	head    []byte // memory for the JSON text of a larger request
	out     []byte // memory for the JSON of the reply
	blobs   [][]byte
}

// handedOn is one allocation for the needs of most requests.
type handedOn struct {
	req     infer.Request
	inputs  [2]infer.Tensor
	outputs [2]string
	shapes  [8]int64
	dims    []int64 // the dimensions of all inputs, at first in shapes
	single  server.Single
}

// NewRequest returns a Request for the version that was found for a model. The caller releases it.
func (c *Codec) NewRequest(found models.Target, model string, version int64) *Request {
	q := c.requests.Get().(*Request)
	q.target = found
	q.charge.Account, q.items.Charge, q.all.Items = c.bodies.Account, &q.charge, &q.items
	q.handedOn = new(handedOn)
	q.req.Model, q.req.Version = model, version
	q.req.Inputs, q.req.Outputs = q.inputs[:0], q.outputs[:0]
	q.dims = q.shapes[:0]
	return q
}

// Record traces the request in t; nil traces nothing.
func (q *Request) Record(t *trace.Trace) { q.req.Trace = t }

// Reuse states that no method of q has panicked: Release keeps its memory for a later request.
func (q *Request) Reuse() { q.reusable = true }

// Release releases everything that q holds, including the response. q is not used after that.
func (q *Request) Release() {
	q.releaseInputs()
	if q.room != nil {
		q.room.Release()
	}
	if q.single.First != nil {
		q.single.First.Release()
	}
	for i := range q.forms {
		if q.forms[i].region != nil {
			q.forms[i].region.Release()
		}
	}
	if !q.reusable {
		return
	}
	if q.inflate != nil {
		q.codec.codings.Free(q.inflate)
	}
	clear(q.forms)
	clear(q.blobs)
	next := Request{codec: q.codec, forms: q.forms[:0], scanner: q.scanner, blobs: q.blobs[:0]}
	if cap(q.head) <= keptScratch {
		next.head = q.head
	}
	if cap(q.out) <= keptScratch {
		next.out = q.out
	}
	if cap(q.forms)+cap(q.blobs)+q.scanner.Kept() > 1024 {
		next.forms, next.blobs, next.scanner = nil, nil, jsontext.Scanner{}
	}
	*q = next
	q.codec.requests.Put(q)
}

// releaseInputs releases the memory of the inputs, once.
func (q *Request) releaseInputs() {
	for i := range q.req.Inputs {
		q.req.Inputs[i].Release()
	}
	q.req.Inputs = nil
	q.charge.Settle()
}

// ReadHead reads the JSON part of the body. It reads nothing if the length of the JSON or the media
// type shows that the body is the bytes of the only input. Decode follows.
func (q *Request) ReadHead(r *http1.Request) error {
	q.charge.Holder = r.Holder()
	if err := q.openBody(r); err != nil {
		return err
	}
	length, given, err := q.codec.framing.jsonLength(r)
	if err != nil {
		return err
	}
	if given && (length < 0 || q.body.Left >= 0 && length > q.body.Left) {
		return q.codec.framing.errRange(r, q.body.Left)
	}
	if given && length == 0 || !given && q.body.Left == 0 {
		return nil
	}
	if !given && q.takesFile() {
		if q.file, err = q.isFile(r); q.file || err != nil {
			return err
		}
	}
	if !given && q.body.Left >= 0 {
		length, given = q.body.Left, true
	}
	if !given {
		q.text, q.room, err = q.gather(budget.JSON, q.codec.bodies.MaxBytes+1, false)
		if err != nil {
			return err
		}
		return q.codec.bodies.CheckLength(int64(len(q.text)))
	}
	if err := q.codec.bodies.CheckLength(length); err != nil {
		return err
	}
	q.text, q.room, err = q.readText(r, length)
	return err
}

// Decode decodes the head that ReadHead has read, reads the rest of the body, and appends the
// forwarded headers of r.
func (q *Request) Decode(r *http1.Request) (err error) {
	if len(q.text) == 0 {
		err = q.readRaw()
		q.binary = !q.file
	} else {
		err = q.readJSON(q.text)
	}
	if q.room != nil {
		q.charge.HoldBlocks(-int64(len(q.text)))
		q.room.Release()
		q.room = nil
	}
	q.text = nil
	if err != nil {
		return err
	}
	n := len(q.req.Parameters)
	if q.req.Parameters, err = body.ForwardHeaders(q.req.Parameters, r, q.codec.forwarding); err != nil {
		return err
	}
	return q.items.Add((len(q.req.Parameters) - n) * values.ItemBytes)
}

// Infer executes the request and keeps its response. The inputs are released when it returns.
func (q *Request) Infer(ctx context.Context, core server.Core) error {
	err := server.InferOn(ctx, core, &q.target, &q.req, q.single.Take)
	q.left = ctx.Err() != nil
	q.releaseInputs()
	return err
}

// gather reads up to limit bytes of the body, like body.Gatherer.
func (q *Request) gather(kind budget.Kind, limit int64, announced bool) ([]byte, infer.Memory, error) {
	if q.inflate != nil {
		kind = budget.Decompression
	}
	return q.codec.bodies.Gather(&q.body, &q.charge, kind, limit, announced)
}

// openBody prepares the body to be read, and decompressed if necessary.
func (q *Request) openBody(r *http1.Request) error {
	coding, known := r.Coding()
	if q.codec.framing.BinaryType != "" {
		coding, known = http1.Identity, true
	}
	if !known {
		return ErrCoding
	}
	if coding != http1.Identity {
		if r.Length == 0 {
			return body.Refuse(http1.ErrNothingCompressed)
		}
		if err := q.charge.Take(budget.Decompression, codecBytes); err != nil {
			return err
		}
		q.inflate = q.codec.codings.Inflater(r.Body(), q.codec.bodies.MaxBytes)
		q.body = body.NewReader(q.inflate, -1)
		return nil
	}
	if r.Length > math.MaxInt32 {
		text, _ := r.Header("Content-Length")
		return errInt32Range("Content-Length", text)
	}
	q.body = body.NewReader(r.Body(), r.Length)
	return nil
}

// readText reads JSON of a known length. A small body is read as a whole.
func (q *Request) readText(r *http1.Request, length int64) ([]byte, infer.Memory, error) {
	if left := q.body.Left; left >= 0 && left <= SmallBody {
		if err := q.charge.Take(budget.Bodies, left); err != nil {
			return nil, nil, err
		}
		all := make([]byte, left) // bound: charged
		if _, err := q.body.ReadFull(all); err != nil {
			return nil, nil, err
		}
		q.small, q.rest = true, all[length:]
		return all[:length], nil, nil
	}
	if announced := q.body.Left >= 0; !announced || length > keptScratch {
		text, room, err := q.gather(budget.JSON, length, announced)
		if err == nil && int64(len(text)) < length {
			err = q.codec.framing.errRange(r, q.body.Got)
		}
		return text, room, err
	}
	if err := q.charge.Take(budget.JSON, length); err != nil {
		return nil, nil, err
	}
	if int64(cap(q.head)) < length {
		q.head = make([]byte, length) // bound: charged, and kept up to keptScratch
	}
	q.head = q.head[:length]
	_, err := q.body.ReadFull(q.head)
	return q.head, nil, err
}

// readJSON reads the request from its JSON and the binary data after it.
func (q *Request) readJSON(text []byte) error {
	t, err := body.Parse(&q.charge, &q.scanner, text)
	if err != nil {
		return err
	}
	head := readRequestHead(&t)
	if head.id.Exists() {
		id, err := head.id.Text()
		if err != nil {
			return values.UnableTo("parse", "id", err)
		}
		if err := values.Check("id", id.Len(), q.charge.Limits().RequestID, "--client-max-id-size"); err != nil {
			return err
		}
		if q.req.ID, err = q.items.Text(id); err != nil {
			return err
		}
	}
	if head.parameters.Exists() {
		if q.binary, err = q.readParameters(head.parameters, &q.req); err != nil {
			return err
		}
	}
	if err := q.readInputs(head.inputs, &q.req); err != nil {
		return err
	}
	if err := q.checkLeftOver(); err != nil {
		return err
	}
	if head.outputs.Exists() {
		return q.readOutputs(head.outputs, &q.req)
	}
	return nil
}

// dimBytes bounds the memory for a dimension of a request, and its JSON in a reply.
const dimBytes = 21
