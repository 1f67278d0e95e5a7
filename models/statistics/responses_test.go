package statistics_test

import (
	"fmt"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/models/statistics"
)

// TestResponsesAreCountedByTheirIndex checks the counts of each outcome, and that indices beyond
// the bound are ignored.
func TestResponsesAreCountedByTheirIndex(t *testing.T) {
	var s statistics.Responses
	if got := s.Proto(); got != nil {
		t.Errorf("nothing was reported: got %v", got)
	}
	for _, r := range []backend.ResponseReport{
		{Index: 0, Start: 10, OutputStart: 13, End: 18},
		{Index: 0, Start: 10, OutputStart: 11, End: 12, Outcome: backend.ResponseFailed},
		{Index: 0, Start: 10, End: 14, Outcome: backend.ResponseFailed},
		{Index: 0, Start: 10, OutputStart: 12, End: 17, Outcome: backend.ResponseCancelled},
		{Index: 10, Start: 10, End: 16},
		{Index: -1, Start: 10, End: 16}, {Index: statistics.MostIndices, Start: 10, End: 16},
	} {
		s.Report(r)
	}
	got := s.Proto()
	text := ""
	for _, index := range []string{"0", "10"} {
		r := got[index]
		text += fmt.Sprintf("%s: infer %s output %s success %s fail %s empty %s cancel %s; ", index, written(r.GetComputeInfer()), written(r.GetComputeOutput()),
			written(r.GetSuccess()), written(r.GetFail()), written(r.GetEmptyResponse()), written(r.GetCancel()))
	}
	const want = "0: infer 3/8 output 2/6 success 1/8 fail 2/6 empty 0/0 cancel 1/7; 10: infer 1/6 output 0/0 success 0/0 fail 0/0 empty 1/6 cancel 0/0; "
	if text != want || len(got) != 2 {
		t.Errorf("got  %s (%d rows)\nwant %s", text, len(got), want)
	}
}
