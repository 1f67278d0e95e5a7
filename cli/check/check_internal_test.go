package check

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/config"
)

// TestJSONHasAllFindings checks the findings, counts and models in the output of --json.
func TestJSONHasAllFindings(t *testing.T) {
	directory := testkit.WriteFiles(t, t.TempDir(), map[string]string{"m/config.pbtxt": "inputs { }", "m/1/model.py": Script, "n/config.pbtxt": Two, "n/1/model.py": Script})
	status, lines, _ := RunCheck(t, directory, "--json")
	var got report
	if err := json.Unmarshal([]byte(strings.Join(lines, "\n")), &got); err != nil {
		t.Fatal(err)
	}
	want := finding{Severity: "error", Rule: "config", Model: "m", File: "m/config.pbtxt", Line: 1, Column: 1, Text: "unknown field: inputs", Remedy: "did you mean input?"}
	if status != 1 || got.Errors != 1 || len(got.Findings) != 1 || *got.Findings[0] != want {
		t.Errorf("got status %d, %+v, want %+v", status, got.Findings, want)
	}
	if len(got.Models) != 2 || got.Models[1].Name != "n" || !slices.Equal(got.Models[1].Versions, []int64{1}) || got.Models[1].Backend != "python" || got.Models[1].Loaded != nil {
		t.Errorf("got models %+v", got.Models[1])
	}
}

// TestWarningsIncludeTheirErrors checks the finding for a warning of the log that has an error.
func TestWarningsIncludeTheirErrors(t *testing.T) {
	c := &check{log: &capture{}}
	if _, err := c.log.Write([]byte(`{"level":"warn","message":"process lost, restarting","error":"process exited with code 3"}`)); err != nil {
		t.Fatal(err)
	}
	c.told()
	if len(c.report.Findings) != 1 || c.report.Findings[0].Text != "process lost, restarting: process exited with code 3" {
		t.Errorf("got findings %+v, want one with the error", c.report.Findings)
	}
}

// TestOtherValuesCannotCureTheCode checks which errors are blamed on the values of a request.
func TestOtherValuesCannotCureTheCode(t *testing.T) {
	for text, want := range map[string]bool{
		"NameError: name 'x' is not defined":                                                      true,
		"Number of InferenceResponse objects do not match the number of InferenceRequest objects": true,
		"Expected a list in the execute return, found type '<class 'int'>'":                       true,
		"Expected an 'InferenceResponse' object in the execute function return list":              true,
		"execute returned no response for this request, and none was sent":                        true,
		"ValueError: negative": false,
	} {
		if got := codeFault.MatchString(text); got != want {
			t.Errorf("%s: got %t, want %t", text, got, want)
		}
	}
}

// TestRequestsAreSequencesWhereClientsMakeThem checks that generated requests start and end a
// sequence, except with iterative_sequence, where the server creates the sequences.
func TestRequestsAreSequencesWhereClientsMakeThem(t *testing.T) {
	for text, want := range map[string]bool{"": false, "sequence_batching { }": true, "sequence_batching { iterative_sequence: true }": false} {
		c, err := config.ParseText("p", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		q, err := randomRequest(c)
		if err != nil || q.Correlation.IsZero() == want || (q.Flags == infer.SequenceStart|infer.SequenceEnd) != want {
			t.Errorf("%s: got %+v, %v", text, q, err)
		}
	}
}
