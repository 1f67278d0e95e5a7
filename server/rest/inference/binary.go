package inference

import (
	"bytes"
	"io"
	"math"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// gatherTensor gives t the next n bytes of the body, read into memory that is charged as they
// arrive. There are fewer at the end of the body.
func (q *Request) gatherTensor(t *infer.Tensor, n int64, announced bool) (err error) {
	t.Data, t.Memory, err = q.gather(budget.Bodies, n, announced)
	return err
}

// readBinary gives t the next size bytes of the binary section, read directly into their memory.
func (q *Request) readBinary(t *infer.Tensor, size uint64) error {
	missing := func(has int64) error {
		return infer.Errorf(infer.InvalidArg, "unexpected size for input '%s', expecting %d additional bytes for model '%s'",
			t.Name, size-uint64(has), q.req.Model)
	}
	switch {
	case q.small:
		if size > uint64(len(q.rest)) {
			return missing(int64(len(q.rest)))
		}
		t.Data, q.rest = q.rest[:size:size], q.rest[size:]
		return nil
	case q.body.Left >= 0:
		if size > uint64(q.body.Left) {
			return missing(q.body.Left)
		}
		return q.readAnnounced(t, int64(size))
	}
	if err := q.gatherTensor(t, int64(min(size, math.MaxInt)), false); err != nil {
		return err
	}
	if uint64(len(t.Data)) < size {
		return missing(int64(len(t.Data)))
	}
	return nil
}

// readAnnounced gives t the next n bytes of a body that has them.
func (q *Request) readAnnounced(t *infer.Tensor, n int64) error {
	if n > server.InlineTensor {
		return q.gatherTensor(t, n, true)
	}
	if err := q.codec.allocate.Tensor(t, int(n), &q.charge); err != nil {
		return err
	}
	_, err := q.body.ReadFull(t.Data)
	return err
}

// checkLeftOver rejects bytes after the last input's.
func (q *Request) checkLeftOver() error {
	end := len(q.rest) == 0
	if !q.small {
		var err error
		if end, err = q.body.AtEnd(); err != nil {
			return err
		}
	}
	if !end {
		return infer.Errorf(infer.InvalidArg, "unexpected additional input data for model '%s'", q.req.Model)
	}
	return nil
}

// readRaw reads a request that consists of the bytes of its only input.
func (q *Request) readRaw() error {
	q.req.Raw = true
	q.binary = true
	q.req.Inputs = append(q.req.Inputs, infer.Tensor{}) // bound: one
	t := &q.req.Inputs[0]
	limit := q.codec.bodies.MaxBytes
	tooLarge := func(n int64) error {
		return infer.Errorf(infer.InvalidArg,
			"Raw input has a byte_size (%d bytes) that exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", n, limit)
	}
	left := q.body.Left
	if left > limit {
		return tooLarge(left)
	}
	if left >= 0 && left+infer.RawPrefix <= server.InlineTensor {
		err := q.readAnnounced(t, left+infer.RawPrefix)
		t.Data = t.Data[:max(0, len(t.Data)-infer.RawPrefix)]
		return err
	}
	// The room is read after the body, into existing and charged memory.
	room, announced, most := bytes.NewReader(make([]byte, infer.RawPrefix)), left >= 0, limit+1
	if announced {
		most, left = left, left+infer.RawPrefix
	}
	q.body = body.NewReader(io.MultiReader(q.body.Source(), room), left)
	if err := q.gatherTensor(t, most+infer.RawPrefix, announced); err != nil {
		return err
	}
	n := int64(len(t.Data)) - infer.RawPrefix
	if n > limit {
		return tooLarge(n)
	}
	if room.Len() > 0 {
		return body.Refuse(io.ErrUnexpectedEOF)
	}
	t.Data = t.Data[: n : n+infer.RawPrefix]
	return nil
}
