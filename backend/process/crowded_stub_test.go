package process_test

import (
	"testing"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestCrowdedArenaServesOthers checks that a stub still responds although clients hold more
// responses than it can lend. Outputs beyond a quarter of the arena are copied on arrival.
func TestCrowdedArenaServesOthers(t *testing.T) {
	const requests, responses = 72, 60 // more than the 4096 descriptors; each request is within its window
	r := newFixtureWith(t, testkit.Python(t).Path, nil)
	m := r.startDecoupled("counting", countingModel)
	var held []*infer.Response
	for range requests {
		c := m.begin("60x5000")
		if report := c.executed(); report.Err != nil || !report.Executed {
			t.Fatalf("got report %+v, want one of an executed batch", report)
		}
		for n := range responses {
			answer := c.next()
			if answer.Err != nil || len(answer.Outputs) != 1 || len(answer.Outputs[0].Data) != 5000 {
				t.Fatalf("response %d of %d: got %+v", n, responses, answer)
			}
			held = append(held, answer)
		}
		held = append(held, c.next()) // the end
	}
	if now, _ := m.instance().Held(); now.Descriptors > 4096/4+1 {
		t.Errorf("%d descriptors are outstanding, want a quarter of 4096", now.Descriptors)
	}
	for n, answer := range held {
		if len(answer.Outputs) == 1 && process.ReadAll(answer) != byte(n%(responses+1)*5000) {
			t.Fatalf("response %d has other bytes", n)
		}
		answer.Release()
	}
	if now, alive := m.instance().Held(); !alive || now.Descriptors != 0 {
		t.Errorf("%d descriptors are outstanding at the end", now.Descriptors)
	}
}
