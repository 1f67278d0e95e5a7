package process_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// lingering starts two instances of a model that executes as long as its request's id says.
func lingering(t *testing.T, r *fixture) (m *running, first, second *process.Instance) {
	t.Helper()
	m, err := r.open(r.copyModel("lingers"), modelConfig("lingers", 2, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	return m, m.model.Instances()[0].(*process.Instance), m.model.Instances()[1].(*process.Instance)
}

// asking returns a request of size bytes with an id, which the caller releases.
func (r *fixture) asking(id string, size, seed int) *infer.Request {
	return &infer.Request{ID: id, Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, int64(size)}, testkit.Pattern(size, seed))}}
}

// wantPlusOne checks a response of the model and releases it and the request.
func wantPlusOne(t *testing.T, o outcome, request *infer.Request) {
	t.Helper()
	if o.answer == nil || o.answer.Err != nil {
		t.Fatalf("request %.20q: got %+v, %+v, want an answer", request.ID, o.report, o.answer)
	}
	want := bytes.Clone(request.Inputs[0].Data)
	for i := range want {
		want[i]++
	}
	if !bytes.Equal(o.answer.Outputs[0].Data, want) {
		t.Errorf("request %.20q: the answer's bytes are not the input's plus one", request.ID)
	}
	o.answer.Release()
	releaseInputs(request)
}

// wantNothingLent waits until a stub has returned all loans and reported the fate of the batch
// withdrawn last.
func wantNothingLent(t *testing.T, in *process.Instance) {
	t.Helper()
	var held process.Held
	if !testkit.Within(patience, func() (alive bool) {
		held, alive = in.Held()
		return alive && held.Loans+held.Batches+held.Withdrawn == 0
	}) {
		t.Fatalf("%s has %+v left, want nothing", in.Name(), held)
	}
}

// TestWithdrawnBatchRunsElsewhere withdraws a batch that waits behind a long execution. The other
// instance executes it at once.
func TestWithdrawnBatchRunsElsewhere(t *testing.T) {
	r := newFixture(t, nil)
	_, first, second := lingering(t, r)
	for round, size := range []int{3, 5000, 300_000, 5000} {
		goOn := filepath.Join(t.TempDir(), fmt.Sprint(round))
		long := r.asking("until "+goOn, 4, 0)
		lasts := handOver(first, long)
		id := ""
		if round == 3 {
			id = strings.Repeat(" ", 40_000) // the frame's body is in a block
		}
		request := r.asking(id, size, round)
		ahead := handOver(first, request)
		if first.Ahead() {
			t.Error("an instance with a batch ahead wants another")
		}
		first.Withdraw()
		select {
		case o := <-ahead:
			if !o.report.Refused || !o.report.Withdrawn {
				t.Fatalf("size %d: got %+v, want the batch back", size, o.report)
			}
		default:
			t.Fatalf("size %d: Withdraw has returned and the batch is not back", size)
		}
		first.Withdraw() // nothing left to withdraw
		if first.Ahead() {
			t.Error("an instance whose stub has not seen a withdrawal yet wants another batch ahead")
		}
		wantPlusOne(t, waitFor(t, handOver(second, request)), request)
		select {
		case o := <-lasts:
			t.Fatalf("the long execution has ended by itself: %+v", o)
		default:
		}
		// A batch that is handed over anyway is executed and cannot be withdrawn.
		last := r.asking("", 100, round)
		behind := handOver(first, last)
		first.Withdraw()
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wantPlusOne(t, waitFor(t, lasts), long)
		wantPlusOne(t, waitFor(t, behind), last)
		wantNothingLent(t, first)
		wantNothingLent(t, second)
	}
}

// TestWithdrawnBatchesAreAnsweredOnce withdraws many batches while stubs begin them. Each is
// executed once, by one of the instances, and nothing stays lent.
func TestWithdrawnBatchesAreAnsweredOnce(t *testing.T) {
	r := newFixture(t, nil)
	_, one, other := lingering(t, r)
	instances := []*process.Instance{one, other}
	random := rand.New(rand.NewPCG(1, 2))
	const rounds = 500
	type count struct{ certain, late, executed int }
	var counts count
	for round := range rounds {
		requests := make([]*infer.Request, 4)
		for i := range requests {
			id := fmt.Sprint(random.IntN(200))
			if random.IntN(20) == 0 {
				id += strings.Repeat(" ", 40_000)
			}
			requests[i] = r.asking(id, []int{4, 5000, 100_000}[random.IntN(3)], round+i)
		}
		results := make([]<-chan outcome, len(requests))
		for i, request := range requests {
			results[i] = handOver(instances[i%2], request)
		}
		pause := time.Duration(random.IntN(400)) * time.Microsecond
		var wg sync.WaitGroup
		for _, in := range instances {
			wg.Go(func() {
				for begin := time.Now(); time.Since(begin) < pause; {
				}
				in.Withdraw()
			})
		}
		wg.Wait()
		for i, request := range requests {
			var o outcome
			immediate := true
			select {
			case o = <-results[i]:
			default:
				immediate = false
				o = waitFor(t, results[i])
			}
			for in := i; o.answer == nil; in++ {
				if !o.report.Refused || !o.report.Withdrawn && in == i {
					t.Fatalf("round %d, request %d: %+v", round, i, o.report)
				}
				if immediate {
					counts.certain++
				} else {
					counts.late++
				}
				o = waitFor(t, handOver(instances[(in+1)%2], request))
			}
			counts.executed++
			wantPlusOne(t, o, request)
		}
	}
	for _, in := range instances {
		wantNothingLent(t, in)
	}
	t.Logf("of %d batches %d were withdrawn at once, and %d later", counts.executed, counts.certain, counts.late)
	if counts.executed != 4*rounds || counts.certain == 0 || counts.certain == 2*rounds {
		t.Errorf("counts are %+v: want some withdrawn and some not", counts)
	}
	if lost := r.counts.of(&r.counts.lost); lost != 0 {
		t.Errorf("%d stubs were lost, want none", lost)
	}
}

// TestWithdrawLateWaitsForTheStub withdraws a batch that the stub may have begun. It is returned
// once the stub reports that it skipped it.
func TestWithdrawLateWaitsForTheStub(t *testing.T) {
	r := newFixture(t, nil)
	_, first, second := lingering(t, r)
	for round := range 3 {
		goOn := filepath.Join(t.TempDir(), fmt.Sprint(round))
		long, request := r.asking("race "+goOn, 5000, round), r.asking("", 100_000, round)
		lasts, ahead := handOver(first, long), handOver(first, request)
		testkit.Eventually(t, patience, func() bool {
			_, err := os.Stat(goOn + ".begun")
			return err == nil
		})
		first.Withdraw()
		select {
		case o := <-ahead:
			t.Fatalf("a batch that seems to have been begun came back at once: %+v", o.report)
		default:
		}
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wantPlusOne(t, waitFor(t, lasts), long)
		if o := waitFor(t, ahead); !o.report.Refused || !o.report.Withdrawn {
			t.Errorf("the batch that was skipped: %+v, want it back", o.report)
		}
		wantPlusOne(t, waitFor(t, handOver(second, request)), request)
		wantNothingLent(t, first)
		wantNothingLent(t, second)
	}
}

// TestWithdrawFromALiar has a stub skip a batch that was not withdrawn, execute a withdrawn one, or
// conceal a skip. Its life ends, and each batch is answered once.
func TestWithdrawFromALiar(t *testing.T) {
	r := newFixture(t, nil)
	_, first, second := lingering(t, r)
	for i, way := range []string{"skip", "keep", "mute"} {
		testkit.Eventually(t, patience, func() bool { return first.Ready(context.Background()) == nil })
		goOn := filepath.Join(t.TempDir(), way)
		long, request := r.asking(way+" "+goOn, 5000, 0), r.asking("", 5000, 1)
		lasts, ahead := handOver(first, long), handOver(first, request)
		if way != "skip" {
			first.Withdraw()
			if o := waitFor(t, ahead); !o.report.Withdrawn {
				t.Fatalf("the batch ahead: %+v, want it back", o.report)
			}
			wantPlusOne(t, waitFor(t, handOver(second, request)), request)
		}
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wantPlusOne(t, waitFor(t, lasts), long)
		if way == "mute" {
			request = r.asking("", 4, 2)
			ahead = handOver(first, request)
		}
		if way != "keep" {
			if o := waitFor(t, ahead); o.answer == nil || o.answer.Err == nil {
				t.Errorf("%s: the last batch: %+v, want the error of a lost stub", way, o.report)
			}
			releaseInputs(request)
		}
		testkit.Eventually(t, patience, func() bool {
			return r.counts.brokenRules()["handle"] == i+1 && r.counts.of(&r.counts.lost) == i+1
		})
	}
}

// TestWithdrawFromADyingStub loses a stub that has not yet seen a withdrawal, and a stub during a
// withdrawal.
func TestWithdrawFromADyingStub(t *testing.T) {
	r := newFixture(t, nil)
	_, first, second := lingering(t, r)
	for round := range 4 {
		goOn := filepath.Join(t.TempDir(), fmt.Sprint(round))
		dies := r.asking("kill "+goOn, 5000, round)
		request := r.asking("", 100_000, round)
		lost, ahead := handOver(first, dies), handOver(first, request)
		if round < 2 {
			first.Withdraw()
		}
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for round >= 2 && len(lost) == 0 {
			first.Withdraw()
		}
		if o := waitFor(t, lost); o.answer == nil || o.answer.Err == nil {
			t.Errorf("the batch in which the stub died: %+v, %+v", o.report, o.answer)
		}
		if o := waitFor(t, ahead); !o.report.Refused {
			t.Errorf("round %d: the batch ahead: %+v, want it back", round, o.report)
		}
		wantPlusOne(t, waitFor(t, handOver(second, request)), request)
		releaseInputs(dies)
		testkit.Eventually(t, patience, func() bool { return first.Ready(context.Background()) == nil })
		again := r.asking("", 4, round)
		var o outcome
		testkit.Eventually(t, patience, func() bool {
			o = waitFor(t, handOver(first, again))
			return o.answer != nil
		})
		wantPlusOne(t, o, again)
		wantNothingLent(t, first)
		wantNothingLent(t, second)
	}
}
