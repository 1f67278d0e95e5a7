package budget

import "sync/atomic"

// Shared is a charge with several users; the last one to drop it settles it. A nil Shared charges
// nothing.
type Shared struct {
	charge Charge
	users  atomic.Int32
}

// Share returns an empty charge with one user. Without an account it charges nothing.
func (a *Account) Share() *Shared {
	s := &Shared{charge: Charge{Account: a}}
	return s.Hold()
}

// Take charges n bytes of a kind, as Account.Take does. It may be called until the first user has
// told others of the charge.
func (s *Shared) Take(k Kind, n int64) error {
	if s == nil {
		return nil
	}
	return s.charge.Take(k, n)
}

// Hold adds a user and returns s. The caller is a user itself.
func (s *Shared) Hold() *Shared {
	if s != nil {
		s.users.Add(1)
	}
	return s
}

// Drop removes a user.
func (s *Shared) Drop() {
	if s != nil && s.users.Add(-1) == 0 {
		s.charge.Settle()
	}
}
