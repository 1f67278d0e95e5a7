package version_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

const chainConfig = `platform: "ensemble"
input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "X" } },
  { model_name: "second" model_version: 1 input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "B" } } ] }
`

// TestEnsemblesReleaseTheirModels closes a version that an ensemble's request has yet to call. It
// checks that the close waits for the request and that no hold is left.
func TestEnsemblesReleaseTheirModels(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"first/config.pbtxt": echoConfig, "first/1/keep": "", "second/config.pbtxt": echoConfig, "second/1/keep": "",
		"chain/config.pbtxt": chainConfig, "chain/1/keep": "",
	})
	hold := make(chan struct{})
	s := newShelf(t, root, &echoes{hold: hold}, nil)
	first, second, chain := s.mustLoad("first"), s.mustLoad("second"), s.mustLoad("chain")
	answered := make(chan string, 1) // one value
	go func() {
		text := "no response"
		err := chain.Infer(t.Context(), &infer.Request{Model: "chain", Version: 1, Inputs: []infer.Tensor{
			{Name: "A", DataType: infer.Int32, Shape: []int64{1}, Data: []byte{7, 0, 0, 0}},
		}}, func(r *infer.Response) {
			if text = ""; r.Err != nil {
				text = r.Err.Message
			}
		})
		if err != nil {
			text = err.Error()
		}
		answered <- text
	}()
	testkit.Eventually(t, patience, func() bool { return first.InFlight() == 1 })
	own, _ := second.Hold()
	closed := make(chan error, 1) // one value
	delete(s.versions, repository.Identity{Name: "second"})
	go func() { closed <- second.Close() }()
	untilClosing(t, second)
	if len(closed) > 0 {
		t.Error("the close does not wait for the request that is still to call the version")
	}
	close(hold)
	if text := <-answered; text != "" {
		t.Errorf("the request inside: %s", text)
	}
	testkit.Eventually(t, patience, func() bool { return chain.InFlight() == 0 })
	if len(closed) > 0 {
		t.Error("the ensemble has released a hold that it did not take")
	}
	own.Release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestRequestsToLargeEnsemblesAreCharged checks that a request to an ensemble of many steps, which
// takes far more memory than the request itself, is charged to the server's account.
func TestRequestsToLargeEnsemblesAreCharged(t *testing.T) {
	const steps = 1000
	var list []string
	for n := range steps {
		list = append(list, fmt.Sprintf(`{ model_name: "first" model_version: -1 input_map { key: "IN" value: "T%d" } output_map { key: "OUT" value: "T%d" } }`, n, n+1))
	}
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"first/config.pbtxt": echoConfig, "first/1/keep": "", "long/1/keep": "",
		"long/config.pbtxt": fmt.Sprintf(`platform: "ensemble"
			input [ { name: "T0" data_type: TYPE_INT32 dims: [ 1 ] } ]
			output [ { name: "T%d" data_type: TYPE_INT32 dims: [ 1 ] } ]
			ensemble_scheduling { step [ %s ] }`, steps, strings.Join(list, ", ")),
	})
	hold := make(chan struct{})
	account := budget.New(budget.Config{Limit: 64 << 20})
	s := newShelf(t, root, &echoes{hold: hold}, func(s *version.Settings) { s.Memory = account })
	s.mustLoad("first")
	v := s.mustLoad("long")
	before := account.Total()
	const requests = 3
	answered := make(chan error, requests)
	for range requests {
		go func() {
			answered <- v.Infer(t.Context(), &infer.Request{Model: "long", Version: 1, Inputs: []infer.Tensor{
				{Name: "T0", DataType: infer.Int32, Shape: []int64{1}, Data: []byte{7, 0, 0, 0}},
			}}, func(r *infer.Response) {
				if r.Err != nil {
					t.Error(r.Err)
				}
			})
		}()
	}
	testkit.Eventually(t, patience, func() bool { return v.InFlight() == requests })
	if got, least := account.Total()-before, int64(requests*steps<<10); got < least {
		t.Errorf("%d bytes are charged, want %d at least", got, least)
	}
	close(hold)
	for range requests {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	if got := account.Total(); got != before {
		t.Errorf("%d bytes are charged at the end, want %d", got, before)
	}
}
