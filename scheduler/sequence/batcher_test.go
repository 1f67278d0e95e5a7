package sequence_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

func TestInvalidSequenceRequestsAreRejected(t *testing.T) {
	s := sequence.New(sequence.Config{Model: "m", Observer: &tally{}, MaxBatch: 8})
	for _, tt := range []struct {
		batch       int64
		correlation infer.CorrelationID
		want        string
	}{
		{2, infer.CorrelationID{Number: 1}, "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"},
		{1, infer.CorrelationID{}, "inference request to model 'm' must specify a non-zero or non-empty correlation ID"},
		{1, infer.CorrelationID{Text: strings.Repeat("x", 129)}, "string correlation ID cannot be longer than 128 characters"},
	} {
		err := s.Submit(t.Context(), &infer.Request{BatchSize: tt.batch, Correlation: tt.correlation, Flags: infer.SequenceStart}, nil)
		if err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

func TestSequenceConflictIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFixture(t, direct(1, 0, 0))
		c.run("up i; send a x S; send b x S; end i; has i b")
		const want = "sequence x for model 'm' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early."
		if !strings.Contains(c.log.String(), want) {
			t.Errorf("the log has %s, want %s", c.log.String(), want)
		}
		c.leave()
	})
}

// TestForgottenInstancesAreNotKept checks that a batcher refers to no instance after Forget.
func TestForgottenInstancesAreNotKept(t *testing.T) {
	for name, config := range map[string]sequence.Config{"direct": direct(1, 0, 0), "oldest": oldest(1, 1, 0)} {
		config.Model, config.Observer = "m", &tally{}
		s := sequence.New(config)
		for _, known := range []bool{true, false} {
			forgotten := func() weak.Pointer[backendtest.Instance] {
				in := backendtest.NewInstance("i", 0)
				if known {
					s.Available(in)
				}
				s.Retire(in, func() {})
				s.Lost(in, true)
				s.Forget(in)
				return weak.Make(in)
			}()
			runtime.GC()
			if forgotten.Value() != nil {
				t.Errorf("%s, known before: %v: the instance is kept", name, known)
			}
		}
		runtime.KeepAlive(s)
	}
}
