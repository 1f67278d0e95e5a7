package process

import (
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/memory"
)

// chargeArena has the account decide what a stub may reserve beyond what it keeps
// while it is idle.
func (s *Supervisor) chargeArena(c *ipc.Config) {
	account := s.account
	if account == nil {
		return
	}
	c.MaxArena = min(c.MaxArena, max(account.Most(memory.Arenas), c.FreeArena))
	c.Charge = func(n int64) bool { return account.Take(memory.Arenas, n) == nil }
	c.Refund = func(n int64) { account.Give(memory.Arenas, n) }
}

// usedUp ends the text of an error of a stub that was granted no memory; it is in
// pool.py, too.
const usedUp = "is used up (--request-memory-byte-size)"

// ofStub makes an error of what a stub says. Triton's code for a lack of memory is
// that of a fault; that there is none at the moment is Unavailable.
func ofStub(code infer.Code, text string) *infer.Error {
	if code == infer.Internal && strings.HasSuffix(text, usedUp) {
		code = infer.Unavailable
	}
	return &infer.Error{Code: code, Message: text}
}
