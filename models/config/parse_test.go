package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
)

// TestParseTextTakesForms parses the forms of text that are in use.
func TestParseTextTakesForms(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"comment alone", "# nothing", ""},
		{"commas and semicolons", `name: "a", max_batch_size: 4;`, `name: "a" max_batch_size: 4`},
		{"commas inside messages", `input { name: "a", data_type: TYPE_FP32, dims: [ 1, 2 ], }`, `input { name: "a" data_type: TYPE_FP32 dims: 1 dims: 2 }`},
		{"list of messages", `input [ { name: "a" }, { name: "b" } ], max_batch_size: 3`, `input { name: "a" } input { name: "b" } max_batch_size: 3`},
		{"colons before messages", `input: [ { name: "a" }, < name: "b" > ] dynamic_batching: { }`, `input { name: "a" } input { name: "b" } dynamic_batching { }`},
		{"empty lists", `input [ ] input: [] output { dims: [ ] }`, `output { }`},
		{"without spaces", `name:"m"platform:"x"dynamic_batching{}`, `name: "m" platform: "x" dynamic_batching { }`},
		{"CRLF", "max_batch_size\r\n:\r\n4\r\n", `max_batch_size: 4`},
		{"quotes", `name: 'a' "b" "\x63\144"`, `name: "abcd"`},
		{"integers", `max_batch_size: 0x10 instance_group { gpus: [ 0, 07, - 1 ] }`, `max_batch_size: 16 instance_group { gpus: 0 gpus: 7 gpus: -1 }`},
		{"booleans", `response_cache { enable: True } model_transaction_policy { decoupled: 1 } input { optional: t }`, `response_cache { enable: true } model_transaction_policy { decoupled: true } input { optional: true }`},
		{"enum numbers", `input { data_type: 11 format: 7 }`, `input { data_type: TYPE_FP32 format: 7 }`},
		{"floats", `sequence_batching { direct { minimum_slot_utilization: 5e-1f } }`, `sequence_batching { direct { minimum_slot_utilization: 0.5 } }`},
		{"the last of equal keys", `metric_tags { key: "a" value: "b" } metric_tags { key: "a" }`, `metric_tags { key: "a" value: "" }`},
		{"a list of map entries", `parameters [ { key: "a" value { string_value: "x" } }, { key: "b" } ]`, `parameters { key: "a" value { string_value: "x" } } parameters { key: "b" value { } }`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := config.ParseText("config.pbtxt", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			wantConfig(t, got, c.want)
		})
	}
}

// wantConfig fails the test if a config differs from a text.
func wantConfig(t *testing.T, got *kserve.ModelConfig, text string) {
	t.Helper()
	want := &kserve.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestParseTextErrorsNameTheSource checks the text for the log, with position and reason. Clients
// only get the file's name.
func TestParseTextErrorsNameTheSource(t *testing.T) {
	const end = "unexpected end of text: a bracket or a quote is not closed, or a value is missing"
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", "name: \"a\"\nfoo: 1", "p:2:1: unknown field: foo"},
		{"unknown field inside", "input {\n  named: \"a\"\n}", "p:2:3: unknown field: named"},
		{"lowerCamel", `maxBatchSize: 4`, "p:1:1: unknown field: maxBatchSize"},
		{"twice", "max_batch_size: 1\nmax_batch_size: 2", "p:2:1: non-repeated field \"max_batch_size\" is repeated"},
		{"two schedulers", "dynamic_batching { }\nsequence_batching { }", `p:2:1: error parsing "sequence_batching", oneof inference.ModelConfig.scheduling_choice is already set`},
		{"float for an integer", `max_batch_size: 4.0`, "p:1:17: invalid value for int32 type: 4.0"},
		{"quoted integer", `max_batch_size: "4"`, `p:1:17: invalid value for int32 type: "4"`},
		{"quoted integer before a comment", "max_batch_size: \"4\" # c\n\n# d\n", `p:1:17: invalid value for int32 type: "4"`},
		{"out of range", `max_batch_size: 12345678901`, "p:1:17: invalid value for int32 type: 12345678901"},
		{"negative", `dynamic_batching { max_queue_delay_microseconds: -1 }`, "p:1:50: invalid value for uint64 type: -1"},
		{"unknown type", `input { data_type: FP32 }`, "p:1:20: invalid value for enum type: FP32"},
		{"yes", `response_cache { enable: yes }`, "p:1:26: invalid value for bool type: yes"},
		{"not closed", "input {\n  name: \"a\"\n", "p:3:1: " + end},
		{"quote not closed", `name: "abc`, "p:1:11: " + end},
		{"JSON", `{ "max_batch_size": 4 }`, "p:1:1: invalid field name: {"},
		{"comment of another language", "// c\nmax_batch_size: 4", "p:1:1: invalid field name: //"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.ParseText("p", []byte(c.text))
			var parse *config.ParseError
			if !errors.As(err, &parse) {
				t.Fatalf("got error %v, want a ParseError", err)
			}
			if got := parse.Detail(); got != c.want {
				t.Errorf("Detail: got %q, want %q", got, c.want)
			}
			if got, want := infer.AsError(err).Status(), "Internal: failed to read text proto from p"; got != want || err.Error() != "failed to read text proto from p" {
				t.Errorf("status: got %q, want %q", got, want)
			}
		})
	}
}

func TestParseJSON(t *testing.T) {
	for _, c := range []struct{ name, text, want, refused string }{
		{"nothing", ``, ``, ""},
		{"both kinds of names", `{"maxBatchSize":4,"dynamic_batching":{"preferredBatchSize":[1]}}`, `max_batch_size: 4 dynamic_batching { preferred_batch_size: 1 }`, ""},
		{"integers as strings and floats", `{"max_batch_size":"4","input":[{"dims":["-1",4.0]}]}`, `max_batch_size: 4 input { dims: [ -1, 4 ] }`, ""},
		{"null", `{"input":null,"max_batch_size":null}`, ``, ""},
		{"enum names in any case", `{"input":[{"data_type":"type_Fp32"}],"parameters":{"type":{"string_value":"type_fp32"}}}`, `input { data_type: TYPE_FP32 } parameters { key: "type" value { string_value: "type_fp32" } }`, ""},
		{"enum names in any case, in a map", `{"model_warmup":[{"inputs":{"a":{"dataType":"type_fp32"}}}],"dynamic_batching":{"defaultQueuePolicy":{"timeoutAction":"delay"}}}`, `model_warmup { inputs { key: "a" value { data_type: TYPE_FP32 } } } dynamic_batching { default_queue_policy { timeout_action: DELAY } }`, ""},
		{"enum number", `{"input":[{"data_type":11}]}`, `input { data_type: TYPE_FP32 }`, ""},
		{"unknown field", `{"foo":1}`, "", "foo: Cannot find field."},
		{"unknown field inside", `{"input":[{"foo":1}]}`, "", "foo: Cannot find field."},
		{"no integer", `{"max_batch_size":4.5}`, "", "(max_batch_size): invalid value 4.5 for type TYPE_INT32"},
		{"unknown enum", `{"input":[{"data_type":"type_x"}]}`, "", `(data_type): invalid value "type_x" for type TYPE_ENUM`},
		{"number for a bool", `{"response_cache":{"enable":1}}`, "", "(enable): invalid value 1 for type TYPE_BOOL"},
		{"twice", `{"max_batch_size":4,"maxBatchSize":5}`, `max_batch_size: 5`, ""},
		{"a message and a list twice", `{"dynamic_batching":{"preserve_ordering":true},"input":[{"name":"a"}],"dynamicBatching":{"priority_levels":2},"input":{"name":"b"}}`,
			`dynamic_batching { preserve_ordering: true priority_levels: 2 } input { name: "a" } input { name: "b" }`, ""},
		{"names without quotes", `{max_batch_size :4, dynamic_batching:{_x1:null}}`, "", "_x1: Cannot find field."},
		{"names without quotes, and single ones", `{name:'a"b',parameters:{a_1:{'string_value':'\u00e4\x'},},}`, `name: "a\"b" parameters { key: "a_1" value { string_value: "äx" } }`, ""},
		{"a comma behind the last", `{"input":[{"dims":[1,],},],}`, `input { dims: 1 }`, ""},
		{"a single one of a list", `{"instance_group":{"kind":"KIND_CPU"}}`, `instance_group { kind: KIND_CPU }`, ""},
		{"bools and enum numbers as texts", `{"dynamic_batching":{"preserve_ordering":"true"},"instance_group":[{"kind":"2"}]}`, `dynamic_batching { preserve_ordering: true } instance_group { kind: KIND_CPU }`, ""},
		{"a name that begins with a digit", `{1x:1}`, "", "invalid value 1x"},
		{"a comment", `{/*x*/"max_batch_size":4}`, "", "invalid value /"},
		{"a value without quotes", `{name:m}`, "", "invalid value name"},
		{"a sign", `{max_batch_size:+4}`, "", "invalid value max_batch_size"},
		{"a leading zero", `{max_batch_size:04}`, "", "invalid value max_batch_size"},
		{"a comma alone", `{"input":[,]}`, "", "unexpected token ,"},
		{"something behind", `{max_batch_size:4}x`, "", "invalid value max_batch_size"},
		{"a half pair", `{'name':'\ud800'}`, "", "invalid value '"},
		{"without end", `{'name':'a`, "", "invalid value '"},
		{"twice beside an enum in lower case", `{"input":[{"data_type":"type_fp32"}],"name":"a","name":"b"}`, `input { data_type: TYPE_FP32 } name: "b"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := config.ParseJSON([]byte(c.text))
			if c.refused != "" {
				if err == nil || infer.AsError(err).Status() != "Invalid argument: "+c.refused {
					t.Fatalf("got error %v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantConfig(t, got, c.want)
		})
	}
}

// FuzzParseText parses any text as a config.pbtxt and checks that an accepted text has an
// equivalent JSON form.
func FuzzParseText(f *testing.F) {
	addConfigs(f, "*.pbtxt")
	for i, c := range recordedTexts(f) {
		if i%20 == 0 { // with more seeds, it takes longer until the first new text
			f.Add([]byte(c.Config))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := config.ParseText("p", text)
		if err != nil {
			if infer.AsError(err).Message != "failed to read text proto from p" {
				t.Fatalf("got error %v, want the file's name", err)
			}
			return
		}
		config.CheckConfig(t, parsed)
	})
}

// FuzzParseJSON parses any text as a model's auto-completed config.
func FuzzParseJSON(f *testing.F) {
	addConfigs(f, "*.json")
	for i, c := range recordedTexts(f) {
		if i%5 == 0 && c.Override != "" {
			f.Add([]byte(c.Override))
		}
	}
	f.Add([]byte(`{"input":[{"data_type":"type_fp32","dims":["1",2.0]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := config.ParseJSON(text)
		if err == nil {
			config.CheckConfig(t, parsed)
		}
	})
}

// recordedText is a config that was given to Triton, as a file or with a request.
type recordedText struct{ Config, Override string }

func recordedTexts(f *testing.F) (texts []recordedText) {
	f.Helper()
	text, err := os.ReadFile("testdata/recorded.json")
	if err != nil {
		f.Fatal(err)
	}
	if err := json.Unmarshal(text, &texts); err != nil {
		f.Fatal(err)
	}
	return texts
}

func addConfigs(f *testing.F, pattern string) {
	files, err := filepath.Glob(filepath.Join("testdata/configjson", pattern))
	if err != nil || len(files) == 0 {
		f.Fatalf("no %s in testdata/configjson (%v)", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
}
