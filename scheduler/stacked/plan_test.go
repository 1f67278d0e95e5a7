package stacked_test

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/stacked"
)

func TestPlanRejectsUnstackableConfigs(t *testing.T) {
	parameter := func(name, value string) string {
		return `parameters { key: "` + name + `" value { string_value: "` + value + `" } }`
	}
	pad := func(value, dataType string) string {
		return parameter("BATCH_RAGGED", "pad") + parameter("BATCH_PAD_VALUE", value) +
			`input { name: "X" data_type: ` + dataType + ` dims: [ -1 ] allow_ragged_batch: true }`
	}
	const x = `input { name: "X" data_type: TYPE_INT32 dims: [ -1 ] }`
	for _, test := range []struct{ name, config, want string }{
		{"decoupled", "model_transaction_policy { decoupled: true }", "a decoupled model cannot have them, as its responses are not one for each request"},
		{"no batches", "max_batch_size: 0", "max_batch_size is 0, want 1 or more"},
		{"sequences", "sequence_batching { }", "they need dynamic_batching"},
		{"unknown way", parameter("BATCH_RAGGED", "cut"), `parameter BATCH_RAGGED is "cut", want "flat" or "pad"`},
		{"value without padding", parameter("BATCH_PAD_VALUE", "1"), `parameter BATCH_PAD_VALUE is of use only with BATCH_RAGGED "pad"`},
		{"no number", pad("x", "TYPE_INT32"), `parameter BATCH_PAD_VALUE is "x": input 'X' of TYPE_INT32: want a number that its type can hold`},
		{"a number too large", pad("-129", "TYPE_INT8"), `parameter BATCH_PAD_VALUE is "-129": input 'X' of TYPE_INT8: want a number that its type can hold`},
		{"a number below zero", pad("-1", "TYPE_UINT64"), `parameter BATCH_PAD_VALUE is "-1": input 'X' of TYPE_UINT64: want a number that its type can hold`},
		{"too large for half precision", pad("65520", "TYPE_FP16"), `parameter BATCH_PAD_VALUE is "65520": input 'X' of TYPE_FP16: want a number that its type can hold`},
		{"no truth", pad("maybe", "TYPE_BOOL"), `parameter BATCH_PAD_VALUE is "maybe": input 'X' of TYPE_BOOL: want true or false`},
		{"a name twice", x + `batch_input { target_name: "X" data_type: TYPE_INT32 source_input: "X" }`, "batch_input makes 'X', but there is an input of that name"},
		{"a name twice among its own", x + `batch_input { target_name: ["E", "E"] data_type: TYPE_INT32 source_input: "X" }`, "batch_input makes 'E', but there is an input of that name"},
		{"no name", x + `batch_input { target_name: "" data_type: TYPE_INT32 source_input: "X" }`, "a target_name of batch_input is empty"},
		{
			"a dimension that the input does not have",
			x + `output { name: "Y" data_type: TYPE_INT32 dims: [ 1, -1 ] } batch_output { target_name: "Y" source_input: "X" }`,
			"dimension 1 of output 'Y' is variable, but input 'X' of its batch_output has only 1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := stacked.ConfigOf(t, `name: "m" dynamic_batching { } parameters { key: "BATCH_MODE" value { string_value: "stacked" } }`)
			config.MaxBatchSize = 8
			if test.name == "sequences" {
				config.SchedulingChoice = nil
			}
			more := stacked.ConfigOf(t, test.config)
			if test.name == "no batches" {
				config.MaxBatchSize = 0
			}
			for key, p := range more.GetParameters() {
				config.Parameters[key] = p
			}
			config.ModelTransactionPolicy = more.ModelTransactionPolicy
			config.Input, config.Output, config.BatchInput, config.BatchOutput = more.Input, more.Output, more.BatchInput, more.BatchOutput
			_, err := stacked.NewPlan(config)
			var refused *infer.Error
			want := "model 'm' asks for stacked batches: " + test.want
			if !errors.As(err, &refused) || refused.Message != want || refused.Code != infer.InvalidArg {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

func TestAskedReadsTheMode(t *testing.T) {
	for _, test := range []struct {
		config string
		yes    bool
		other  string
	}{
		{"", false, ""},
		{`parameters { key: "BATCH_MODE" value { string_value: "stacked" } }`, true, ""},
		{`parameters { key: "BATCH_MODE" value { string_value: "Stacked" } }`, false, "Stacked"},
		{`parameters { key: "batch_mode" value { string_value: "stacked" } }`, false, ""},
	} {
		config := stacked.ConfigOf(t, test.config)
		if yes, other := stacked.Asked(config); yes != test.yes || other != test.other {
			t.Errorf("%s: got %v, %q", test.config, yes, other)
		}
		plan, err := stacked.NewPlan(config)
		if !test.yes && (plan != nil || err != nil) {
			t.Errorf("%s: got a plan or the error %v", test.config, err)
		}
	}
}

func TestElementEncodesEveryType(t *testing.T) {
	for _, test := range []struct {
		of   infer.DataType
		text string
		want string
	}{
		{infer.Bool, "true", "\x01"},
		{infer.Bool, "0", "\x00"},
		{infer.Int8, "-2", "\xfe"},
		{infer.Uint16, "65535", "\xff\xff"},
		{infer.Int32, "-1", "\xff\xff\xff\xff"},
		{infer.Uint64, "18446744073709551615", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{infer.Int64, "1", "\x01\x00\x00\x00\x00\x00\x00\x00"},
		{infer.FP32, "1", "\x00\x00\x80\x3f"},
		{infer.FP64, "-0.5", "\x00\x00\x00\x00\x00\x00\xe0\xbf"},
		{infer.FP32, "-inf", "\x00\x00\x80\xff"},
		{infer.FP16, "1", "\x00\x3c"},
		{infer.FP16, "-2.5", "\x00\xc1"},
		{infer.FP16, "65519", "\xff\x7b"},     // rounded to the largest number
		{infer.FP16, "0.1", "\x66\x2e"},       // rounded to nearest
		{infer.FP16, "6e-8", "\x01\x00"},      // rounded to the smallest number
		{infer.FP16, "6.1035e-5", "\x00\x04"}, // rounded to the smallest normal number
		{infer.FP16, "-inf", "\x00\xfc"},
		{infer.FP16, "nan", "\x00\x7e"},
		{infer.BF16, "1", "\x80\x3f"},
		{infer.BF16, "0.1", "\xcd\x3d"},
		{infer.BF16, "nan", "\xc0\x7f"},
		{infer.Bytes, "", "\x00\x00\x00\x00"},
		{infer.Bytes, "é", "\x02\x00\x00\x00\xc3\xa9"},
	} {
		got, err := stacked.Element(test.of, test.text)
		if err != nil || string(got) != test.want {
			t.Errorf("%s of %s: got %x %v, want %x", test.text, test.of, got, err, test.want)
		}
	}
}
