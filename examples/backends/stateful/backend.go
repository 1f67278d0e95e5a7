// Package stateful keeps the state of sequences in the backend: for each correlation id, the last
// state of a small recurrent cell. Triton's backend of this name runs ONNX models instead. (The
// server can keep states too: see the field "state" of sequence_batching. This package shows how a
// backend does it itself.)
//
//	request of a sequence ─▶ Input ─┐
//	                                ├─ rows of one batch ─▶ cell ─┬─▶ Output
//	states by correlation id ───────┘                             └─▶ states
//
// A state is created with zeros at the START of its sequence. It is freed at its END, or when the
// sequence has been idle for max_sequence_idle_microseconds, by a timer that runs while there are
// states. Requests of different sequences are computed as one batch.
//
// A model needs sequence_batching with the strategy oldest, the controls START, END and CORRID, and
// these parameters, all of them strings:
//
//	cell_file_name                    the cell, a JSON file of the version directory
//	                                  (instead of onnx_file_name)
//	state_pairs                       "<<<InState, OutState>>> <<<…>>>": the cell's names of its states,
//	                                  one pair per layer
//	infer_end_requests                "0": requests with END are not computed, and get no outputs
//	max_candidate_sequence_use_ratio  the number of concurrent states, as a ratio of
//	                                  max_candidate_sequences; default "1"
//	always_pad_to_max_batch           "1": the cell always gets max_batch_size rows
//
// All but the first are optional. The other parameters of Triton's backend are about ONNX Runtime
// and the memory of a GPU. They are accepted without effect, and named in the log.
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
