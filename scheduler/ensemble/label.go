package ensemble

import "github.com/nereid-serving/nereid/infer"

// Parameters of a step's response that choose a sequence for its outputs, and of an ensemble's
// response that report the sequence to the client.
const (
	parameterSequence = "sequence_id"
	parameterStart    = "sequence_start"
	parameterEnd      = "sequence_end"
)

// maxCorrelation is the length of the longest sequence_id that is a text, in bytes, as for clients.
const maxCorrelation = 128

// sequenceLabel is the sequence that a tensor of an ensemble belongs to.
type sequenceLabel struct {
	correlation infer.CorrelationID
	flags       uint32
	chosen      bool // by a model instead of the client
}

// overridden returns the label of a response's tensors: that of its request, unless parameters
// choose another.
func (l *sequenceLabel) overridden(parameters []infer.Parameter) (*sequenceLabel, error) {
	var chosen *sequenceLabel
	for i := range parameters {
		switch parameters[i].Name {
		case parameterSequence, parameterStart, parameterEnd:
		default:
			continue
		}
		if chosen == nil {
			chosen = &sequenceLabel{correlation: l.correlation, chosen: true}
		}
		p := &parameters[i]
		flag := uint32(0)
		switch p.Name {
		case parameterSequence:
			switch p.Kind {
			case infer.IntParameter:
				chosen.correlation = infer.CorrelationID{Number: uint64(p.Int)}
			case infer.StringParameter:
				if len(p.String) > maxCorrelation {
					return nil, infer.Errorf(infer.Unsupported, "string correlation ID cannot be longer than %d characters", maxCorrelation)
				}
				chosen.correlation = infer.CorrelationID{Text: p.String}
			default:
				return nil, infer.Errorf(infer.InvalidArg,
					"expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING")
			}
			continue
		case parameterStart:
			flag = infer.SequenceStart
		case parameterEnd:
			flag = infer.SequenceEnd
		}
		if p.Kind != infer.BoolParameter {
			return nil, infer.Errorf(infer.InvalidArg, "expect parameter '%s' to be TRITONSERVER_PARAMETER_BOOL", p.Name)
		}
		if p.Bool {
			chosen.flags |= flag
		}
	}
	if chosen == nil {
		return l, nil
	}
	return chosen, nil
}

// parameters returns the parameters of an ensemble's response.
func (l *sequenceLabel) parameters() []infer.Parameter {
	id := infer.Parameter{Name: parameterSequence, Kind: infer.IntParameter, Int: int64(l.correlation.Number)}
	if l.correlation.Text != "" {
		id = infer.Parameter{Name: parameterSequence, Kind: infer.StringParameter, String: l.correlation.Text}
	}
	return []infer.Parameter{
		id,
		{Name: parameterStart, Kind: infer.BoolParameter, Bool: l.flags&infer.SequenceStart != 0},
		{Name: parameterEnd, Kind: infer.BoolParameter, Bool: l.flags&infer.SequenceEnd != 0},
	}
}

// take assigns the request to the sequence of one of its inputs. A model's choice takes precedence
// over the client's, and an earlier input over later ones.
func (run *stepRun) take(l *sequenceLabel) {
	same := run.label == nil || run.label.correlation == l.correlation && run.label.flags == l.flags
	if !same {
		e := run.flow.ensemble
		e.config.Log.Error().Msgf("inputs of step '%s' of ensemble '%s' belong to different sequences, iteration %d",
			e.steps[run.step].Model, e.config.Model, run.iteration)
	}
	if run.label == nil || l.chosen && !run.label.chosen {
		run.label = l
	}
}
