package engine_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/sdk"
)

// TestStatistics checks the precedence of reported times: the batch's, then the first request's,
// then the measured ones.
func TestStatistics(t *testing.T) {
	at := func(n int64) sdk.Times {
		return sdk.Times{ExecStart: n, ComputeStart: n + 1, ComputeEnd: n + 2, ExecEnd: n + 3}
	}
	for name, test := range map[string]struct {
		report func(s sdk.Statistics, r *sdk.Request, now int64)
		offset int64 // of the times from now; -1: measured
		failed string
	}{
		"none":           {func(sdk.Statistics, *sdk.Request, int64) {}, -1, "[]"},
		"of the request": {func(s sdk.Statistics, r *sdk.Request, now int64) { _ = s.Request(r, true, at(now)) }, 0, "[]"},
		"of a failure":   {func(s sdk.Statistics, r *sdk.Request, now int64) { _ = s.Request(r, false, at(now)) }, 0, "[0]"},
		"of the batch": {func(s sdk.Statistics, r *sdk.Request, now int64) {
			_ = s.Request(r, true, at(now))
			_ = s.Batch(1, at(now+10))
		}, 10, "[]"},
		"too early": {func(s sdk.Statistics, _ *sdk.Request, now int64) {
			_ = s.Batch(1, sdk.Times{ExecStart: math.MinInt64, ComputeEnd: now, ExecEnd: now})
		}, -1, "[]"},
		"to come": {func(s sdk.Statistics, _ *sdk.Request, now int64) {
			_ = s.Batch(1, sdk.Times{ExecStart: now, ComputeStart: now, ComputeEnd: math.MaxInt64, ExecEnd: math.MaxInt64})
		}, -1, "[]"},
		"out of order": {func(s sdk.Statistics, r *sdk.Request, now int64) {
			bad := sdk.Times{ExecStart: now + 1, ComputeStart: now}
			must(t, s.Request(r, true, bad), "want them in order")
			must(t, s.Batch(1, bad), "want them in order")
		}, -1, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			var r *fixture
			var now int64
			r = start(t, &author{execute: func(ctx context.Context, requests []*sdk.Request) error {
				now = sdk.Now()
				test.report(r.author().Statistics, requests[0], now)
				return identity(ctx, requests)
			}}, with(""))
			begun := backend.Now()
			report := <-r.execute(ask(t, 1))
			ordered(t, &report, begun)
			if test.offset >= 0 && (report.Start != now+test.offset || report.ComputeStart != report.Start+1 || report.End != report.Start+3) {
				t.Errorf("got report %+v, want the times of %d on", report, now+test.offset)
			}
			if got := fmt.Sprint(report.Failed); got != test.failed {
				t.Errorf("got failures %s, want %s", got, test.failed)
			}
		})
	}
	s := start(t, &author{execute: identity}, with("")).author().Statistics
	must(t, s.Response(nil, 0, 2, 1, 3, nil), "Response start cannot happen after compute output start")
	must(t, s.Response(nil, 0, 1, 3, 2, nil), "Compute output start cannot happen after response end")
	must(t, s.Response(nil, 0, 2, 0, 1, nil), "Response start cannot happen after response end")
	mustNot(t, s.Response(nil, 0, 1, 2, 3, nil))
}

// TestErrorResponsesAreFailures checks that a request with an error response counts as failed
// unless the backend reports otherwise.
func TestErrorResponsesAreFailures(t *testing.T) {
	r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
		for _, q := range requests {
			p, err := q.NewResponse()
			mustNot(t, err)
			mustNot(t, p.Send(sdk.SendFinal, sdk.Errorf(sdk.InvalidArg, "no")))
			mustNot(t, q.Release(sdk.ReleaseAll))
		}
		return nil
	}}, with(""))
	c := ask(t, 1)
	report := <-r.execute(c)
	if report.Err != nil || fmt.Sprint(report.Failed) != "[0]" {
		t.Errorf("got report %+v, want one failure", report)
	}
	if got := c.wait(1)[0]; got.Err == nil || got.Err.Code != infer.InvalidArg || got.Err.Message != "no" {
		t.Errorf("got %+v, want the error", got)
	}
}

// TestActivitiesAreTraced checks that activities are added to their request's trace, and are
// rejected after its release.
func TestActivitiesAreTraced(t *testing.T) {
	var before int64
	r := start(t, &author{execute: func(ctx context.Context, requests []*sdk.Request) error {
		q := requests[0]
		if _, traced := q.Trace(); !traced {
			mustNot(t, q.TraceActivity("of no trace", 0))
			return identity(ctx, requests)
		}
		before = sdk.Now()
		mustNot(t, q.TraceActivity("now", 0))
		mustNot(t, q.TraceActivity("then", before))
		must(t, q.TraceActivity("", 0), "want 1 to 256 bytes of UTF-8")
		must(t, q.TraceActivity(strings.Repeat("x", 257), 0), "want 1 to 256 bytes of UTF-8")
		mustNot(t, identity(ctx, requests))
		must(t, q.TraceActivity("late", 0), "a trace activity was reported after the release of the request")
		return nil
	}}, with(""))
	untraced := ask(t, 1)
	<-r.execute(untraced)
	untraced.wait(1)
	c := ask(t, 1)
	done := make(chan *trace.Tree, 1)
	c.task.Request.Trace = trace.New(trace.Config{Timestamps: true, IDs: new(atomic.Uint64), Now: backend.Now, Done: func(tree *trace.Tree) { done <- tree }})
	c.task.Request.Trace.Begin("m", 1, "", 1)
	<-r.execute(c)
	c.wait(1)
	c.task.Request.Trace.Responded(true)
	c.task.Request.Trace.Finish()
	entries := (<-done).Records()[0].Entries
	if len(entries) != 6 || entries[2].Name != "now" || entries[2].At < before || entries[3].Name != "then" || entries[3].At != before {
		t.Errorf("got %+v, want an activity at %d and one after it", entries, before)
	}
	if !strings.Contains(r.log.String(), "instance 'm_0_0': [request id: r] a trace activity was reported after the release of the request") {
		t.Errorf("the log does not name the fault: %s", r.log.String())
	}
}
