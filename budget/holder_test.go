package budget_test

import (
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// TestHoldersAreListedAndBounded checks that the account lists holders until they leave and counts
// their charges. A holder with its full share is refused while others continue.
func TestHoldersAreListedAndBounded(t *testing.T) {
	a := budget.New(budget.Config{Limit: 6400})
	names := func() (all string) {
		a.Holders(func(h *budget.Holder) bool { all += h.Name(); return true })
		return all
	}
	named := func(name string) *budget.Holder { return &budget.Holder{Name: func() string { return name }} }
	x, y, z := named("x"), named("y"), named("z")
	x.Most[budget.Bodies] = 100
	for _, h := range []*budget.Holder{x, y, z} {
		a.Enter(h)
	}
	if got := names(); got != "zyx" {
		t.Errorf("holders: got %q, want zyx", got)
	}
	y.Leave()
	y.Leave()
	if got := names(); got != "zx" {
		t.Errorf("after y has left: got %q, want zx", got)
	}
	c := budget.Charge{Account: a, Holder: x}
	if err := c.Take(budget.Bodies, 90); err != nil {
		t.Fatal(err)
	}
	err := c.Take(budget.Bodies, 11)
	if e := infer.AsError(err); e == nil || e.Code != infer.Unavailable || !e.OutOfMemory || e.Message != "x holds 90 bytes of bodies and needs 11 more, but may hold 100" {
		t.Errorf("beyond its share: got %v", err)
	}
	if a.Used(budget.Bodies) != 90 || x.Held(budget.Bodies) != 90 || x.Total() != 90 {
		t.Errorf("after a refusal: account %d, holder %d", a.Used(budget.Bodies), x.Held(budget.Bodies))
	}
	other := budget.Charge{Account: a, Holder: z}
	if err := other.Take(budget.Bodies, 101); err != nil {
		t.Errorf("another holder: %v", err)
	}
	if err := other.Take(budget.Bodies, 1<<40); err == nil || z.Total() != 101 {
		t.Errorf("refused by the account: got %v, the holder has %d, want 101", err, z.Total())
	}
	c.Settle()
	other.Settle()
	if a.Total() != 0 || x.Total() != 0 || z.Total() != 0 {
		t.Errorf("at the end: account %d, holders %d and %d", a.Total(), x.Total(), z.Total())
	}
	x.Leave()
	z.Leave()
	if got := names(); got != "" {
		t.Errorf("at the end: %q are still holders", got)
	}
}

// TestAppendChargesBeforeItGrows checks that Append charges a slice's capacity, at most twice its
// length. A refused charge leaves the slice unchanged.
func TestAppendChargesBeforeItGrows(t *testing.T) {
	a := budget.New(budget.Config{Limit: 64 << 10})
	c := budget.Charge{Account: a}
	var s []int64
	var err error
	for i := range int64(1000) {
		if s, err = budget.Append(&c, budget.Bodies, s, i); err != nil {
			t.Fatal(err)
		}
		if taken := c.Taken(budget.Bodies); taken != 8*int64(cap(s)) || cap(s) > max(8, 2*len(s)) {
			t.Fatalf("%d elements, room for %d: %d bytes are charged", len(s), cap(s), taken)
		}
	}
	if s, err = budget.Append(&c, budget.Bodies, s, make([]int64, 1<<16)...); err == nil || len(s) != 1000 || s[999] != 999 {
		t.Errorf("got %v and %d elements, want a refusal and 1000", err, len(s))
	}
	if _, err := budget.Make[[16]byte](&c, budget.Bodies, 1<<20); err == nil {
		t.Error("Make: 16 MiB are to be had of 64 KiB")
	}
	if text, err := budget.Text(&c, budget.Bodies, []byte("abc")); err != nil || text != "abc" {
		t.Errorf("Text: got %q, %v", text, err)
	}
	if text, err := budget.Text(nil, budget.Bodies, []byte("abc")); err != nil || text != "abc" {
		t.Errorf("Text without a charge: got %q, %v", text, err)
	}
	c.Settle()
	if a.Total() != 0 {
		t.Errorf("%d bytes are charged at the end", a.Total())
	}
}
