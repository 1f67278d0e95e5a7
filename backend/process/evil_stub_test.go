package process_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestScribblingStubsAnswerAndAreReplaced runs a stub that corrupts its frames, words and memory,
// five times per request. Every request gets a response, and a valid one succeeds afterwards.
func TestScribblingStubsAnswerAndAreReplaced(t *testing.T) {
	testkit.Story(t)
	for name, prefix := range map[string]string{"sealed": "", "named": "nereid_test_evil_"} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, func(c *python.Config) {
				c.ExecuteTimeout = time.Second
				c.RegionPrefix = prefix
			})
			requests := 200
			if !testkit.Long() {
				requests = 20
			}
			for seed := 0; seed < requests; {
				// A new instance has no restart delay yet.
				m := r.in(t).start("scribbles", infer.Uint8)
				// The stub may report that a request stays open and never answer it.
				m.killAfter = time.Second
				lost := r.counts.of(&r.counts.lost)
				out := r.in(t).region(0o600)
				for ; seed < requests && r.counts.of(&r.counts.lost) < lost+4; seed++ {
					size := []int{4, 5000, 200_000}[seed%3]
					request := &infer.Request{
						ID: fmt.Sprint(seed), Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, int64(size)}, testkit.Pattern(size, seed))},
					}
					if m.model.Capabilities().Mapper.Writes(&infer.Place{Output: "OUT0", Memory: out}) {
						request.Places = []infer.Place{{Output: "OUT0", Memory: out}}
					}
					responses, _ := m.infer(request)
					process.ReadAll(responses[0])
					responses[0].Release()
					releaseInputs(request)
					if seed%10 == 0 {
						m.wantGoodAtLast()
					}
				}
				m.wantGoodAtLast()
				m.close()
				if n := out.refs.Load(); n != 1 {
					t.Errorf("the place of outputs has %d references, want one", n)
				}
				out.Release()
			}
			rules := r.counts.brokenRules()
			t.Logf("%d stubs were lost, rules broken: %v", r.counts.of(&r.counts.lost), rules)
			if len(rules) < 4 && testkit.Long() {
				t.Errorf("rules broken are %v, want several: the test corrupts too little", rules)
			}
		})
	}
}

// wantGoodAtLast waits until a valid request succeeds. Memory that a stub has corrupted earlier may
// still end its life.
func (m *running) wantGoodAtLast() {
	m.fixture.t.Helper()
	testkit.Eventually(m.fixture.t, patience, func() bool {
		request := m.fixture.small()
		request.ID = "good"
		responses, _ := m.infer(request)
		defer responses[0].Release()
		return responses[0].Err == nil && len(responses[0].Outputs) == 1 && string(responses[0].Outputs[0].Data) == "\x01\x02\x03\x04"
	})
}
