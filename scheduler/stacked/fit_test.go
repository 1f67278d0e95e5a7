package stacked

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestFitsDecidesWhoSharesABatch checks which requests may share a batch: "+" joins the current
// batch, "|" begins another one.
func TestFitsDecidesWhoSharesABatch(t *testing.T) {
	const ragged = `input { name: "X" data_type: TYPE_INT32 dims: [ -1, -1 ] allow_ragged_batch: true }`
	const pad = ragged + ` parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }`
	x := func(shape ...int64) *infer.Request {
		return &infer.Request{BatchSize: shape[0], Inputs: []infer.Tensor{{Name: "X", DataType: infer.Int32, Shape: shape}}}
	}
	without := &infer.Request{BatchSize: 1}
	for name, c := range map[string]struct {
		config   string
		requests []*infer.Request
		want     string
	}{
		"alike":                       {pad, []*infer.Request{x(1, 2, 3), x(1, 3, 2), x(4, 1, 1)}, "+++"},
		"small ones always":           {pad, []*infer.Request{x(1, 1, 60000), x(1, 1, 1), x(1, 1, 0)}, "+++"},
		"thin one way and the other":  {pad, []*infer.Request{x(1, 4000, 1), x(1, 1, 4000), x(1, 1, 3000)}, "+|+"},
		"one for many":                {pad, []*infer.Request{x(1, 1000, 1000), x(60, 1, 1)}, "+|"},
		"a few beside a large one":    {pad, []*infer.Request{x(1, 1000, 1000), x(10, 1, 1)}, "++"},
		"no elements and no end":      {pad, []*infer.Request{x(1, 1<<40, 0), x(1, 0, 1<<40), x(1, 2, 2), x(1, 2, 2)}, "+||+"},
		"no end behind others":        {pad, []*infer.Request{x(1, 2, 2), x(1, 1<<40, 0), x(1, 2, 2)}, "+||"},
		"another rank":                {pad, []*infer.Request{x(1, 2, 2), x(1, 2)}, "+|"},
		"optional":                    {pad, []*infer.Request{x(1, 4000, 1), without, x(1, 1, 4000)}, "++|"},
		"flat ones are not padded":    {ragged, []*infer.Request{x(1, 4000, 1), x(1, 1, 4000), x(1, 1<<40, 0)}, "++|"},
		"padding of many made of few": {pad, []*infer.Request{x(1, 1, 1<<20), x(1, 1<<20, 1)}, "+|"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := NewPlan(ConfigOf(t, stackedConfig+c.config))
			if err != nil {
				t.Fatal(err)
			}
			strategy := plan.Strategy(nil)
			include := strategy.Begin()
			var got strings.Builder
			for i, r := range c.requests {
				in := include(r)
				if i > 0 && !in {
					include = strategy.Begin()
					include(r)
				}
				got.WriteString(map[bool]string{true: "+", false: "|"}[in || i == 0])
			}
			if got.String() != c.want {
				t.Errorf("got %s, want %s", got.String(), c.want)
			}
		})
	}
}

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
