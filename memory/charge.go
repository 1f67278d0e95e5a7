package memory

// Charge is what one request, or one reply, has taken of an account. Its zero
// value with an Account is ready. It is not safe for concurrent use.
type Charge struct {
	Account *Account
	taken   [kinds]int64
	some    uint32 // a bit for each kind of which something is taken
}

// Take charges n bytes of a kind, as Account.Take does.
func (c *Charge) Take(k Kind, n int64) error {
	if n <= 0 {
		return nil
	}
	if err := c.Account.Take(k, n); err != nil {
		return err
	}
	c.taken[k] += n
	c.some |= 1 << k
	return nil
}

// Taken returns what is charged of a kind.
func (c *Charge) Taken(k Kind) int64 { return c.taken[k] }

// Give takes n bytes off that Take has charged.
func (c *Charge) Give(k Kind, n int64) {
	if n <= 0 {
		return
	}
	c.Account.Give(k, n)
	c.taken[k] -= n
}

// Settle gives everything back. It may be called again.
func (c *Charge) Settle() {
	if c.some == 0 {
		return
	}
	for k := range c.taken {
		if n := c.taken[k]; n > 0 {
			c.Account.Give(Kind(k), n)
			c.taken[k] = 0
		}
	}
	c.some = 0
}
