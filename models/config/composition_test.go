package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
)

// ensembleConfig parses an ensemble in the short form of the tests. A tensor is "A:FP32[4]", or "A"
// for INT32[1]. A step is "id(IN0=A)->OUT0=B".
func ensembleConfig(t testing.TB, name, inputs, outputs string, batch int, steps ...string) *kserve.ModelConfig {
	t.Helper()
	text := fmt.Sprintf("name: %q\nplatform: \"ensemble\"\nmax_batch_size: %d\n", name, batch)
	text += tensorsConfig("input", inputs) + tensorsConfig("output", outputs)
	text += "ensemble_scheduling {\n"
	for _, s := range steps {
		model, rest, _ := strings.Cut(s, "(")
		in, out, _ := strings.Cut(rest, ")->")
		text += fmt.Sprintf("step { model_name: %q model_version: -1 %s %s }\n", model, mapConfig("input_map", in), mapConfig("output_map", out))
	}
	config, err := config.ParseText(name, []byte(text+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func tensorsConfig(kind, tensors string) string {
	var b strings.Builder
	for _, tensor := range strings.Fields(tensors) {
		name, rest, _ := strings.Cut(tensor, ":")
		if rest == "" {
			rest = "INT32[1]"
		}
		dataType, dims, _ := strings.Cut(rest, "[")
		dims, more, _ := strings.Cut(dims, "]")
		switch {
		case more == "?":
			more = "optional: true"
		case more != "":
			more = "reshape { shape: " + more + " }"
		}
		fmt.Fprintf(&b, "%s { name: %q data_type: TYPE_%s dims: [ %s ] %s }\n", kind, name, dataType, dims, more)
	}
	return b.String()
}

func mapConfig(kind, pairs string) string {
	var b strings.Builder
	for _, pair := range strings.Split(pairs, ",") {
		name, tensor, _ := strings.Cut(pair, "=")
		fmt.Fprintf(&b, "%s { key: %q value: %q } ", kind, name, tensor)
	}
	return b.String()
}

// composingModels returns the configs of the models that the ensembles below call.
func composingModels(t testing.TB) map[string]*kserve.ModelConfig {
	t.Helper()
	models := make(map[string]*kserve.ModelConfig)
	for _, m := range []struct {
		name, inputs, outputs, more string
	}{
		{"id", "IN0", "OUT0", ""},
		{"id2", "IN0 IN1", "OUT0 OUT1", ""},
		{"idopt", "IN0 IN1:INT32[1]?", "OUT0 OUT1", ""},
		{"idb4", "IN0", "OUT0", "max_batch_size: 4"},
		{"idb8", "IN0", "OUT0", "max_batch_size: 8"},
		{"idv", "IN0:INT32[-1]", "OUT0:INT32[-1]", ""},
		{"id4", "IN0:INT32[4]", "OUT0:INT32[4]", ""},
		{"idf", "IN0:FP32[1]", "OUT0:FP32[1]", ""},
		{"rep", "IN0", "OUT0 OUT1", "model_transaction_policy { decoupled: true }"},
		{"rep2", "IN0", "OUT0 OUT1", "model_transaction_policy { decoupled: true }"},
	} {
		text := fmt.Sprintf("name: %q\nbackend: \"python\"\n%s%s%s", m.name, tensorsConfig("input", m.inputs), tensorsConfig("output", m.outputs), m.more)
		config, err := config.ParseText(m.name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		models[m.name] = config
	}
	return models
}

// TestCompositionIsCheckedStepByStep checks the errors of invalid ensembles. Their texts were
// compared with Triton's.
func TestCompositionIsCheckedStepByStep(t *testing.T) {
	const mixed = "in ensemble e, step of model 'e' receives inputs originated from different decoupled models"
	for _, c := range []struct {
		name, inputs, outputs string
		batch                 int
		steps                 []string
		decoupled             bool
		want                  string
	}{
		{"a chain", "A", "B", 0, []string{"id(IN0=A)->OUT0=X", "id(IN0=X)->OUT0=B"}, false, ""},
		{"too small a batch", "A", "B", 8, []string{"idb4(IN0=A)->OUT0=B"}, false, "ensemble e allows maximum batch size 8, but it contains model idb4 which only allows maximum batch size to be 4"},
		{"a larger batch", "A", "B", 8, []string{"idb8(IN0=A)->OUT0=B"}, false, ""},
		{"no batch", "A", "B", 8, []string{"id(IN0=A)->OUT0=B"}, false, ""},
		{"no such input", "A", "B", 0, []string{"id(IN0=A,NOPE=A)->OUT0=B"}, false, "in ensemble e, ensemble tensor A is mapping to non-existing input NOPE in model id"},
		{"no such input alone", "A", "B", 0, []string{"id(NOPE=A)->OUT0=B"}, false, "in ensemble e, ensemble tensor A is mapping to non-existing input NOPE in model id"},
		{"no such output", "A", "B", 0, []string{"id(IN0=A)->NOPE=B"}, false, "in ensemble e, ensemble tensor B is mapped from non-existing output NOPE in model id"},
		{"an input is left out", "A", "B", 0, []string{"id2(IN0=A)->OUT0=B"}, false, "in ensemble e, input IN1 in model id2 is not mapped to any ensemble tensors"},
		{"an optional one is", "A", "B", 0, []string{"idopt(IN0=A)->OUT0=B"}, false, ""},
		{"one tensor for two inputs", "A", "B", 0, []string{"id2(IN0=A,IN1=A)->OUT0=B"}, false, ""},
		{"an output is an input", "A", "A B", 0, []string{"id(IN0=A)->OUT0=B"}, false, ""},
		{"type of an input", "A:FP32[1]", "B", 0, []string{"id(IN0=A)->OUT0=B"}, false, "in ensemble e, ensemble tensor A: inconsistent data type: TYPE_FP32 is inferred from model e while TYPE_INT32 is inferred from model id"},
		{"type of an output", "A", "B:FP32[1]", 0, []string{"id(IN0=A)->OUT0=B"}, false, "in ensemble e, ensemble tensor B: inconsistent data type: TYPE_FP32 is inferred from model e while TYPE_INT32 is inferred from model id"},
		{"type between", "A", "B:FP32[1]", 0, []string{"id(IN0=A)->OUT0=X", "idf(IN0=X)->OUT0=B"}, false, "in ensemble e, ensemble tensor X: inconsistent data type: TYPE_INT32 is inferred from model id while TYPE_FP32 is inferred from model idf"},
		{"type between, the reader first", "A", "B:FP32[1]", 0, []string{"idf(IN0=X)->OUT0=B", "id(IN0=A)->OUT0=X"}, false, "in ensemble e, ensemble tensor X: inconsistent data type: TYPE_FP32 is inferred from model idf while TYPE_INT32 is inferred from model id"},
		{"shape of an input", "A:INT32[4]", "B", 0, []string{"id(IN0=A)->OUT0=B"}, false, "in ensemble e, ensemble tensor A: inconsistent shape: [4] is inferred from model e while [1] is inferred from model id"},
		{"shape between", "A", "B:INT32[4]", 0, []string{"id(IN0=A)->OUT0=X", "id4(IN0=X)->OUT0=B"}, false, "in ensemble e, ensemble tensor X: inconsistent shape: [1] is inferred from model id while [4] is inferred from model id4"},
		{"shape between with a batch", "A", "B:INT32[4]", 0, []string{"idb8(IN0=A)->OUT0=X", "id4(IN0=X)->OUT0=B"}, false, "in ensemble e, ensemble tensor X: inconsistent shape: [-1,1] is inferred from model idb8 while [4] is inferred from model id4"},
		{"a variable shape", "A", "B", 0, []string{"idv(IN0=A)->OUT0=X", "id(IN0=X)->OUT0=B"}, false, ""},
		{"shapes with their batch", "A:INT32[-1,1]", "B:INT32[-1,1]", 0, []string{"idb8(IN0=A)->OUT0=B"}, false, ""},
		{"a reshaped output", "A", "B:INT32[1][1,1]", 0, []string{"id(IN0=A)->OUT0=B"}, false, "in ensemble e, ensemble tensor B: inconsistent shape: [1,1] is inferred from model e while [1] is inferred from model id"},

		{"a stream", "A", "B C", 0, []string{"rep(IN0=A)->OUT0=X,OUT1=C", "id(IN0=X)->OUT0=B"}, true, ""},
		{"a stream of streams", "A", "B", 0, []string{"rep(IN0=A)->OUT0=X", "rep2(IN0=X)->OUT0=B"}, true, ""},
		{"a stream, its reader first", "A", "B", 0, []string{"id(IN0=X)->OUT0=B", "rep(IN0=A)->OUT0=X"}, true, ""},
		{"two streams in a step", "A", "B", 0, []string{"rep(IN0=A)->OUT0=X", "rep2(IN0=A)->OUT0=Y", "id2(IN0=X,IN1=Y)->OUT0=B"}, true, mixed},
		{"one model twice", "A", "B", 0, []string{"rep(IN0=A)->OUT0=X", "rep(IN0=A)->OUT0=Y", "id2(IN0=X,IN1=Y)->OUT0=B"}, true, mixed},
		{"a stream and an input", "A", "B", 0, []string{"rep(IN0=A)->OUT0=X", "id2(IN0=X,IN1=A)->OUT0=B"}, true, mixed},
		{"a stream and a step", "A", "B", 0, []string{"rep(IN0=A)->OUT0=X", "id(IN0=A)->OUT0=Y", "id2(IN0=X,IN1=Y)->OUT0=B"}, true, mixed},
		{"outputs of a stream and a step", "A", "B C", 0, []string{"rep(IN0=A)->OUT0=B", "id(IN0=A)->OUT0=C"}, true, mixed},
		{"outputs of two streams", "A", "B C", 0, []string{"rep(IN0=A)->OUT0=B", "rep2(IN0=A)->OUT0=C"}, true, mixed},
		{"outputs of a stream and of what it feeds", "A", "B C", 0, []string{"rep(IN0=A)->OUT0=C", "rep2(IN0=C)->OUT0=B"}, true, mixed},
	} {
		t.Run(c.name, func(t *testing.T) {
			decoupled, err := config.CheckComposition(ensembleConfig(t, "e", c.inputs, c.outputs, c.batch, c.steps...), composingModels(t))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Fatalf("got error %q, want %q", got, c.want)
			}
			if err == nil && decoupled != c.decoupled {
				t.Errorf("decoupled is %v, want %v", decoupled, c.decoupled)
			}
		})
	}
}
