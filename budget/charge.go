package budget

import "reflect"

// Charge counts the memory that one piece of work has taken: a request, a reply, a load. It travels
// with the work, and code that allocates grows it first. The zero value with an Account is ready. A
// nil Charge, or one without an Account, charges nothing; it is for text that no client or model
// has sent. A Charge is not safe for concurrent use.
type Charge struct {
	Account *Account
	// Holder is the owner of the charged memory, or nil. It is set before the first Take.
	Holder *Holder
	taken  [kinds]int64
	some   uint32 // a bit for each kind with charged bytes
	blocks int64  // attributed by HoldBlocks
}

// Limits returns the limits of the account.
func (c *Charge) Limits() *Limits {
	if c == nil {
		return &defaultLimits
	}
	return c.Account.Limits()
}

var defaultLimits = Limits{}.WithDefaults()

// Take charges n bytes of a kind, as Account.Take does.
func (c *Charge) Take(k Kind, n int64) error {
	if c == nil || c.Account == nil || n <= 0 {
		return nil
	}
	// A body that arrives in small steps counts as its sum.
	if c.taken[k] > 0 && c.Account.refuses(k, c.taken[k]+n) {
		return errPressed
	}
	if err := c.Holder.Hold(k, n); err != nil {
		return err
	}
	if err := c.Account.Take(k, n); err != nil {
		c.Holder.Drop(k, n)
		return err
	}
	c.taken[k] += n
	c.some |= 1 << k
	return nil
}

// Taken returns the bytes charged to a kind.
func (c *Charge) Taken(k Kind) int64 { return c.taken[k] }

// Give gives back n bytes that Take has charged.
func (c *Charge) Give(k Kind, n int64) {
	if c == nil || c.Account == nil || n <= 0 {
		return
	}
	c.Account.Give(k, n)
	c.Holder.Drop(k, n)
	c.taken[k] -= n
}

// HoldBlocks attributes n bytes of the pool of requests to the holder, until Settle or a call with
// a negative n. The pool charges for them itself.
func (c *Charge) HoldBlocks(n int64) {
	if c == nil || c.Holder == nil {
		return
	}
	c.blocks += n
	c.Holder.held[Blocks].Add(n)
}

// Settle gives everything back. It may be called again.
func (c *Charge) Settle() {
	if c == nil {
		return
	}
	if c.blocks != 0 {
		c.HoldBlocks(-c.blocks)
	}
	if c.some == 0 {
		return
	}
	for k := range c.taken {
		if n := c.taken[k]; n > 0 {
			c.Give(Kind(k), n)
		}
	}
	c.some = 0
}

// Make charges c and returns a slice of n zero elements.
func Make[T any](c *Charge, k Kind, n int) ([]T, error) {
	if err := c.Take(k, sizeOf[T](n)); err != nil {
		return nil, err
	}
	return make([]T, n), nil // bound: charged
}

// Append is append that charges c for new room. The array of s keeps its charge, or lack of one, so
// that a buffer can be reused. After an error s is unchanged.
func Append[T any](c *Charge, k Kind, s []T, v ...T) ([]T, error) {
	s, err := Grow(c, k, s, len(v))
	if err != nil {
		return s, err
	}
	return append(s, v...), nil // bound: there is room
}

// Grow charges c and returns s with room for n more elements, as Append does.
func Grow[T any](c *Charge, k Kind, s []T, n int) ([]T, error) {
	if n <= cap(s)-len(s) {
		return s, nil
	}
	room := max(len(s)+n, 8, 2*cap(s))
	if err := c.Take(k, sizeOf[T](room-cap(s))); err != nil {
		return s, err
	}
	larger := make([]T, len(s), room) // bound: charged
	copy(larger, s)
	return larger, nil
}

// Text charges c and returns b as a string.
func Text(c *Charge, k Kind, b []byte) (string, error) {
	if err := c.Take(k, int64(len(b))); err != nil {
		return "", err
	}
	return string(b), nil // bound: charged
}

func sizeOf[T any](n int) int64 { return int64(reflect.TypeFor[T]().Size()) * int64(n) }
