package server

import (
	"errors"
	"fmt"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// Allocator lends memory for a tensor of a request: n bytes, aligned to a page, which stubs can
// read without a copy. They are charged until the caller releases the Memory. The error is an
// *infer.Error of code Unavailable when the server's memory for requests is used up.
type Allocator func(n int) ([]byte, infer.Memory, error)

// InlineTensor is the longest tensor of a request on the Go heap if there is an Allocator, in
// bytes.
const InlineTensor = 4 << 10

// Tensor gives t memory for n bytes. Few bytes, and all if there is no Allocator, are on the Go
// heap and charged to c.
func (a Allocator) Tensor(t *infer.Tensor, n int, c *budget.Charge) (err error) {
	if n > InlineTensor && a != nil {
		if t.Data, t.Memory, err = a(n); err == nil {
			c.HoldBlocks(int64(n))
		}
		return err
	}
	if err := c.Take(budget.Bodies, int64(n)); err != nil {
		return err
	}
	t.Data = make([]byte, n) // bound: charged
	return nil
}

// Opener lends memory as an Allocator does, for n bytes that a client has announced and of which
// arrived have come. Filling.Grow makes the memory real and charges it. It fails with ErrUnproven
// if announcements exceed the memory, so that an eighth of the bytes must arrive first.
type Opener func(n, arrived int) (Filling, error)

// Filling is memory that is filled step by step.
type Filling interface {
	infer.Memory
	// Bytes returns all of it. Bytes beyond the last argument of Grow must not be touched.
	Bytes() []byte
	// Grow makes the first n bytes real. An error changes nothing.
	Grow(n int) error
}

// ErrUnproven is an Opener's error for an announcement without bytes.
var ErrUnproven = errors.New("an eighth of the bytes must arrive first")

// Refusal returns the error of a request that needs n bytes of the pool, which has failed for the
// reason why.
func Refusal(account *budget.Account, n int, why error) error {
	var e *infer.Error
	if errors.As(why, &e) {
		return e
	}
	// The account has a better text if it is the reason.
	if err := account.Take(budget.Blocks, int64(n)); err != nil {
		return err
	}
	account.Give(budget.Blocks, int64(n))
	return &infer.Error{Code: infer.Unavailable, OutOfMemory: true, Message: fmt.Sprintf("no memory for a tensor of %d bytes: %v", n, why)}
}
