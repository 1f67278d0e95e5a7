package models_test

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/version"
)

// TestTargetIsReplaced checks that a target whose version is unloaded or replaced before the
// request runs returns ErrReplaced without a response, and that the successor runs the request.
func TestTargetIsReplaced(t *testing.T) {
	b := models.NewFakeBackend()
	r := models.NewTestRegistry(t, models.WriteModels(t, map[string][]int64{"m": {1}}), b, models.Explicit("m"))
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := r.Target("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	// Unload returns when the version has begun to end, so this must be waited for.
	testkit.Eventually(t, models.Patience, func() bool { return models.Ends(found.(*version.Version)) })
	request := func() *infer.Request {
		return &infer.Request{Model: "m", Version: infer.LatestVersion,
			Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)}}}
	}
	err = found.Infer(t.Context(), request(), func(*infer.Response) { t.Error("a replaced version has answered") })
	if !errors.Is(err, models.ErrReplaced) {
		t.Errorf("got %v, want %v", err, models.ErrReplaced)
	}
	found, err = r.Target("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	answers := 0
	if err := found.Infer(t.Context(), request(), func(a *infer.Response) { answers++; a.Release() }); err != nil || answers != 1 {
		t.Errorf("got %d answers and error %v of the successor, want 1 and none", answers, err)
	}
}

// TestTargetAllocatesNothing checks that finding a version allocates no memory.
func TestTargetAllocatesNothing(t *testing.T) {
	r := models.NewTestRegistry(t, models.WriteModels(t, map[string][]int64{"m": {1}}), models.NewFakeBackend(), nil)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() {
		if _, err := r.Target("m", infer.LatestVersion); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("got %v allocations, want none", got)
	}
}
