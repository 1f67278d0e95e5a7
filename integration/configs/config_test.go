package configs

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// types are the data types that a config may use.
var types = []infer.DataType{
	infer.Bool, infer.Uint8, infer.Uint16, infer.Uint32, infer.Uint64, infer.Int8, infer.Int16, infer.Int32, infer.Int64,
	infer.FP16, infer.FP32, infer.FP64, infer.Bytes, infer.BF16,
}

// chance returns true once in n calls on average.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// tensor is an input or output of a model.
type tensor struct {
	name string
	kind infer.DataType
	dims []int64
	text string // text of the tensor in the config
}

// model is a model with a random config, which is usually valid.
type model struct {
	name            string
	batch           int64
	decoupled       bool
	sequence        bool
	inputs, outputs []tensor
	states          []tensor
	config          string
	labels          bool
}

func dimsOf(r *rand.Rand) []int64 {
	dims := make([]int64, 1+r.IntN(3))
	for i := range dims {
		dims[i] = pick[int64](r, 1, 1, 2, 3, 4, -1)
	}
	return dims
}

func list[T any](items []T) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(items), "[]"), " ", ", ")
}

// reshapeOf returns another shape with the same number of elements, if there is a simple one.
func reshapeOf(r *rand.Rand, dims []int64, batch int64) (string, bool) {
	elements, variable := int64(1), 0
	for _, d := range dims {
		if d < 0 {
			variable++
			continue
		}
		elements *= d
	}
	switch {
	case variable == 0 && elements == 1 && batch > 0 && chance(r, 2):
		return "[ ]", true
	case variable == 0:
		return fmt.Sprintf("[ %d, 1 ]", elements), true
	case variable == 1 && elements == 1:
		return pick(r, "[ -1 ]", "[ 1, -1 ]", "[ -1, 1, 1 ]"), true
	}
	return "", false
}

func tensorOf(r *rand.Rand, name string, batch int64, input bool) tensor {
	t := tensor{name: name, kind: pick(r, types...), dims: dimsOf(r)}
	if chance(r, 3) {
		t.kind = pick(r, infer.FP32, infer.Int32, infer.Bytes)
	}
	if chance(r, 4) {
		t.dims = []int64{1}
	}
	t.text = fmt.Sprintf("name: %q data_type: %s dims: [ %s ]", name, t.kind.ConfigName(), list(t.dims))
	if chance(r, 3) {
		if shape, ok := reshapeOf(r, t.dims, batch); ok {
			t.text += " reshape { shape: " + shape + " }"
		}
	}
	if input && chance(r, 5) {
		t.text += " optional: true"
	}
	if input && batch > 0 && chance(r, 5) {
		t.text += " allow_ragged_batch: true"
	}
	return t
}

// modelOf returns a random model.
func modelOf(r *rand.Rand, name string) *model {
	m := &model{name: name, batch: pick[int64](r, 0, 0, 1, 8, 8)}
	m.decoupled = chance(r, 5)
	m.sequence = chance(r, 4)
	for i := range 1 + r.IntN(3) {
		m.inputs = append(m.inputs, tensorOf(r, fmt.Sprintf("IN%d", i), m.batch, true))
	}
	for i := range 1 + r.IntN(3) {
		t := tensorOf(r, fmt.Sprintf("OUT%d", i), m.batch, false)
		if chance(r, 3) {
			t.text += ` label_filename: "labels.txt"`
			m.labels = true
		}
		m.outputs = append(m.outputs, t)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "backend: \"scripted\"\nmax_batch_size: %d\n", m.batch)
	for _, t := range m.inputs {
		fmt.Fprintf(&b, "input { %s }\n", t.text)
	}
	for _, t := range m.outputs {
		fmt.Fprintf(&b, "output { %s }\n", t.text)
	}
	if m.decoupled {
		b.WriteString("model_transaction_policy { decoupled: true }\n")
	}
	fmt.Fprintf(&b, "instance_group { count: %d kind: KIND_CPU }\n", 1+r.IntN(2))
	switch {
	case m.sequence:
		m.sequences(r, &b)
	case m.batch > 1 && chance(r, 2):
		m.dynamic(r, &b)
	}
	if !m.decoupled && !m.sequence && chance(r, 4) {
		b.WriteString("response_cache { enable: true }\n")
	}
	m.config = b.String()
	return m
}

func (m *model) dynamic(r *rand.Rand, b *strings.Builder) {
	b.WriteString("dynamic_batching {")
	if chance(r, 2) {
		fmt.Fprintf(b, " preferred_batch_size: [ %s ]", pick(r, "2", "4", "2, 8"))
	}
	if chance(r, 2) {
		fmt.Fprintf(b, " max_queue_delay_microseconds: %d", r.IntN(500))
	}
	if chance(r, 3) {
		b.WriteString(" preserve_ordering: true")
	}
	if chance(r, 3) {
		b.WriteString(" priority_levels: 2 default_priority_level: 1")
	}
	if chance(r, 3) {
		fmt.Fprintf(b, " default_queue_policy { timeout_action: %s default_timeout_microseconds: %d allow_timeout_override: true max_queue_size: %d }",
			pick(r, "REJECT", "DELAY"), r.IntN(2000), r.IntN(4))
	}
	b.WriteString(" }\n")
	if !m.decoupled && chance(r, 2) {
		m.stacked(r, b)
	}
}

func (m *model) stacked(r *rand.Rand, b *strings.Builder) {
	b.WriteString("parameters { key: \"BATCH_MODE\" value { string_value: \"stacked\" } }\n")
	fmt.Fprintf(b, "parameters { key: \"BATCH_RAGGED\" value { string_value: %q } }\n", pick(r, "pad", "flat"))
	in := pick(r, m.inputs...)
	if chance(r, 3) {
		fmt.Fprintf(b, "batch_input { kind: %s target_name: \"EXTRA\" data_type: %s source_input: %q }\n",
			pick(r, "BATCH_ELEMENT_COUNT", "BATCH_ACCUMULATED_ELEMENT_COUNT", "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
				"BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", "BATCH_ITEM_SHAPE", "BATCH_ITEM_SHAPE_FLATTEN"),
			pick(r, "TYPE_INT32", "TYPE_FP32"), in.name)
	}
	if chance(r, 3) {
		fmt.Fprintf(b, "batch_output { target_name: %q kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: %q }\n", pick(r, m.outputs...).name, in.name)
	}
}

func (m *model) sequences(r *rand.Rand, b *strings.Builder) {
	b.WriteString("sequence_batching {")
	switch r.IntN(3) {
	case 0:
		fmt.Fprintf(b, " direct { max_queue_delay_microseconds: %d minimum_slot_utilization: %g }", r.IntN(500), float32(r.IntN(2))/2)
	case 1:
		fmt.Fprintf(b, " oldest { max_candidate_sequences: %d max_queue_delay_microseconds: %d preserve_ordering: %v }", 1+r.IntN(4), r.IntN(500), chance(r, 2))
	}
	fmt.Fprintf(b, " max_sequence_idle_microseconds: %d", pick(r, 1000, 50_000, 200_000))
	for _, c := range []struct{ name, kind, values string }{
		{"START", "CONTROL_SEQUENCE_START", pick(r, "int32_false_true: [ 0, 1 ]", "fp32_false_true: [ 0, 1 ]", "bool_false_true: [ false, true ]")},
		{"END", "CONTROL_SEQUENCE_END", "int32_false_true: [ 0, 1 ]"},
		{"READY", "CONTROL_SEQUENCE_READY", "bool_false_true: [ false, true ]"},
		{"CORRID", "CONTROL_SEQUENCE_CORRID", "data_type: " + pick(r, "TYPE_UINT64", "TYPE_INT32", "TYPE_STRING")},
	} {
		if !chance(r, 3) {
			fmt.Fprintf(b, " control_input { name: %q control { kind: %s %s } }", c.name, c.kind, c.values)
		}
	}
	if chance(r, 2) {
		t := tensor{name: "STATE_OUT", kind: pick(r, types...), dims: dimsOf(r)}
		fmt.Fprintf(b, " state { input_name: \"STATE_IN\" output_name: \"STATE_OUT\" data_type: %s dims: [ %s ]", t.kind.ConfigName(), list(t.dims))
		if chance(r, 2) {
			fixed := make([]int64, len(t.dims))
			for i, d := range t.dims {
				fixed[i] = max(d, 1)
			}
			fmt.Fprintf(b, " initial_state { name: \"zero\" data_type: %s dims: [ %s ] zero_data: true }", t.kind.ConfigName(), list(fixed))
		}
		b.WriteString(" }")
		m.states = append(m.states, t)
	}
	b.WriteString(" }\n")
}

// inner matches the settings of a model's tensor that an ensemble does not repeat.
var inner = regexp.MustCompile(` (reshape \{ shape: \[[^]]*\] \}|allow_ragged_batch: true|label_filename: "labels.txt")`)

func own(text string) string { return inner.ReplaceAllString(text, "") }

// ensembleOf returns an ensemble with one or two steps. Its tensors are declared like the model's,
// because the server rejects other declarations.
func ensembleOf(r *rand.Rand, name string, parts []*model) *model {
	first := pick(r, parts...)
	m := &model{name: name, batch: first.batch, decoupled: first.decoupled, sequence: first.sequence}
	var b, steps strings.Builder
	fmt.Fprintf(&b, "platform: \"ensemble\"\nmax_batch_size: %d\n", m.batch)
	fmt.Fprintf(&steps, "step { model_name: %q model_version: -1", first.name)
	for _, t := range first.inputs {
		m.inputs = append(m.inputs, t)
		fmt.Fprintf(&b, "input { %s }\n", own(t.text))
		fmt.Fprintf(&steps, " input_map { key: %q value: %q }", t.name, t.name)
	}
	for _, t := range first.outputs {
		m.outputs = append(m.outputs, t)
		fmt.Fprintf(&b, "output { %s }\n", own(t.text))
		fmt.Fprintf(&steps, " output_map { key: %q value: %q }", t.name, t.name)
	}
	steps.WriteString(" }")
	if chance(r, 2) { // a second step with the same model and the ensemble's inputs
		fmt.Fprintf(&steps, " step { model_name: %q model_version: -1", first.name)
		for _, t := range first.inputs {
			fmt.Fprintf(&steps, " input_map { key: %q value: %q }", t.name, t.name)
		}
		for _, t := range first.outputs {
			again := t
			again.name = "AGAIN_" + t.name
			again.text = own(strings.Replace(t.text, t.name, again.name, 1))
			m.outputs = append(m.outputs, again)
			fmt.Fprintf(&b, "output { %s }\n", again.text)
			fmt.Fprintf(&steps, " output_map { key: %q value: %q }", t.name, again.name)
		}
		steps.WriteString(" }")
	}
	fmt.Fprintf(&b, "ensemble_scheduling { %s }\n", steps.String())
	m.config = b.String()
	return m
}
