package bench

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// The tests of this file are internal because the figures of a run are not known beforehand.

// TestSpreadNeedsTwoSeconds checks that the table shows no spread for levels shorter than two
// seconds.
func TestSpreadNeedsTwoSeconds(t *testing.T) {
	var out bytes.Buffer
	(&report{SharedMemory: "none", Levels: []*row{{level: level{Concurrency: 1}, Seconds: 1.9}, {level: level{Concurrency: 2}, Seconds: 2, Spread: .5}}}).write(&out)
	lines := strings.Split(out.String(), "\n")
	if a, b := strings.Fields(lines[2])[2], strings.Fields(lines[3])[2]; a != "-" || b != "50%" {
		t.Errorf("got\n%s", &out)
	}
}

// TestTableWithoutAnswers checks that the table shows dashes for missing measurements.
func TestTableWithoutAnswers(t *testing.T) {
	var out bytes.Buffer
	(&report{Model: "m", SharedMemory: "none", Levels: []*row{{level: level{Concurrency: 1}, Errors: 3, Texts: []string{"400: no"}, Where: &where{}}}}).write(&out)
	if lines := strings.Split(out.String(), "\n"); len(lines) != 5 || strings.Join(strings.Fields(lines[2]), " ") != "1 0 - - - - - - - - 3" || lines[3] != "1: error: 400: no" {
		t.Errorf("got\n%s", &out)
	}
}

// TestComparison checks that levels that occur in both reports are shown with their ratios.
func TestComparison(t *testing.T) {
	before := &report{Model: "m", Levels: []*row{{level: level{Concurrency: 1}, InferPS: 100, Latency: quantiles{Mean: 10, P50: 8, P99: 0}}, {level: level{Rate: 5}}}}
	now := &report{Levels: []*row{{level: level{Concurrency: 1}, InferPS: 150, Latency: quantiles{Mean: 5, P50: 8, P99: 3}}, {level: level{Concurrency: 2}}}}
	path := filepath.Join(t.TempDir(), "before.json")
	if err := before.writeJSON(path, nil); err != nil {
		t.Fatal(err)
	}
	read, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	now.compare(&out, read)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || strings.Join(strings.Fields(lines[2]), " ") != "1 ×1.50 ×0.50 ×1.00 -" {
		t.Errorf("got\n%s", &out)
	}
}

// TestTextsOfErrorsAreBounded checks that long errors are kept only in part.
func TestTextsOfErrorsAreBounded(t *testing.T) {
	var counts, sum results
	counts.note(strings.Repeat("x", 1<<20))
	sum.merge(&counts)
	if len(sum.texts) != 1 || len(sum.texts[0]) > infer.MaxEcho || !strings.HasSuffix(sum.texts[0], "x…") {
		t.Errorf("got %d texts", len(sum.texts))
	}
}
