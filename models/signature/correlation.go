package signature

import (
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// correlation is the control tensor that carries correlation ids to a model.
type correlation struct {
	name     string
	dataType kserve.DataType
}

func newCorrelation(c *kserve.ModelSequenceBatching) *correlation {
	for _, input := range c.GetControlInput() {
		for _, control := range input.GetControl() {
			if control.GetKind() == kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
				return &correlation{name: input.GetName(), dataType: control.GetDataType()}
			}
		}
	}
	return nil
}

// check refuses a correlation id that does not fit the tensor.
func (s *correlation) check(r *infer.Request, model string) error {
	if s == nil || r.Correlation.IsZero() {
		return nil
	}
	is, text := infer.Uint64, s.dataType == kserve.DataType_TYPE_STRING
	if r.Correlation.Text != "" {
		is = infer.Bytes
	}
	if text == (is == infer.Bytes) {
		return nil
	}
	expected := strings.TrimPrefix(s.dataType.String(), "TYPE_")
	if text { // as clients write it
		expected = infer.Bytes.String()
	}
	return refuse("%ssequence batching control '%s' data-type is '%s', but model '%s' expects '%s'",
		r.LogPrefix(), s.name, is, model, expected)
}
