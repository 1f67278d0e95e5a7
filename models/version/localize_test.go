package version

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/models/cache"
)

// mappers is a backend whose models may map inputs in foreign memory and write outputs in place.
type mappers struct{ maps, writes bool }

func (b *mappers) Open(backend.Env) (backend.Model, error) { return &mapper{of: b}, nil }

type mapper struct {
	echo
	of    *mappers
	asked []string // the outputs passed to Writes
}

func (m *mapper) Capabilities() backend.ModelCapabilities {
	return backend.ModelCapabilities{Mapper: m}
}

func (m *mapper) Maps(*infer.Tensor) bool { return m.of.maps }

func (m *mapper) TakesDevices() bool { return false }

func (m *mapper) Writes(p *infer.Place) bool {
	m.asked = append(m.asked, p.Output)
	return m.of.writes
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
		mappers      mappers
		config       string
		cached       bool
		traced       bool
		sees, puts   bool // the input stays in foreign memory; the places are kept
		neverIsAsked bool
	}{
		"a model that maps and writes":    {mappers: mappers{true, true}, sees: true, puts: true},
		"one that only maps":              {mappers: mappers{true, false}, sees: true},
		"one that only writes":            {mappers: mappers{false, true}, puts: true},
		"dynamic batching":                {mappers: mappers{true, true}, config: "max_batch_size: 4 dynamic_batching { }\n", sees: true, puts: true},
		"a traced request":                {mappers: mappers{true, true}, traced: true, neverIsAsked: true},
		"a cache":                         {mappers: mappers{true, true}, config: "response_cache { enable: true }\n", cached: true, neverIsAsked: true},
		"a cache that the server has not": {mappers: mappers{true, true}, config: "response_cache { enable: true }\n", sees: true, puts: true},
		"sequences":                       {mappers: mappers{true, true}, config: "sequence_batching { }\n", neverIsAsked: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t, writeModel(t, test.config), &test.mappers, func(c *Settings) {
				if test.cached {
					var err error
					if c.Cache, err = cache.New(cache.Config{Size: 1 << 20}); err != nil {
						t.Fatal(err)
					}
				}
			})
			v, err := s.load("m")
			if err != nil {
				t.Fatal(err)
			}
			in, out := &foreign{refs: 1}, &foreign{refs: 1}
			req := &infer.Request{
				Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{1}, Memory: in}},
				Places: []infer.Place{{Output: "OUT", Memory: out}, {Output: "MORE", Memory: out}},
			}
			if v.info.Config.GetMaxBatchSize() > 0 {
				req.Inputs[0].Shape = []int64{1, 1}
			}
			if test.traced {
				req.Trace = trace.New(trace.Config{IDs: new(atomic.Uint64)})
			}
			if err := v.spec.Validate(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if err := v.localize(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			v.keepPlaces(req)
			if sees := in.copies == 0; sees != test.sees || sees != (req.Inputs[0].Foreign() != nil) {
				t.Errorf("the input is seen where it lies: %v, want %v", sees, test.sees)
			}
			if puts := len(req.Places) == 2; puts != test.puts || !puts && req.Places != nil {
				t.Errorf("got places %v, and want some: %v", req.Places, test.puts)
			}
			if asked := v.model.(*mapper).asked; (len(asked) != 2) != test.neverIsAsked {
				t.Errorf("the model was asked about %v", asked)
			}
			if out.copies != 0 || out.refs != 1 {
				t.Errorf("%d copies and %d references of the place, want none and one", out.copies, out.refs)
			}
		})
	}
}

// TestPlacesOfOthers checks that a model whose backend does not support foreign memory gets no
// places.
func TestPlacesOfOthers(t *testing.T) {
	s := newShelf(t, writeModel(t, ""), echoes{}, nil)
	v, err := s.load("m")
	if err != nil {
		t.Fatal(err)
	}
	req := &infer.Request{Places: []infer.Place{{Output: "OUT", Memory: &foreign{}}}}
	if v.keepPlaces(req); req.Places != nil {
		t.Errorf("got places %v, want none", req.Places)
	}
}
