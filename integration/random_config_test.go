package integration

import (
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nereid-serving/nereid/kserve"
)

// randomConfig returns a random, loadable config of a Python model. The same seed always gives the
// same config.
func randomConfig(seed uint64) *kserve.ModelConfig {
	g := &configMaker{rand.New(rand.NewPCG(seed, 1))}
	c := &kserve.ModelConfig{}
	g.message(c.ProtoReflect(), 0)
	g.repair(c)
	return c
}

type configMaker struct{ *rand.Rand }

// leftOut are fields that would need other files, later releases of Triton, or GPUs.
var leftOut = map[protoreflect.FullName]bool{
	"inference.ModelConfig.name": true, "inference.ModelConfig.platform": true, "inference.ModelConfig.backend": true,
	"inference.ModelConfig.runtime": true, "inference.ModelConfig.default_model_filename": true, "inference.ModelConfig.model_metrics": true,
	"inference.ModelConfig.ensemble_scheduling": true, "inference.ModelConfig.model_repository_agents": true,
	"inference.ModelConfig.batch_input": true, "inference.ModelConfig.batch_output": true, "inference.ModelConfig.version_policy": true,
	"inference.ModelInput.format": true, "inference.ModelInput.is_shape_tensor": true, "inference.ModelInput.is_non_linear_format_io": true, "inference.ModelInput.reshape": true,
	"inference.ModelOutput.label_filename": true, "inference.ModelOutput.is_shape_tensor": true, "inference.ModelOutput.is_non_linear_format_io": true, "inference.ModelOutput.reshape": true,
	"inference.ModelInstanceGroup.gpus": true, "inference.ModelInstanceGroup.profile": true, "inference.ModelInstanceGroup.passive": true,
	"inference.ModelSequenceBatching.state": true, "inference.ModelSequenceBatching.control_input": true, "inference.ModelSequenceBatching.StrategyOldest.preferred_batch_size": true,
	"inference.ModelDynamicBatching.priority_levels": true, "inference.ModelDynamicBatching.default_priority_level": true, "inference.ModelDynamicBatching.preserve_ordering": true,
}

func (g *configMaker) message(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if leftOut[f.FullName()] || g.IntN(3) == 0 {
			continue
		}
		switch {
		case f.IsMap():
			entries := m.Mutable(f).Map()
			for range g.IntN(3) {
				key := protoreflect.ValueOfString(g.text()).MapKey()
				if f.MapKey().Kind() == protoreflect.Uint64Kind {
					key = protoreflect.ValueOfUint64(1 + g.Uint64N(20)).MapKey()
				}
				if f.MapValue().Message() == nil {
					entries.Set(key, g.scalar(f.MapValue()))
					continue
				}
				value := entries.NewValue()
				g.message(value.Message(), depth+1)
				entries.Set(key, value)
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range g.IntN(3) {
				if f.Message() == nil {
					list.Append(g.scalar(f))
					continue
				}
				g.message(list.AppendMutable().Message(), depth+1)
			}
		case f.Message() != nil:
			g.message(m.Mutable(f).Message(), depth+1)
		default:
			m.Set(f, g.scalar(f))
		}
	}
}

func (g *configMaker) text() string {
	const letters = "abcXYZ019 _-./\\\"'<>&\u00e4\u20ac\U0001f600\n\t\x01\x7f\u2028"
	runes := []rune(letters)
	text := make([]rune, g.IntN(6))
	for i := range text {
		text[i] = runes[g.IntN(len(runes))]
	}
	return string(text)
}

func (g *configMaker) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	wide := func() uint64 {
		return []uint64{0, 1, 7, 4294967295, 9007199254740993, 9223372036854775807, 18446744073709551615}[g.IntN(7)]
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(g.IntN(2) == 0)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(g.IntN(values.Len())).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(g.IntN(5)))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(wide()))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(wide()))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(wide())
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(g.Float32())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(g.text())
	default:
		panic(fmt.Sprintf("%s has a kind that no configuration had: %s", f.FullName(), f.Kind()))
	}
}

// repair makes related fields of the config consistent.
func (g *configMaker) repair(c *kserve.ModelConfig) {
	c.Backend = "python"
	c.MaxBatchSize = []int32{0, 1, 8}[g.IntN(3)]
	switch g.IntN(4) {
	case 0:
		c.VersionPolicy = &kserve.ModelVersionPolicy{PolicyChoice: &kserve.ModelVersionPolicy_All_{All: &kserve.ModelVersionPolicy_All{}}}
	case 1:
		c.VersionPolicy = &kserve.ModelVersionPolicy{PolicyChoice: &kserve.ModelVersionPolicy_Specific_{Specific: &kserve.ModelVersionPolicy_Specific{Versions: []int64{1}}}}
	case 2:
		c.VersionPolicy = &kserve.ModelVersionPolicy{PolicyChoice: &kserve.ModelVersionPolicy_Latest_{Latest: &kserve.ModelVersionPolicy_Latest{NumVersions: 1 + g.Uint32N(3)}}}
	}
	dims := func() []int64 {
		list := make([]int64, 1+g.IntN(4))
		for i := range list {
			list[i] = []int64{-1, 1, 2, 3, 16, 4611686018427387904}[g.IntN(6)]
		}
		return list
	}
	reshape := func(dims []int64) *kserve.ModelTensorReshape {
		if g.IntN(3) != 0 {
			return nil
		}
		var shape []int64
		for _, d := range dims {
			for range g.IntN(2) {
				shape = append(shape, 1)
			}
			shape = append(shape, d)
		}
		return &kserve.ModelTensorReshape{Shape: shape}
	}
	for i, in := range c.Input {
		in.Name, in.Dims = fmt.Sprintf("IN%d", i), dims()
		in.DataType = kserve.DataType(1 + g.IntN(14))
		in.Reshape = reshape(in.Dims)
	}
	for i, out := range c.Output {
		out.Name, out.Dims = fmt.Sprintf("OUT%d", i), dims()
		out.DataType = kserve.DataType(1 + g.IntN(14))
		out.Reshape = reshape(out.Dims)
	}
	for _, in := range c.InstanceGroup {
		in.Kind = []kserve.ModelInstanceGroup_Kind{kserve.ModelInstanceGroup_KIND_AUTO, kserve.ModelInstanceGroup_KIND_CPU, kserve.ModelInstanceGroup_KIND_MODEL}[g.IntN(3)]
		in.Count = min(in.Count, 1)
		in.Name, in.HostPolicy = "", ""
		in.RateLimiter = nil
	}
	for _, sample := range c.ModelWarmup {
		sample.BatchSize = 0 // the sample does not run
		for name, input := range sample.Inputs {
			if input.InputDataType == nil {
				delete(sample.Inputs, name)
			}
		}
	}
	if c.MetricTags != nil { // Triton crashes on tags that are not valid metric labels
		c.MetricTags = map[string]string{"zone": g.text()}
	}
	c.Parameters = map[string]*kserve.ModelParameter{g.text(): {StringValue: g.text()}}
	if b := c.GetDynamicBatching(); b != nil {
		b.PreferredBatchSize = nil
		if c.MaxBatchSize == 8 {
			b.PreferredBatchSize = [][]int32{nil, {8}, {4, 8}, {8, 4, 4}}[g.IntN(4)]
		}
		if len(b.PriorityQueuePolicy) > 0 || g.IntN(2) == 0 {
			b.PriorityLevels, b.DefaultPriorityLevel = 20, 1+g.Uint64N(20)
		} else {
			b.PreserveOrdering = b.GetDefaultQueuePolicy().GetTimeoutAction() == kserve.ModelQueuePolicy_REJECT
		}
	}
	if s := c.GetSequenceBatching(); s != nil {
		c.ResponseCache = nil
	}
	if c.GetModelTransactionPolicy().GetDecoupled() {
		c.ResponseCache = nil
	}
}
