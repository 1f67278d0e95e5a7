package ensemble

import "github.com/nereid-serving/nereid/infer"

// The parameters of a step's response that choose the sequence of what is made from
// it, and of an ensemble's response that tell the client that sequence.
const (
	parameterSequence = "sequence_id"
	parameterStart    = "sequence_start"
	parameterEnd      = "sequence_end"
)

// sequenceLabel says to which sequence a tensor of an ensemble belongs.
type sequenceLabel struct {
	correlation infer.CorrelationID
	flags       uint32
	chosen      bool // by a model, not the client
}

// overridden is the label of a response's tensors, given that of its request: the
// parameters decide if there are any of these.
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

// parameters are those of a response of an ensemble.
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

// take has the request belong to the sequence of one of its inputs: a model's
// choice counts for more than the client's, and the first for more than others.
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
