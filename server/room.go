package server

import (
	"errors"
	"fmt"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// Allocator lends memory for the bytes of a request's tensor: n bytes, aligned
// to a page, which the stubs see without a further copy, and which are charged
// until the caller releases the Memory. It fails with an *infer.Error of code
// Unavailable when the server's memory for requests is used up.
type Allocator func(n int) ([]byte, infer.Memory, error)

// InlineTensor is the longest tensor of a request that lies on the Go heap where there is
// an Allocator, in bytes.
const InlineTensor = 4 << 10

// Tensor gives t memory for n bytes: of the Allocator, or of the Go heap, charged to c, if
// they are few or there is none.
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
	t.Data = make([]byte, n)
	return nil
}

// Opener lends memory as an Allocator does, for n bytes that a client has
// announced, of which so many have arrived: it becomes real, and is charged, by
// Grow. It fails with ErrUnproven where clients announce so much that an eighth
// of the bytes must arrive first.
type Opener func(n, arrived int) (Filling, error)

// Filling is memory that is filled step by step.
type Filling interface {
	infer.Memory
	// Bytes is all of it; behind what Grow was last told nothing may be touched.
	Bytes() []byte
	// Grow makes the first n bytes real. After an error they are what they were.
	Grow(n int) error
}

// ErrUnproven is what an Opener says of an announcement without bytes.
var ErrUnproven = errors.New("an eighth of the bytes must arrive first")

// Refusal is the error of a request that needs n bytes of the pool, which has
// said why not.
func Refusal(account *budget.Account, n int, why error) error {
	var e *infer.Error
	if errors.As(why, &e) {
		return e
	}
	// The account, if it is the reason, says it best.
	if err := account.Take(budget.Blocks, int64(n)); err != nil {
		return err
	}
	account.Give(budget.Blocks, int64(n))
	return &infer.Error{Code: infer.Unavailable, NoRoom: true, Message: fmt.Sprintf("no memory for a tensor of %d bytes: %v", n, why)}
}
