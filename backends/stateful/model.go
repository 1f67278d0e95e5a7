package stateful

import (
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// model is what its config and the file of its cell say.
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

// control is a tensor by which the server says where a sequence begins or ends.
type control struct{ name string }

// withoutEffect are the parameters that mean nothing for a cell in Go.
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
		{m.output, config.Output[0].Dims, config.Output[0].DataType, m.cell.states()},
	} {
		if t.dataType != kserve.DataType_TYPE_FP32 || len(t.dims) != 1 || t.dims[0] != int64(t.want) {
			return nil, refuse("%s is %s%s, but the cell has TYPE_FP32[%d]", t.name, t.dataType, sdk.ShapeString(t.dims), t.want)
		}
	}
	return m, nil
}

// controls finds the tensors of START and END. The correlation id is known by the request itself, but has to be asked for as
// Triton's backend wants it.
func (m *model) controls(config *kserve.ModelConfig) error {
	correlated := false
	for _, input := range config.GetSequenceBatching().ControlInput {
		for _, c := range input.Control {
			switch c.Kind {
			case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START:
				m.start.name = input.Name
			case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END:
				m.end.name = input.Name
			case kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID:
				correlated = true
			}
		}
	}
	if m.start.name == "" || m.end.name == "" || !correlated {
		return refuse("stateful backend needs the control inputs CONTROL_SEQUENCE_START, CONTROL_SEQUENCE_END and CONTROL_SEQUENCE_CORRID")
	}
	return nil
}

// statePair is one pair of state_pairs.
var statePair = regexp.MustCompile(`^\s*<<<\s*([^,<>]+?)\s*,\s*([^,<>]+?)\s*>>>\s*$`)

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
	if pairs := parameter("state_pairs"); pairs != "" {
		names := statePair.FindStringSubmatch(pairs)
		if names == nil {
			return refuse("the parameter state_pairs is '%s', want one pair as in <<<InState, OutState>>>", pairs)
		}
		if names[1] != m.cell.InState || names[2] != m.cell.OutState {
			return refuse("the parameter state_pairs names %s and %s, but the cell has %s and %s", names[1], names[2], m.cell.InState, m.cell.OutState)
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
