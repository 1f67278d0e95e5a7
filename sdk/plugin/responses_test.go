package plugin_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// TestResponsesDoNotWaitForTheEndOfTheBatch checks that clients get responses at once, although a
// decoupled Execute continues or a sequence's request is released later.
func TestResponsesDoNotWaitForTheEndOfTheBatch(t *testing.T) {
	for name, change := range map[string]func(*kserve.ModelConfig){
		"lingers": func(c *kserve.ModelConfig) {
			c.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
		},
		"releases-later": func(c *kserve.ModelConfig) {
			c.SchedulingChoice = &kserve.ModelConfig_SequenceBatching{SequenceBatching: &kserve.ModelSequenceBatching{}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t)
			m := r.start(name, change)
			for _, n := range []int{4, 100_000} {
				request := r.request(testkit.Pattern(n, 1))
				e := m.execute(t.Context(), request)
				response := e.next(0)
				if !response.Final {
					t.Error("the answer is not the last response")
				}
				m.wantBytes(response, testkit.Pattern(n, 1))
				select {
				case report := <-e.report:
					t.Errorf("the batch is done before its end was allowed: %+v", report)
				default:
				}
				word := filepath.Join(m.folder, "go")
				if err := os.WriteFile(word, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if report := e.done(); report.Err != nil || len(report.Failed) > 0 {
					t.Errorf("got report %+v", report)
				}
				if err := os.Remove(word); err != nil {
					t.Fatal(err)
				}
				request.Inputs[0].Release()
			}
		})
	}
}

// TestDecoupledSenderWaitsForMemory sends more than the arena holds, but less than a window. Each
// next output is allocated once the client has read one.
func TestDecoupledSenderWaitsForMemory(t *testing.T) {
	r := newFixture(t)
	r.settings["shm-max-byte-size"] = "4194304"
	m := r.start("floods", func(c *kserve.ModelConfig) {
		c.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	})
	request := r.request([]byte{1})
	e := m.execute(t.Context(), request)
	testkit.Eventually(t, patience, func() bool { return len(e.responses[0]) >= 3 }) // at most four fit
	for i := range 20 {
		m.wantBytes(e.next(0), bytes.Repeat([]byte{byte(i)}, 1<<20))
	}
	if last := e.next(0); !last.Final || !last.Empty {
		t.Errorf("got %+v, want the final flag", last)
	}
	if report := e.done(); report.Err != nil || len(report.Failed) > 0 {
		t.Errorf("got report %+v", report)
	}
}

// TestRequestsCountAsTheAuthorSays checks that requests count as failed according to the author's
// reports, independently of their responses.
func TestRequestsCountAsTheAuthorSays(t *testing.T) {
	r := newFixture(t)
	m := r.start("counts", nil)
	var requests []*infer.Request
	for _, first := range []byte{0, 1, 0, 2} {
		requests = append(requests, r.request([]byte{first}))
	}
	e := m.execute(t.Context(), requests...)
	for i, request := range requests {
		response := e.next(i)
		if failed := response.Err != nil; failed != (i == 3) {
			t.Errorf("request %d: got error %v", i, response.Err)
		}
		response.Release()
		request.Inputs[0].Release()
	}
	if report := e.done(); report.Err != nil || !slices.Equal(report.Failed, []int{1, 3}) {
		t.Errorf("got report %+v, want requests 1 and 3 failed", report)
	}
}
