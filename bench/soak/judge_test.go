package main

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAnswersAreRightRefusedOrWrong checks the outcome for each kind of reply that a valid request
// may receive.
func TestAnswersAreRightRefusedOrWrong(t *testing.T) {
	for _, test := range []struct {
		err  error
		want outcome
	}{
		{nil, right},
		{&answerError{http.StatusServiceUnavailable, "no memory is left"}, refused},
		{fmt.Errorf("ask: %w", &answerError{http.StatusInternalServerError, "Stub process 'asks_0_1' is not healthy."}), lost},
		{&answerError{http.StatusInternalServerError, "doubles: Stub process 'doubles_0_0' is not healthy."}, lost},
		{&answerError{http.StatusBadRequest, "Request for unknown model: 'moves' has no available versions"}, absent},
		{&answerError{http.StatusBadRequest, "Request for unknown model: 'asks' is not found"}, wrong},
		{&answerError{http.StatusInternalServerError, "something else"}, wrong},
		{errors.New("wrong answer: got 1, want 2"), wrong},
		{fromStatus(status.Error(codes.Unavailable, "no memory is left")), refused},
		{fromStatus(status.Error(codes.ResourceExhausted, "no memory is left")), refused},
		{fromStatus(status.Error(codes.NotFound, "Request for unknown model: 'moves' is not found")), absent},
		{&answerError{http.StatusInternalServerError, "doubles: request needs 9 bytes of memory"}, refused},
		{fromStatus(status.Error(codes.Unavailable, "connection error: desc = \"error reading server preface: EOF\"")), refused},
		{fromStatus(status.Error(codes.Unavailable, "write tcp 127.0.0.1:2->127.0.0.1:1: write: connection reset by peer")), refused},
		{fromStatus(status.Error(codes.Unavailable, "error reading from server: EOF")), wrong},
		{fromStatus(status.Error(codes.DeadlineExceeded, "context deadline exceeded")), wrong},
	} {
		if got, _ := judge("a client", test.err); got != test.want {
			t.Errorf("%v: got %s, want %s", test.err, got, test.want)
		}
	}
}

// TestVerdictNamesEachFault checks that each wrong figure is reported as a separate fault.
func TestVerdictNamesEachFault(t *testing.T) {
	before := usage{resident: 10 << 20, serving: 10 << 20, shared: 8 << 20, descriptors: 100, processes: 17}
	for name, test := range map[string]struct {
		after    usage
		counters map[string]float64
		left     []string
		answers  map[outcome]int
		faults   int
	}{
		"all is well":           {before, nil, nil, map[outcome]int{right: 9, refused: 1}, 0},
		"a wrong response":      {before, nil, nil, map[outcome]int{right: 9, wrong: 1}, 1},
		"no answer is right":    {before, nil, nil, map[outcome]int{refused: 9}, 2},
		"lost without a loss":   {before, nil, nil, map[outcome]int{right: 9, lost: 1}, 1},
		"lost with a process":   {before, map[string]float64{"nereid_stub_losses_total": 1}, nil, map[outcome]int{right: 9, lost: insideOne}, 0},
		"memory is kept":        {usage{resident: 200 << 20, shared: 8 << 20, descriptors: 100, processes: 17}, nil, nil, map[outcome]int{right: 9}, 1},
		"descriptors are kept":  {usage{resident: 10 << 20, descriptors: 200, processes: 17}, nil, nil, map[outcome]int{right: 9}, 1},
		"a process is too much": {usage{resident: 10 << 20, descriptors: 100, processes: 18}, nil, nil, map[outcome]int{right: 9}, 1},
		"a panic":               {before, map[string]float64{"nereid_internal_errors_total": 1}, nil, map[outcome]int{right: 9}, 1},
		"an account is open":    {before, map[string]float64{"nereid_memory_bytes": 64 << 20}, nil, map[outcome]int{right: 9}, 1},
		"a file is left":        {before, nil, []string{"file x"}, map[outcome]int{right: 9}, 1},
	} {
		k := &soak{results: newResults(), server: &server{}}
		for o, n := range test.answers {
			for range n {
				k.results.answered("HTTP asks", o, "")
			}
		}
		k.judge(before, test.after, test.counters, nil, test.left)
		if len(k.results.faults) != test.faults {
			t.Errorf("%s: got faults %q, want %d", name, k.results.faults, test.faults)
		}
	}
}
