package signature

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// TestCorrelationIDsThatDoNotFitAreRefused checks correlation ids against the data type of the
// control tensor.
func TestCorrelationIDsThatDoNotFitAreRefused(t *testing.T) {
	number, text, none := infer.CorrelationID{Number: 5}, infer.CorrelationID{Text: "x"}, infer.CorrelationID{}
	const refused = "[request id: r] sequence batching control 'C' data-type is '%', but model 'm' expects '"
	for _, c := range []struct {
		dataType kserve.DataType
		id       infer.CorrelationID
		want     string
	}{
		{kserve.DataType_TYPE_STRING, text, ""},
		{kserve.DataType_TYPE_STRING, none, ""},
		{kserve.DataType_TYPE_STRING, number, strings.Replace(refused, "%", "UINT64", 1) + "BYTES'"},
		{kserve.DataType_TYPE_INT32, number, ""},
		{kserve.DataType_TYPE_UINT64, text, strings.Replace(refused, "%", "BYTES", 1) + "UINT64'"},
		{kserve.DataType_TYPE_INT32, text, strings.Replace(refused, "%", "BYTES", 1) + "INT32'"},
	} {
		spec := newCorrelation(&kserve.ModelSequenceBatching{ControlInput: []*kserve.ModelSequenceBatching_ControlInput{
			{Name: "S", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START}}},
			{Name: "C", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID, DataType: c.dataType}}},
		}})
		got := ""
		if err := spec.check(&infer.Request{ID: "r", Correlation: c.id}, "m"); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v of %v: got %q, want %q", c.id, c.dataType, got, c.want)
		}
	}
}
