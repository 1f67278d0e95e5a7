package budget

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// TestHoldersAreListedAndBounded: the account lists its holders until they leave, each has the
// bytes of its charges, and a holder with its full share is refused while others continue.
func TestHoldersAreListedAndBounded(t *testing.T) {
	a := New(Config{Limit: 6400})
	names := func() (all string) {
		a.Holders(func(h *Holder) bool { all += h.Name(); return true })
		return all
	}
	named := func(name string) *Holder { return &Holder{Name: func() string { return name }} }
	x, y, z := named("x"), named("y"), named("z")
	x.Most[Bodies] = 100
	for _, h := range []*Holder{x, y, z} {
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
	c := Charge{Account: a, Holder: x}
	if err := c.Take(Bodies, 90); err != nil {
		t.Fatal(err)
	}
	err := c.Take(Bodies, 11)
	if e := infer.AsError(err); e == nil || e.Code != infer.Unavailable || !e.NoRoom || e.Message != "x holds 90 bytes of bodies and needs 11 more, but may hold 100" {
		t.Errorf("beyond its share: got %v", err)
	}
	if a.Used(Bodies) != 90 || x.Held(Bodies) != 90 || x.Total() != 90 {
		t.Errorf("after a refusal: account %d, holder %d", a.Used(Bodies), x.Held(Bodies))
	}
	other := Charge{Account: a, Holder: z}
	if err := other.Take(Bodies, 101); err != nil {
		t.Errorf("another holder: %v", err)
	}
	if err := other.Take(Bodies, 1<<40); err == nil || z.Total() != 101 {
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

// TestPressedRefusesLargeBodies: while memory is short a body of more than 64 KiB is refused, even
// if it arrives in small steps, and small ones are not.
func TestPressedRefusesLargeBodies(t *testing.T) {
	a := New(Config{Limit: 64 << 20})
	a.pressed.Store(true)
	c := Charge{Account: a}
	for n := range 2 {
		err := c.Take(JSON, 40<<10)
		if (err != nil) != (n == 1) {
			t.Errorf("step %d of 40 KiB: got %v", n+1, err)
		}
	}
	if err := a.Take(Bodies, 65<<10); err == nil || !strings.Contains(err.Error(), "short of memory") {
		t.Errorf("65 KiB at once: got %v, want a refusal", err)
	}
	if err := a.Take(Replies, 1<<20); err != nil {
		t.Errorf("a reply: %v", err)
	}
	if a.Admit(64<<10) != nil || a.Admit(64<<10+1) == nil {
		t.Error("Admit takes 64 KiB and no more")
	}
	a.Give(Replies, 1<<20)
	c.Settle()
}

// TestAppendChargesBeforeItGrows: the room of a slice is charged, at most twice its need, and a
// refusal leaves the slice unchanged.
func TestAppendChargesBeforeItGrows(t *testing.T) {
	a := New(Config{Limit: 64 << 10})
	c := Charge{Account: a}
	var s []int64
	var err error
	for i := range int64(1000) {
		if s, err = Append(&c, Bodies, s, i); err != nil {
			t.Fatal(err)
		}
		if taken := c.Taken(Bodies); taken != 8*int64(cap(s)) || cap(s) > max(8, 2*len(s)) {
			t.Fatalf("%d elements, room for %d: %d bytes are charged", len(s), cap(s), taken)
		}
	}
	if s, err = Append(&c, Bodies, s, make([]int64, 1<<16)...); err == nil || len(s) != 1000 || s[999] != 999 {
		t.Errorf("got %v and %d elements, want a refusal and 1000", err, len(s))
	}
	if _, err := Make[[16]byte](&c, Bodies, 1<<20); err == nil {
		t.Error("Make: 16 MiB are to be had of 64 KiB")
	}
	if text, err := Text(&c, Bodies, []byte("abc")); err != nil || text != "abc" {
		t.Errorf("Text: got %q, %v", text, err)
	}
	if text, err := Text(nil, Bodies, []byte("abc")); err != nil || text != "abc" {
		t.Errorf("Text without a charge: got %q, %v", text, err)
	}
	c.Settle()
	if a.Total() != 0 {
		t.Errorf("%d bytes are charged at the end", a.Total())
	}
}
