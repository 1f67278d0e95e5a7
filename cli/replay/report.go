package replay

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/nereid-serving/nereid/cli/tensors"
	"github.com/nereid-serving/nereid/server/recording"
)

// The results of a request.
const (
	resultSame      = "same"
	resultDifferent = "different"
	resultNotSent   = "not sent"
)

// outcome is the result of one record.
type outcome struct {
	File        string   `json:"file"`
	Model       string   `json:"model,omitempty"`
	Result      string   `json:"result"`
	Differences []string `json:"differences,omitempty"` // or the reason why it was not sent
}

type report struct {
	Requests  []*outcome `json:"requests"` // bound: the records
	Same      int        `json:"same"`
	Different int        `json:"different"`
	NotSent   int        `json:"not_sent"`
}

func (r *report) add(o *outcome) {
	r.Requests = append(r.Requests, o)
	switch o.Result {
	case resultSame:
		r.Same++
	case resultDifferent:
		r.Different++
	default:
		r.NotSent++
	}
}

func (r *report) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return r.writeJSON(w)
	}
	r.writeText(w)
	return nil
}

func (r *report) writeText(w io.Writer) {
	for _, o := range r.Requests {
		for _, text := range o.Differences {
			if o.Result == resultNotSent {
				text = "not sent: " + text
			}
			fmt.Fprintf(w, "%s: %s\n", o.File, text)
		}
	}
	plural := "s"
	if len(r.Requests) == 1 {
		plural = ""
	}
	fmt.Fprintf(w, "%d request%s: %d the same, %d different, %d not sent\n", len(r.Requests), plural, r.Same, r.Different, r.NotSent)
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r) // bound: the report
}

// fill replaces redacted inputs with zeros or empty strings, and reports whether there are any.
func fill(r *recording.Record) (redacted bool, err error) {
	for i := range r.Request.Tensors {
		t := &r.Request.Tensors[i]
		if !t.Redacted {
			continue
		}
		redacted = true
		err := tensors.Fill(&t.Tensor, true, 0)
		if err != nil {
			return true, fmt.Errorf("input %s: %w", t.Name, err)
		}
	}
	return redacted, nil
}
