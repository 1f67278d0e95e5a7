package sequence

import (
	"bytes"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// TestControlTensorsSayWhereASequenceIs checks the content of the control tensors for requests and
// padding.
func TestControlTensorsSayWhereASequenceIs(t *testing.T) {
	inputs := []*kserve.ModelSequenceBatching_ControlInput{
		{Name: "S", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START, Int32FalseTrue: []int32{-1, 7}}}},
		{Name: "E", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END, Fp32FalseTrue: []float32{0, 1}}}},
		{Name: "R", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY, BoolFalseTrue: []bool{true, false}}}},
	}
	one := []byte{0, 0, 0x80, 0x3f}
	for _, c := range []struct {
		name     string
		flags    uint32
		ready    bool
		id       infer.CorrelationID
		idType   kserve.DataType
		s, e, r  []byte
		i        []byte
		batching bool
	}{
		{"start", infer.SequenceStart, true, infer.CorrelationID{Number: 0x1_0203_0405}, kserve.DataType_TYPE_UINT64, []byte{7, 0, 0, 0}, make([]byte, 4), []byte{0}, []byte{5, 4, 3, 2, 1, 0, 0, 0}, true},
		{"middle", 0, true, infer.CorrelationID{Number: 0x1_0203_0405}, kserve.DataType_TYPE_INT32, []byte{255, 255, 255, 255}, make([]byte, 4), []byte{0}, []byte{5, 4, 3, 2}, false},
		{"end", infer.SequenceEnd, true, infer.CorrelationID{Text: "ab"}, kserve.DataType_TYPE_STRING, []byte{255, 255, 255, 255}, one, []byte{0}, []byte{2, 0, 0, 0, 'a', 'b'}, true},
		{"both", 3, true, infer.CorrelationID{Number: 12}, kserve.DataType_TYPE_STRING, []byte{7, 0, 0, 0}, one, []byte{0}, []byte{2, 0, 0, 0, '1', '2'}, false},
		{"padding", 0, false, infer.CorrelationID{}, kserve.DataType_TYPE_STRING, []byte{255, 255, 255, 255}, make([]byte, 4), []byte{1}, make([]byte, 4), true},
		{"padding of a number", 0, false, infer.CorrelationID{}, kserve.DataType_TYPE_INT64, []byte{255, 255, 255, 255}, make([]byte, 4), []byte{1}, make([]byte, 8), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := append(slices.Clone(inputs), &kserve.ModelSequenceBatching_ControlInput{Name: "I", Control: []*kserve.ModelSequenceBatching_Control{{
				Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID, DataType: c.idType,
			}}})
			// E is among the inputs already and is replaced.
			got := newControls(with, c.batching).append([]infer.Tensor{{Name: "X"}, {Name: "E", Data: []byte("client")}}, c.flags, c.ready, c.id, new([8]byte))
			if names := []string{got[0].Name, got[1].Name, got[2].Name, got[3].Name, got[4].Name}; !slices.Equal(names, []string{"X", "E", "S", "R", "I"}) {
				t.Fatalf("inputs are %v", names)
			}
			for i, want := range map[int][]byte{1: c.e, 2: c.s, 3: c.r, 4: c.i} {
				if !bytes.Equal(got[i].Data, want) {
					t.Errorf("%s is %v, want %v", got[i].Name, got[i].Data, want)
				}
				if shape := []int64{1, 1}; !slices.Equal(got[i].Shape, shape[:1+BoolToInt(c.batching)]) {
					t.Errorf("%s has shape %v", got[i].Name, got[i].Shape)
				}
			}
			if got[4].DataType != infer.DataType(c.idType) || got[2].DataType != infer.Int32 || got[1].DataType != infer.FP32 || got[3].DataType != infer.Bool {
				t.Errorf("types are %v %v %v %v", got[1].DataType, got[2].DataType, got[3].DataType, got[4].DataType)
			}
		})
	}
}
