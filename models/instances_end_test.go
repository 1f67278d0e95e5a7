package models

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// TestNewInstancesThatComeBack: an instance that is not wanted after all was lost
// and comes up once more just before it ends. That is of no account: the next ones
// are not taken for it.
func TestNewInstancesThatComeBack(t *testing.T) {
	g := newGrower(t, twoOfA+sample("batch_size: 1", "IN", "INT32", "1", "zero_data: true"), nil)
	l, err := g.lookup("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	g.backend.answer["a_2"] = errors.New("cold")
	g.backend.ending = func(in *growingInstance) {
		in.model.events.Down(in, false)
		in.model.events.Up(in)
		l.gate.running.Wait() // until it has been warmed up, if it is
	}
	if _, err := g.SetInstances(t.Context(), "m", "", 3); err == nil || infer.AsError(err).Message != "failed to run warmup sample 's': cold; " {
		t.Errorf("got %v", err)
	}
	g.backend.ending = nil
	delete(g.backend.answer, "a_2")
	if _, err := g.SetInstances(t.Context(), "m", "", 3); err != nil {
		t.Errorf("the next ones: %v", err)
	}
	g.want("in the end", "1: a_0 a_1 a_2")
	if n := len(l.gate.arrivals); n != 3 {
		t.Errorf("the gate knows %d instances, want 3", n)
	}
}
