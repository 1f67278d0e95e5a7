package stacked

import (
	"fmt"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/rs/zerolog"
)

// Parameters of config.pbtxt for stacking.
const (
	modeParameter   = "BATCH_MODE"
	raggedParameter = "BATCH_RAGGED"
	padParameter    = "BATCH_PAD_VALUE"
)

// join says how the inputs of one name are merged.
type join uint8

const (
	joinRows   join = 1 // along the batch dimension; other dimensions are equal
	joinFlat   join = 2 // into one dimension of elements
	joinPadded join = 3 // along the batch dimension, items padded to the largest
)

// Plan says how the batches of one model are stacked. It does not change.
type Plan struct {
	model   string
	log     zerolog.Logger
	ragged  join              // of inputs with allow_ragged_batch
	inputs  map[string]*input // inputs with allow_ragged_batch
	extras  []extra           // batch_input
	scatter map[string]*scatter
}

// input is an input whose items may differ in shape within a batch.
type input struct {
	join join
	pad  []byte // one encoded element; nil: zeros
}

// extra is an input that describes the shapes of another.
type extra struct {
	kind    kserve.BatchInput_Kind
	float   bool // FP32, else INT32
	source  string
	targets []string
}

// scatter describes an output whose variable dimensions are those of an input.
type scatter struct {
	source string
	dims   []int64 // of an item; -1: taken from the source
}

// LogTo sets the logger of the instances.
func (p *Plan) LogTo(log zerolog.Logger) { p.log = log }

// Asked reports whether a config requests stacked batches. If the parameter has another value,
// which only concerns the model, it is returned as other.
func Asked(config *kserve.ModelConfig) (yes bool, other string) {
	p, ok := config.GetParameters()[modeParameter]
	switch {
	case !ok:
		return false, ""
	case p.GetStringValue() == "stacked":
		return true, ""
	}
	return false, p.GetStringValue()
}

// NewPlan returns the plan of a normalised config, nil without stacking. The error is InvalidArg.
func NewPlan(config *kserve.ModelConfig) (*Plan, error) {
	if yes, _ := Asked(config); !yes {
		return nil, nil
	}
	refuse := func(format string, args ...any) (*Plan, error) {
		return nil, infer.Errorf(infer.InvalidArg, "model '%s' asks for stacked batches: %s", config.GetName(), fmt.Sprintf(format, args...))
	}
	switch {
	case config.GetModelTransactionPolicy().GetDecoupled():
		return refuse("a decoupled model cannot have them, as its responses are not one for each request")
	case config.GetDynamicBatching() == nil:
		return refuse("they need dynamic_batching")
	case config.GetMaxBatchSize() < 1:
		return refuse("max_batch_size is %d, want 1 or more", config.GetMaxBatchSize())
	}
	p := &Plan{model: config.GetName(), ragged: joinFlat, inputs: map[string]*input{}, scatter: map[string]*scatter{}}
	parameter := func(name string) string { return config.GetParameters()[name].GetStringValue() }
	switch how := parameter(raggedParameter); how {
	case "", "flat":
	case "pad":
		p.ragged = joinPadded
	default:
		return refuse("parameter %s is %q, want \"flat\" or \"pad\"", raggedParameter, how)
	}
	_, padded := config.GetParameters()[padParameter]
	if padded && p.ragged != joinPadded {
		return refuse("parameter %s is of use only with %s \"pad\"", padParameter, raggedParameter)
	}
	dims := map[string][]int64{}
	for _, in := range config.GetInput() {
		if _, again := dims[in.GetName()]; again {
			continue // the first of equal names counts
		}
		dims[in.GetName()] = seen(in) // bound: the config
		if !in.GetAllowRaggedBatch() {
			continue
		}
		ragged := &input{join: p.ragged}
		if padded {
			var err error
			if ragged.pad, err = element(infer.DataType(in.GetDataType()), parameter(padParameter)); err != nil {
				return refuse("parameter %s is %q: input '%s' of %s: %v", padParameter, parameter(padParameter), in.GetName(), in.GetDataType(), err)
			}
		}
		p.inputs[in.GetName()] = ragged // bound: the config
	}
	taken := make(map[string]bool)
	for name := range dims {
		taken[name] = true // bound: the config
	}
	for _, in := range config.GetBatchInput() {
		for _, target := range in.GetTargetName() {
			switch {
			case target == "":
				return refuse("a target_name of batch_input is empty")
			case taken[target]:
				return refuse("batch_input makes '%s', but there is an input of that name", target)
			}
			taken[target] = true // bound: the config
		}
		p.extras = append(p.extras, extra{ // bound: the config
			kind: in.GetKind(), float: in.GetDataType() == kserve.DataType_TYPE_FP32,
			source: in.GetSourceInput()[0], targets: in.GetTargetName(),
		})
	}
	for _, out := range config.GetBatchOutput() {
		s := &scatter{source: out.GetSourceInput()[0]}
		for _, target := range out.GetTargetName() {
			for _, o := range config.GetOutput() {
				if o.GetName() == target {
					s = &scatter{source: s.source, dims: seen(o)}
					break
				}
			}
			for i, d := range s.dims {
				if d == -1 && i >= len(dims[s.source]) {
					return refuse("dimension %d of output '%s' is variable, but input '%s' of its batch_output has only %d",
						i, target, s.source, len(dims[s.source]))
				}
			}
			p.scatter[target] = s // bound: the config
		}
	}
	return p, nil
}

// seen returns the dims of a tensor as the model sees it.
func seen(t interface {
	GetDims() []int64
	GetReshape() *kserve.ModelTensorReshape
}) []int64 {
	if r := t.GetReshape(); r != nil {
		return r.GetShape()
	}
	return t.GetDims()
}

func (p *Plan) joinOf(name string) join {
	if in := p.inputs[name]; in != nil {
		return in.join
	}
	return joinRows
}

// alone reports whether a batch of this request alone reaches the model unchanged.
func (p *Plan) alone(r *infer.Request) bool {
	if len(p.extras) > 0 || len(p.scatter) > 0 || noted(r) {
		return false
	}
	return p.ragged != joinFlat || len(p.inputs) == 0
}
