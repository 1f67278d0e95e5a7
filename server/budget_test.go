package server

import (
	"math"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
)

func TestBudget(t *testing.T) {
	b := NewBudget(100)
	c := charge{budget: b}
	if err := c.take(60); err != nil {
		t.Fatal(err)
	}
	err := b.Take(41)
	if e := infer.AsError(err); e == nil || e.Code != infer.Unavailable {
		t.Errorf("41 more: got %v, want Unavailable", err)
	}
	if err := b.Take(math.MaxInt64); err == nil {
		t.Error("the largest number fits")
	}
	if err := c.take(40); err != nil || b.Used() != 100 {
		t.Errorf("40 more: got %v, %d used", err, b.Used())
	}
	c.settle()
	c.settle()
	if b.Used() != 0 {
		t.Errorf("%d bytes are used after the end, want none", b.Used())
	}
	if n := NewBudget(0).Limit(); n <= 0 || n > memory.Limit() {
		t.Errorf("default: got %d, want a part of %d", n, memory.Limit())
	}
}
