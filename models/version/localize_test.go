package version_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/version"
)

// mapper maps inputs in foreign memory and writes outputs in place, or does not.
type mapper struct {
	maps, writes bool
	asked        []string // the outputs passed to Writes
}

func (m *mapper) Maps(*infer.Tensor) bool { return m.maps }

func (m *mapper) TakesDevices() bool { return false }

func (m *mapper) Writes(p *infer.Place) bool {
	m.asked = append(m.asked, p.Output)
	return m.writes
}

// foreign is a client's memory with one INT32.
type foreign struct{ refs, copies int }

func (f *foreign) Retain()     { f.refs++ }
func (f *foreign) Release()    { f.refs-- }
func (f *foreign) Size() int64 { return 4 }

func (f *foreign) Copy(context.Context) ([]byte, infer.Memory, error) {
	f.copies++
	return make([]byte, 4), nil, nil
}

// TestForeignMemoryIsCopiedUnlessTheModelReadsIt checks that inputs in foreign memory and places of
// outputs reach only models that support them, and only if no cache, trace or sequence needs the
// bytes.
func TestForeignMemoryIsCopiedUnlessTheModelReadsIt(t *testing.T) {
	for name, test := range map[string]struct {
		mapper       *mapper // nil: the model does not support foreign memory
		config       string
		cached       bool
		traced       bool
		sees, puts   bool // the input stays in foreign memory; the places are kept
		neverIsAsked bool
	}{
		"a model that maps and writes":    {mapper: &mapper{maps: true, writes: true}, sees: true, puts: true},
		"one that only maps":              {mapper: &mapper{maps: true}, sees: true},
		"one that only writes":            {mapper: &mapper{writes: true}, puts: true},
		"one that does neither":           {neverIsAsked: true},
		"dynamic batching":                {mapper: &mapper{maps: true, writes: true}, config: "max_batch_size: 4 dynamic_batching { }\n", sees: true, puts: true},
		"a traced request":                {mapper: &mapper{maps: true, writes: true}, traced: true, neverIsAsked: true},
		"a cache":                         {mapper: &mapper{maps: true, writes: true}, config: "response_cache { enable: true }\n", cached: true, neverIsAsked: true},
		"a cache that the server has not": {mapper: &mapper{maps: true, writes: true}, config: "response_cache { enable: true }\n", sees: true, puts: true},
		"sequences":                       {mapper: &mapper{maps: true, writes: true}, config: "sequence_batching { }\n", neverIsAsked: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &echoes{}
			if test.mapper != nil {
				b.can.Mapper = test.mapper
			}
			s := newShelf(t, writeModel(t, test.config), b, func(c *version.Settings) {
				if test.cached {
					var err error
					if c.Cache, err = cache.New(cache.Config{Size: 1 << 20}); err != nil {
						t.Fatal(err)
					}
				}
			})
			v := s.mustLoad("m")
			in, out := &foreign{refs: 1}, &foreign{refs: 1}
			req := &infer.Request{
				Model: "m", Version: 1, Correlation: infer.CorrelationID{Number: 7}, Flags: infer.SequenceStart | infer.SequenceEnd,
				Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{1}, Memory: in}},
				Places: []infer.Place{{Output: "OUT", Memory: out}, {Output: "MORE", Memory: out}},
			}
			if v.Info().Config.GetMaxBatchSize() > 0 {
				req.Inputs[0].Shape = []int64{1, 1}
			}
			if test.traced {
				req.Trace = trace.New(trace.Config{IDs: new(atomic.Uint64), Now: backend.Now, Done: (*trace.Tree).Release})
			}
			if err := v.Infer(t.Context(), req, func(r *infer.Response) {
				if r.Err != nil {
					t.Error(r.Err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if sees := in.copies == 0; sees != test.sees || sees != (b.inputs[0].Foreign() != nil) {
				t.Errorf("the input is seen where it lies: %v, want %v", sees, test.sees)
			}
			if puts := len(b.places) == 2; puts != test.puts || !puts && b.places != nil {
				t.Errorf("got places %v, and want some: %v", b.places, test.puts)
			}
			if asked := test.mapper != nil && len(test.mapper.asked) == 2; asked == test.neverIsAsked {
				t.Errorf("the model was asked about both outputs: %v", asked)
			}
			if out.copies != 0 || out.refs != 1 {
				t.Errorf("%d copies and %d references of the place, want none and one", out.copies, out.refs)
			}
		})
	}
}
