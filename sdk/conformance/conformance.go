package conformance

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/sdk"
)

// Model is a model that the backend under test executes.
type Model struct {
	// Directory is the directory of the model, with config.pbtxt and version directories.
	Directory string
	// Config is the text of a config.pbtxt, used instead of the file; "" means the file.
	Config string
	// Inputs returns the inputs of request n: equal ones for equal n. If nil, they are generated from
	// the config.
	Inputs func(n int) []infer.Tensor
	// Host serves the backend's calls of its server; nil means a server without other models.
	Host backend.Host
}

// Options bound what Check does.
type Options struct {
	// Limit is how long a request, a load or an unload may take; 0: 30 s.
	Limit time.Duration
}

// Status is the outcome of a rule.
type Status string

// The outcomes.
const (
	Passed   Status = "passed"
	Failed   Status = "failed"
	Untested Status = "untested" // no scenario could try it: Why says the reason
)

// Result is the outcome of one rule for one model.
type Result struct {
	Model  string   `json:"model"`
	Rule   string   `json:"rule"`
	Says   string   `json:"says"` // the rule as a sentence
	Status Status   `json:"status"`
	Why    []string `json:"why,omitempty"`
}

// Report is the outcome of Check.
type Report struct {
	Results []Result `json:"results"`
	// Notes are further observations for the author, such as responses that were all errors.
	Notes []string `json:"notes,omitempty"`
}

// Passed reports whether no rule was broken.
func (r *Report) Passed() bool {
	for _, result := range r.Results {
		if result.Status == Failed {
			return false
		}
	}
	return true
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	model := ""
	for _, result := range r.Results {
		if result.Model != model {
			model = result.Model
			fmt.Fprintf(&b, "model %s\n", model)
		}
		fmt.Fprintf(&b, "  %-8s  %-20s  %s\n", result.Status, result.Rule, result.Says)
		for _, why := range result.Why {
			fmt.Fprintf(&b, "            %s\n", strings.ReplaceAll(why, "\n", "\n            "))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Run checks a backend that is linked in, as a test with a subtest for each model and rule.
func Run(t *testing.T, open sdk.New, models ...Model) {
	t.Helper()
	RunWay(t, Linked(open), models...)
}

// RunWay is Run for any way.
func RunWay(t *testing.T, way Way, models ...Model) {
	t.Helper()
	report, err := Check(t.Context(), way, Options{}, models...)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		t.Run(result.Model+"/"+result.Rule, func(t *testing.T) {
			why := strings.Join(result.Why, "\n")
			switch result.Status {
			case Failed:
				t.Errorf("%s:\n%s", result.Says, why)
			case Untested:
				t.Skipf("%s: %s", result.Says, why)
			}
		})
	}
	for _, note := range report.Notes {
		t.Log(note)
	}
}

// Check checks a backend with each model. It returns an error if nothing could be checked, for
// example because a config is invalid.
func Check(ctx context.Context, way Way, options Options, models ...Model) (*Report, error) {
	if len(models) == 0 {
		return nil, fmt.Errorf("a backend is tested with the models that it executes, but no model is given")
	}
	if options.Limit <= 0 {
		options.Limit = 30 * time.Second
	}
	report := &Report{}
	for _, model := range models {
		c, err := model.read()
		if err != nil {
			return nil, err
		}
		check := &check{ctx: ctx, way: way, options: options, model: model, written: c, config: c, found: map[string][]string{}, tried: map[string]bool{}, untested: map[string]string{}}
		check.run()
		check.report(report)
	}
	return report, nil
}

// read reads and fills in the config.
func (m *Model) read() (*kserve.ModelConfig, error) {
	directory, err := filepath.Abs(m.Directory)
	if err != nil {
		return nil, err
	}
	text, path := []byte(m.Config), filepath.Join(directory, "config.pbtxt")
	if m.Config == "" {
		if text, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("read the model's config: %w", err)
		}
	}
	c, err := config.ParseText(path, text)
	if err != nil {
		if detailed, ok := err.(*config.ParseError); ok { //nolint:errorlint // it is not wrapped
			return nil, fmt.Errorf("%s", detailed.Detail())
		}
		return nil, err
	}
	if c.Name == "" {
		c.Name = filepath.Base(directory)
	}
	if err := (config.Rules{}).Fill(c, c.Name, nil); err != nil {
		return nil, fmt.Errorf("model %s: %w", c.Name, err)
	}
	m.Directory = directory
	return c, nil
}
