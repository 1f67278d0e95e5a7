package sequence_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

func TestAdmissionRefusesBatches(t *testing.T) {
	s := sequence.New(sequence.Config{Model: "m", Observer: &sequence.Tally{}, MaxBatch: 8})
	const want = "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"
	err := s.Submit(t.Context(), &infer.Request{BatchSize: 2, Correlation: infer.CorrelationID{Number: 1}}, nil)
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSequenceConflictIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sequence.NewFixture(t, sequence.Direct(1, 0, 0))
		c.Run("up i; send a x S; send b x S; end i; has i b")
		const want = "sequence x for model 'm' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early."
		if !strings.Contains(c.Log.String(), want) {
			t.Errorf("the log has %s, want %s", c.Log.String(), want)
		}
		c.Leave()
	})
}
