package version

import (
	"path/filepath"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// shownName bounds the part of a model's name that each warning of a state repeats.
const shownName = 256

// initialStates is the directory, in a model's, with the files of initial states.
const initialStates = "initial_state"

// readStates reads the initial states of a model's sequences. If states repeat the name of an input
// or output, the first counts, with a warning. It charges c for the values.
//
// bound: the config
func readStates(c *budget.Charge, d *repository.Description, config *kserve.ModelConfig) (states []sequence.State, warnings []string, err error) {
	model := infer.Cut(d.Name, shownName) // repeated for each state
	inputs, outputs, initial := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, state := range config.GetSequenceBatching().GetState() {
		made, err := readState(c, d, state, initial)
		if err != nil {
			return nil, nil, err
		}
		in, out := state.GetInputName(), state.GetOutputName()
		if inputs[in] || outputs[out] {
			warnings = append(warnings, "state with input name '"+in+"' and output name '"+out+"' of model '"+model+"' repeats the name of an earlier one and is ignored")
			continue
		}
		if state.GetUseGrowableMemory() {
			warnings = append(warnings, "use_growable_memory of state input name '"+in+"' of model '"+model+"' has no effect: states lie in the memory of the CPU and grow as they have to")
		}
		inputs[in], outputs[out] = true, true
		states = append(states, made)
	}
	return states, warnings, nil
}

// readState checks one state's description and reads its initial value. seen has the inputs whose
// initial states were described before.
func readState(c *budget.Charge, d *repository.Description, state *kserve.ModelSequenceBatching_State, seen map[string]bool) (sequence.State, error) {
	in := state.GetInputName()
	made := sequence.State{Input: in, Output: state.GetOutputName(), DataType: infer.DataType(state.GetDataType())}
	for _, dim := range state.GetDims() {
		if dim == -1 {
			dim = 1
		}
		made.Shape = append(made.Shape, dim) // bound: the config
	}
	switch n := len(state.GetInitialState()); {
	case n > 1:
		return made, invalid("initial_state field for state input '%s' must contain exactly one or zero element. Found '%d' elements.", in, n)
	case n == 1:
		initial := state.GetInitialState()[0]
		if err := checkInitialState(state, initial, seen); err != nil {
			return made, err
		}
		seen[in] = true
		made.Shape = initial.GetDims()
		if file, ok := initial.GetStateData().(*kserve.ModelSequenceBatching_InitialState_DataFile); ok {
			data, err := readInitialState(c, d, in, file.DataFile, initial)
			made.Data = data
			if err != nil || made.DataType != infer.Bytes {
				return made, err
			}
		}
	}
	size, err := stateSize(in, made.DataType, made.Shape)
	if err == nil {
		made.Data, err = budget.Make[byte](c, budget.States, int(size))
	}
	return made, err
}

// checkInitialState compares an initial state with its state.
func checkInitialState(state *kserve.ModelSequenceBatching_State, initial *kserve.ModelSequenceBatching_InitialState, seen map[string]bool) error {
	in := state.GetInputName()
	switch {
	case initial.GetDataType() != state.GetDataType():
		return invalid("The data type used for 'initial_state' field of state '%s' does not match the state data type.", in)
	case initial.GetName() == "":
		return invalid("Field 'name' must be set when using initial_state for state input '%s'.", in)
	case seen[in]:
		return invalid("State input name '%s' specified more than once.", in)
	case len(initial.GetDims()) != len(state.GetDims()):
		return invalid("Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input '%s'. %d != %d",
			in, len(initial.GetDims()), len(state.GetDims()))
	}
	for i, dim := range initial.GetDims() {
		switch want := state.GetDims()[i]; {
		case dim == -1:
			return invalid("'initial_state' field for state input name '%s' contains variable dimensions.", in)
		case want != -1 && want != dim:
			return invalid("'initial_state' dim for input name '%s' doesn't match 'state' dim description. %d != %d", in, dim, want)
		}
	}
	switch initial.GetStateData().(type) {
	case *kserve.ModelSequenceBatching_InitialState_ZeroData, *kserve.ModelSequenceBatching_InitialState_DataFile:
		return nil
	}
	return invalid("initial_state setting expects state'%s' to have state_data set", in)
}

// readInitialState reads a file without the bytes beyond the state.
func readInitialState(c *budget.Charge, d *repository.Description, in, file string, initial *kserve.ModelSequenceBatching_InitialState) ([]byte, error) {
	if !filepath.IsLocal(file) {
		return nil, infer.Errorf(infer.Unsupported, "initial_state file path '%s' for state input '%s' in model '%s' is outside model directory", file, in, d.Name)
	}
	size, err := stateSize(in, infer.DataType(initial.GetDataType()), initial.GetDims())
	if err != nil {
		return nil, err
	}
	f, err := d.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := f.ReadCharged(c, filepath.Join(initialStates, file), size)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) < size {
		return nil, invalid("initial_state setting expects %d bytes, but the data provided from %sonly has %d bytes.", size, file, len(data))
	}
	return data, nil
}

// maxStateBytes bounds the initial state of a sequence.
const maxStateBytes = 1 << 31

// stateSize returns the size of a state's initial value. Strings are initially empty.
func stateSize(in string, dataType infer.DataType, shape []int64) (int64, error) {
	if !dataType.Valid() {
		return 0, invalid("state input '%s' must specify 'data_type'", in)
	}
	size, ok := infer.ByteSize(dataType, shape)
	if dataType == infer.Bytes {
		size, ok = infer.Elements(shape)
		ok = ok && size < maxStateBytes/4
		size *= 4
	}
	if !ok || size > maxStateBytes {
		return 0, invalid("state input '%s' has %s of %s, which is more than %d bytes", in, dataType, infer.ShapeString(shape), maxStateBytes)
	}
	return size, nil
}
