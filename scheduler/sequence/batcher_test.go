package sequence_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

func TestAdmissionRefusesWhatNoSequenceCanHave(t *testing.T) {
	s := sequence.New(sequence.Config{Model: "m", Observer: &sequence.Tally{}, MaxBatch: 8})
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
		c := sequence.NewFixture(t, sequence.Direct(1, 0, 0))
		c.Run("up i; send a x S; send b x S; end i; has i b")
		const want = "sequence x for model 'm' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early."
		if !strings.Contains(c.Log.String(), want) {
			t.Errorf("the log has %s, want %s", c.Log.String(), want)
		}
		c.Leave()
	})
}
