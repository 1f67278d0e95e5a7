package rest

import (
	"errors"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/memory"
)

// brokenBody panics when all but the last of its bytes have been read.
type brokenBody struct{ left int }

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		panic("a bug below the body")
	}
	n := min(len(p), b.left)
	b.left -= n
	return n, nil
}

// TestAPanicOverABodyKeepsNothing: the memory that it was being read into comes back,
// whether its length was announced or not.
func TestAPanicOverABodyKeepsNothing(t *testing.T) {
	s := startHTTP(t, Config{}, nil)
	const size = 1 << 20
	for _, announced := range []bool{true, false} {
		lent := int64(0)
		err := boundary.Run(zerolog.Nop(), boundary.Request, func() error {
			c := memory.Charge{Account: s.account}
			defer c.Settle()
			defer func() { lent = s.blocks.Lent.Load() }()
			_, _, err := s.gather(&requestBody{src: &brokenBody{size - 1}, left: -1}, &c, memory.Bodies, size, announced)
			return err
		})
		var panicked *boundary.Error
		if !errors.As(err, &panicked) {
			t.Errorf("announced %t: got %v, want a panic", announced, err)
		}
		if lent != 0 || s.account.Total() != s.account.Used(memory.Transport) {
			t.Errorf("announced %t: %d blocks are lent and %d bytes are charged afterwards", announced, lent, s.account.Total())
		}
	}
}
