package models_test

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
)

// TestTargetIsReplaced checks that a target whose version is unloaded or replaced before the
// request runs returns ErrReplaced without a response, and that the successor runs the request.
func TestTargetIsReplaced(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), b, explicit("m"))
	found, err := r.Target("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	unload(t, r, "m", false)
	mustLoad(t, r, "m")
	err = found.Infer(t.Context(), oneInput("m"), func(*infer.Response) { t.Error("a replaced version has answered") })
	if !errors.Is(err, models.ErrReplaced) {
		t.Errorf("got %v, want %v", err, models.ErrReplaced)
	}
	found, err = r.Target("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	answers := 0
	if err := found.Infer(t.Context(), oneInput("m"), func(a *infer.Response) { answers++; a.Release() }); err != nil || answers != 1 {
		t.Errorf("got %d answers and error %v of the successor, want 1 and none", answers, err)
	}
}

// TestTargetAllocatesNothing checks that finding a version allocates no memory.
func TestTargetAllocatesNothing(t *testing.T) {
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), newFakeBackend(), nil)
	if got := testing.AllocsPerRun(100, func() {
		if _, err := r.Target("m", infer.LatestVersion); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("got %v allocations, want none", got)
	}
}
