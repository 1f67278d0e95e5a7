package stacked

import (
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestFitsAsksTheOther checks that the model's own strategy is applied too.
func TestFitsAsksTheOther(t *testing.T) {
	plan, err := NewPlan(ConfigOf(t, stackedConfig+`input { name: "X" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }`))
	if err != nil {
		t.Fatal(err)
	}
	single, err := batching.Single(nil)
	if err != nil {
		t.Fatal(err)
	}
	include := plan.Strategy(single).Begin()
	r := request(ints("X", dims(1, 1), 1))
	if include(r); include(r) {
		t.Error("two requests share a batch of a model that wants them one by one")
	}
}

// TestPaddingWithoutElementsIsFree checks that items without elements cost no time, even with huge
// shapes.
func TestPaddingWithoutElementsIsFree(t *testing.T) {
	r := newFixture(t, `input { name: "X" data_type: TYPE_INT32 dims: [ -1, -1 ] allow_ragged_batch: true } parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }`,
		func(*infer.Request) *infer.Response { return &infer.Response{Final: true} })
	r.release(r.run(request(ints("X", dims(1, 1<<40, 0))), request(ints("X", dims(1, 1, 0)))))
}
