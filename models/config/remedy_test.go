package config_test

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/models/config"
)

func TestParseErrorsSuggestARemedy(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`input { data_type: TYPE_BYTES }`, "use TYPE_STRING for strings and bytes"},
		{`input { data_type: BYTES }`, "use TYPE_STRING for strings and bytes"},
		{`input { data_type: FP32 }`, "did you mean TYPE_FP32?"},
		{`input { data_type: TYPE_FLOAT32 }`, "did you mean TYPE_FP32?"},
		{`input { data_type: TYPE_F32 }`, "did you mean TYPE_FP32?"},
		{`input { data_type: TYPE_FLAOT32 }`, "did you mean TYPE_FP32?"},
		{`input { data_type: TYPE_ZZZZZZ }`, ""},
		{`instance_group { kind: KIND_CPUS }`, "did you mean KIND_CPU?"},
		{`maxBatchSize: 4`, "did you mean max_batch_size?"},
		{`inputs { }`, "did you mean input?"},
		{`instance_groups { }`, "did you mean instance_group?"},
		{`zzzzzzzz: 1`, "the fields are those of Triton's model_config.proto"},
		{`input { label_filename: "l.txt" }`, "it belongs in another part of the configuration"},
		{`response_cache { enable: yes }`, "write true or false"},
		{`// c`, "comments begin with #"},
		{`{ "name": 1 }`, "config.pbtxt is not JSON: remove the outer braces and the quotes around names"},
		{`input {`, ""},
		{`input { data_type: "TYPE_FP32" }`, "write TYPE_FP32, without quotes"},
		{`backend: python`, `put quotes around it: "python"`},
		{`max_batch_size: "8"`, "write the number without quotes"},
		{"max_batch_size: \"8\" # c\n\n# d\n", "write the number without quotes"},
		{"input { data_type: \"TYPE_FP32\" # c\n}", "write TYPE_FP32, without quotes"},
		{`max_batch_size: 8.5`, "write a whole number"},
		{`max_batch_size: 99999999999`, "it is too large, or negative, for int32"},
		{`max_batch_size: [ 8 ]`, "the field has one value and not a list: remove the brackets"},
		{`max_batch_size 8`, "write a colon between name and value, as in max_batch_size: 8"},
		{`dynamic_batching: true`, "braces are required here, as in dynamic_batching { }"},
		{`input [ { } output`, "a comma or a closing bracket is missing before it"},
		{`input { dims: [ 4, ] }`, "remove the comma before it"},
		{`"name": "m"`, "write names of fields without quotes"},
		{`default_model_filename: model.py`, "want a number, or a text in quotes"},
		{"name: \"m\n", "close the quote in the same line"},
		{`}`, "no brace is open here"},
		{`instance_group { kind: gpu }`, "did you mean KIND_GPU?"},
		{`max_batch_size: 8 max_batch_size: 4`, "it is already set above: remove one of them"},
		{`dynamic_batching { } sequence_batching { }`, "only one of dynamic_batching, sequence_batching, ensemble_scheduling is allowed: remove the others"},
		{`version_policy { all { } latest { } }`, "only one of latest, all, specific is allowed: remove the others"},
		{`input [ { name: "A" } { name: "B" } ]`, "separate the entries of a list with commas: [ { … }, { … } ]"},
		{`parameters { key: "a" value: "b" }`, `braces are required here, as in value { string_value: "b" }`},
	} {
		_, err := config.ParseText("p", []byte(c.text))
		var parse *config.ParseError
		if !errors.As(err, &parse) {
			t.Fatalf("%s: got error %v, want a ParseError", c.text, err)
		}
		if got := parse.Remedy(); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.text, parse.Detail(), got, c.want)
		}
	}
}
