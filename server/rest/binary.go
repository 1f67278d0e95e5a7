package rest

import (
	"math"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
)

// allocateTensor gives t memory for n bytes.
func (c *inferCall) allocateTensor(t *infer.Tensor, n int) error {
	if n <= inlineTensor || c.h.allocate == nil {
		if err := c.charge.Take(memory.Bodies, int64(n)); err != nil {
			return err
		}
		t.Data = make([]byte, n)
		return nil
	}
	var err error
	t.Data, t.Memory, err = c.h.allocate(n)
	return err
}

// gatherTensor gives t the next n bytes of the body, straight from the connection
// into memory that is taken as they come. There are fewer where the body ends.
func (c *inferCall) gatherTensor(t *infer.Tensor, n int64, announced bool) (err error) {
	t.Data, t.Memory, err = c.h.gather(&c.body, &c.charge, c.kind(memory.Bodies), n, announced)
	return err
}

// kind is that of the body's bytes on the heap.
func (c *inferCall) kind(plain memory.Kind) memory.Kind {
	if c.inflate != nil {
		return memory.Decompression
	}
	return plain
}

// readBinary gives t the next size bytes of the binary section, straight from
// the connection into their memory.
func (c *inferCall) readBinary(t *infer.Tensor, size uint64) error {
	missing := func(has int64) error {
		return infer.Errorf(infer.InvalidArg, "unexpected size for input '%s', expecting %d additional bytes for model '%s'",
			t.Name, size-uint64(has), c.req.Model)
	}
	switch {
	case c.small:
		if size > uint64(len(c.rest)) {
			return missing(int64(len(c.rest)))
		}
		t.Data, c.rest = c.rest[:size:size], c.rest[size:]
		return nil
	case c.body.left >= 0:
		if size > uint64(c.body.left) {
			return missing(c.body.left)
		}
		return c.readAnnounced(t, int64(size))
	}
	if err := c.gatherTensor(t, int64(min(size, math.MaxInt)), false); err != nil {
		return err
	}
	if uint64(len(t.Data)) < size {
		return missing(int64(len(t.Data)))
	}
	return nil
}

// readAnnounced gives t the next n bytes of a body that has them.
func (c *inferCall) readAnnounced(t *infer.Tensor, n int64) error {
	if n > inlineTensor {
		return c.gatherTensor(t, n, true)
	}
	if err := c.allocateTensor(t, int(n)); err != nil {
		return err
	}
	_, err := c.body.readFull(t.Data)
	return err
}

// checkLeftOver refuses bytes after the last input's.
func (c *inferCall) checkLeftOver() error {
	end := len(c.rest) == 0
	if !c.small {
		var err error
		if end, err = c.body.atEnd(); err != nil {
			return err
		}
	}
	if !end {
		return infer.Errorf(infer.InvalidArg, "unexpected additional input data for model '%s'", c.req.Model)
	}
	return nil
}

// readRaw reads a request that is nothing but the bytes of its only input.
func (c *inferCall) readRaw() error {
	c.req.Raw = true
	c.binary = true
	c.req.Inputs = append(c.req.Inputs, infer.Tensor{})
	t := &c.req.Inputs[0]
	limit := c.h.cfg.MaxInputBytes
	tooLarge := func(n int64) error {
		return infer.Errorf(infer.InvalidArg,
			"Raw input has a byte_size (%d bytes) that exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", n, limit)
	}
	if left := c.body.left; left >= 0 {
		if left > limit {
			return tooLarge(left)
		}
		return c.readAnnounced(t, left)
	}
	err := c.gatherTensor(t, limit+1, false)
	if err == nil && int64(len(t.Data)) > limit {
		err = tooLarge(int64(len(t.Data)))
	}
	return err
}
