package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestAllPartsAreMeasured measures the smallest size of each part and expects a row for each in the
// tables.
func TestAllPartsAreMeasured(t *testing.T) {
	testkit.Story(t)
	binary, err := filepath.Abs("../../bin/nereid")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		testkit.Missing(t, "no server to measure: run \"make build\"")
	}
	s := settings{
		binary: binary, python: testkit.Python(t).Path, parts: "models,instances,connections,requests,limits",
		models: measure.Numbers{2}, instances: measure.Numbers{3}, connections: 20, requests: 100,
		span: 50 * time.Millisecond, idle: 50 * time.Millisecond, descriptors: 96, processes: 40, limited: 12,
	}
	var out strings.Builder
	if err := s.run(&out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		`(?m)^\| 2 \| Nereid \| \d+\.\d+ \| \d+\.\d+ \| 4 \|`, // two models and the template
		`(?m)^\| 3 \| Nereid \| \d+\.\d+ \| \d+\.\d+ \| 5 \|`,
		`(?m)^\| 20 HTTP \| Nereid \|`, `(?m)^\| 20 gRPC \| Nereid \|`,
		`(?m)^\| 100 \| Nereid \|.*\| 100 \|`,
		`(?m)^\| 96 descriptors \| Nereid \| 12 \| (\d) \| \d \| yes \|`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("nothing matches %s in\n%s", want, out.String())
		}
	}
}

// TestUnknownPartsAreNamed checks that an unknown part in -parts is reported before anything is
// started.
func TestUnknownPartsAreNamed(t *testing.T) {
	s := settings{parts: "models,model"}
	if err := s.run(&strings.Builder{}); err == nil || !strings.Contains(err.Error(), `"model"`) {
		t.Errorf("got error %v, want one that names the part", err)
	}
}
