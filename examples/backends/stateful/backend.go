// Package stateful keeps the state of sequences in the backend: for each correlation id the last state of a small recurrent
// cell, instead of the ONNX models that Triton's backend of this name runs. (The server can keep states too: the
// field "state" of sequence_batching. This package shows how a backend does it itself.)
//
//	request of a sequence ─▶ Input ─┐
//	                                ├─ rows of one batch ─▶ cell ─┬─▶ Output
//	states by correlation id ───────┘                             └─▶ states
//
// A state begins as zeros with the START of its sequence, and is freed with its END, or when the sequence has been idle for
// max_sequence_idle_microseconds, by a timer that runs while there are states. Requests of different sequences are computed as one batch.
//
// A model has sequence_batching with the strategy oldest, the controls START, END and CORRID, and these parameters, all strings:
//
//	cell_file_name                    the cell, a JSON file of the version directory, instead of onnx_file_name
//	state_pairs                       "<<<InState, OutState>>> <<<…>>>": the names that the cell has for its states, one pair for each layer
//	infer_end_requests                "0": requests with END are not computed, and answered without outputs
//	max_candidate_sequence_use_ratio  how many sequences have a state at once, of max_candidate_sequences: "1" without it
//	always_pad_to_max_batch           "1": the cell always gets max_batch_size rows
//
// All but the first are optional. The other parameters of Triton's backend are about ONNX Runtime and the memory of a GPU. They are
// accepted without effect, and named in the log.
package stateful

import "github.com/nereid-serving/nereid/sdk"

// New initializes the backend.
func New(*sdk.BackendEnv) (sdk.Backend, error) { return backend{}, nil }

type backend struct{}

func (backend) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	m, err := newModel(env)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (backend) Close() {}
