package body_test

import (
	"errors"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest/body"
	"github.com/nereid-serving/nereid/server/servertest"
)

// brokenBody panics after left bytes have been read.
type brokenBody struct{ left int }

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		panic("a bug below the body")
	}
	n := min(len(p), b.left)
	b.left -= n
	return n, nil
}

// TestAPanicOverABodyKeepsNothing checks that the memory of a body is released after a panic,
// whether its length was announced or not.
func TestAPanicOverABodyKeepsNothing(t *testing.T) {
	blocks := &servertest.Blocks{Account: budget.New(budget.Config{Limit: 1 << 30})}
	bodies := &body.Gatherer{Account: blocks.Account, Open: func(n, _ int) (server.Filling, error) { return blocks.Open(n) }}
	const size = 1 << 20
	for _, announced := range []bool{true, false} {
		lent := int64(0)
		err := panics.Run(zerolog.Nop(), panics.Request, func() error {
			c := budget.Charge{Account: bodies.Account}
			defer c.Settle()
			defer func() { lent = blocks.Lent.Load() }()
			b := body.NewReader(&brokenBody{size - 1}, -1)
			_, _, err := bodies.Gather(&b, &c, budget.Bodies, size, announced)
			return err
		})
		var panicked *panics.Error
		if !errors.As(err, &panicked) {
			t.Errorf("announced %t: got %v, want a panic", announced, err)
		}
		if lent != 0 || bodies.Account.Total() != 0 {
			t.Errorf("announced %t: %d blocks are lent and %d bytes are charged afterwards", announced, lent, bodies.Account.Total())
		}
	}
}
