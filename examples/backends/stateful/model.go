package stateful

import (
	"encoding/binary"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// model holds the values of the config and the file of the cell.
type model struct {
	cell          *cell
	input, output string
	start, end    control
	batch         int // max_batch_size
	sequences     int // that have a state at once
	idle          time.Duration
	inferEnd      bool
	pad           bool
}

// control is a tensor with which the server marks the start or end of a sequence, and the bytes of
// its values.
type control struct {
	name          string
	unset, wanted []byte
}

// controlOf returns a control of the config. The one list of two values determines their type.
func controlOf(name string, c *kserve.ModelSequenceBatching_Control) (control, error) {
	one := control{name: name}
	for _, values := range []any{c.Int32FalseTrue, c.Fp32FalseTrue, c.BoolFalseTrue} {
		text, err := binary.Append(nil, binary.LittleEndian, values)
		if err != nil {
			return one, err
		}
		if len(text) > 0 && len(text)%2 == 0 {
			one.unset, one.wanted = text[:len(text)/2], text[len(text)/2:]
		}
	}
	if one.wanted == nil {
		return one, refuse("the control %s has no values for false and true", name)
	}
	return one, nil
}

// withoutEffect lists the parameters that have no effect for a cell in Go.
var withoutEffect = []string{
	"store_states_as_fp16", "ort_ep", "compute_precision", "metric_logging_frequency_seconds",
	"initial_buffer_size", "subsequent_buffer_size", "buffer_alloc_threshold", "buffer_dealloc_threshold",
}

func refuse(format string, args ...any) error { return sdk.Errorf(sdk.InvalidArg, format, args...) }

func newModel(env *sdk.ModelEnv) (*model, error) {
	config := env.Config()
	oldest := config.GetSequenceBatching().GetOldest()
	switch {
	case oldest == nil:
		return nil, refuse("stateful backend needs sequence_batching with the strategy oldest")
	case config.MaxBatchSize < 1:
		return nil, refuse("stateful backend needs max_batch_size above 0, got %d", config.MaxBatchSize)
	case len(config.Input) != 1 || len(config.Output) != 1:
		return nil, refuse("stateful backend needs one input and one output, got %d and %d", len(config.Input), len(config.Output))
	}
	m := &model{input: config.Input[0].Name, output: config.Output[0].Name, batch: int(config.MaxBatchSize), inferEnd: true}
	m.idle = time.Duration(config.GetSequenceBatching().MaxSequenceIdleMicroseconds) * time.Microsecond
	if m.sequences = int(oldest.MaxCandidateSequences); m.sequences == 0 {
		m.sequences = m.batch
	}
	if err := m.controls(config); err != nil {
		return nil, err
	}
	if err := m.parameters(env, config); err != nil {
		return nil, err
	}
	for _, t := range []struct {
		name     string
		dims     []int64
		dataType kserve.DataType
		want     int
	}{
		{m.input, config.Input[0].Dims, config.Input[0].DataType, m.cell.inputs()},
		{m.output, config.Output[0].Dims, config.Output[0].DataType, m.cell.outputs()},
	} {
		if t.dataType != kserve.DataType_TYPE_FP32 || len(t.dims) != 1 || t.dims[0] != int64(t.want) {
			return nil, refuse("%s is %s%s, but the cell has TYPE_FP32[%d]", t.name, t.dataType, sdk.ShapeString(t.dims), t.want)
		}
	}
	return m, nil
}

// controls finds the tensors of START and END. The request has the correlation id itself, but the
// config must declare it, as for Triton's backend.
func (m *model) controls(config *kserve.ModelConfig) error {
	correlated := false
	var err error
	for _, input := range config.GetSequenceBatching().ControlInput {
		for _, c := range input.Control {
			switch c.Kind {
			case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START:
				m.start, err = controlOf(input.Name, c)
			case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END:
				m.end, err = controlOf(input.Name, c)
			case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID:
				correlated = true
			}
			if err != nil {
				return err
			}
		}
	}
	if m.start.name == "" || m.end.name == "" || !correlated {
		return refuse("stateful backend needs the control inputs CONTROL_SEQUENCE_START, CONTROL_SEQUENCE_END and CONTROL_SEQUENCE_CORRID")
	}
	return nil
}

var (
	// statePair is one pair of state_pairs, statePairs all of them.
	statePair  = regexp.MustCompile(`<<<\s*([^,<>]+?)\s*,\s*([^,<>]+?)\s*>>>`)
	statePairs = regexp.MustCompile(`^\s*(` + statePair.String() + `\s*)+$`)
)

// pairs formats pairs of names, in an order that does not depend on that of the list.
func pairs(names [][2]string) string {
	var list []string
	for _, pair := range names {
		list = append(list, pair[0]+" and "+pair[1])
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func (m *model) parameters(env *sdk.ModelEnv, config *kserve.ModelConfig) error {
	parameter := func(name string) string { return config.Parameters[name].GetStringValue() }
	file := parameter("cell_file_name")
	if file == "" {
		return refuse("the parameter cell_file_name is missing")
	}
	if !filepath.IsLocal(file) {
		return refuse("the parameter cell_file_name is '%s', want a file of the version directory", file)
	}
	var err error
	if m.cell, err = loadCell(filepath.Join(env.Directory, strconv.FormatInt(env.Version, 10), file)); err != nil {
		return err
	}
	if text := parameter("state_pairs"); text != "" {
		if !statePairs.MatchString(text) {
			return refuse("the parameter state_pairs is '%s', want one pair as in <<<InState, OutState>>> for each state", text)
		}
		var named, own [][2]string
		for _, found := range statePair.FindAllStringSubmatch(text, -1) {
			named = append(named, [2]string{found[1], found[2]})
		}
		for _, l := range m.cell.layers {
			own = append(own, [2]string{l.InState, l.OutState})
		}
		if pairs(named) != pairs(own) {
			return refuse("the parameter state_pairs names %s, but the cell has %s", pairs(named), pairs(own))
		}
	}
	if ratio := parameter("max_candidate_sequence_use_ratio"); ratio != "" {
		r, err := strconv.ParseFloat(ratio, 64)
		if err != nil || !(r > 0 && r <= 1) {
			return refuse("the parameter max_candidate_sequence_use_ratio is '%s', want a number above 0 and up to 1", ratio)
		}
		m.sequences = max(1, int(r*float64(m.sequences)))
	}
	m.inferEnd = parameter("infer_end_requests") != "0"
	m.pad = parameter("always_pad_to_max_batch") == "1"
	for _, name := range withoutEffect {
		if _, ok := config.Parameters[name]; ok {
			env.Log.Warn("parameter " + name + " has no effect on a cell in Go")
		}
	}
	return nil
}

func (m *model) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	return &instance{model: m, states: newStates(m.sequences, m.cell.states(), m.idle)}, nil
}

func (m *model) Close() {}
