package flags

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/metrics"
)

// TestQuantilesAreReadAsTritonReadsThem checks that only the number at the beginning of a value
// counts, as in Triton, and that an invalid pair is logged.
func TestQuantilesAreReadAsTritonReadsThem(t *testing.T) {
	for text, c := range map[string]struct {
		want     map[float64]float64
		log, err string
	}{
		"0.1:0.0.1,0.7:0.01,":       {want: map[float64]float64{0.1: leastError, 0.7: 0.01}},
		" .5x:1e-2y,9e-1:0.05 0.7:": {want: map[float64]float64{0.5: 0.01, 0.9: 0.05}},
		"0.5,0.9:0.01":              {want: map[float64]float64{0.9: 0.01}, log: "Invalid option: [0.5]. No ':' delimiter found. Expected format is <quantile>:<error>"},
		"x:0.1,0.9:y,":              {log: "Invalid option: [x:0.1]. Error: stod"},
		"":                          {log: "Invalid option: []. No ':' delimiter found."},
		"0.5:0.1,1.5:0.1":           {err: "--metrics-config summary_quantiles=0.5:0.1,1.5:0.1: want <quantile>:<error> with numbers between 0 and 1, separated by commas"},
		"nan:0.1":                   {err: "want <quantile>:<error>"},
	} {
		var log strings.Builder
		var got metrics.Config
		err := (&Options{MetricsSettings: []Setting{{"summary_quantiles", text}}}).applyMetricsSettings(&got, zerolog.New(&log))
		if !reflect.DeepEqual(got.Quantiles, c.want) || !strings.Contains(log.String(), c.log) || (c.log == "") != (log.Len() == 0) ||
			(err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: got %v, %v, and the log %s; want %v, %q, %q", text, got.Quantiles, err, log.String(), c.want, c.err, c.log)
		}
	}
}

// TestErrorsOfBoundsNameTheFlag checks the error of a number below the bounds of each flag.
func TestErrorsOfBoundsNameTheFlag(t *testing.T) {
	for _, g := range flagTable() {
		for _, f := range g.flags {
			if f.most == 0 {
				continue
			}
			number := strconv.FormatInt(f.least-1, 10)
			_, err := Parse([]string{"--" + f.name + "=" + number}, func(string) string { return "" }, io.Discard)
			if want := fmt.Sprintf("\n--%s is %q, want %s: ", f.name, number, f.accepts()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("--%s=%s: got error %v, want one with %q", f.name, number, err, want)
			}
		}
	}
}

func TestNoEffectIsTrueOfFlags(t *testing.T) {
	var names []string
	for _, g := range flagTable() {
		for _, f := range g.flags {
			if slices.Contains(names, f.name) {
				t.Errorf("--%s stands in the table twice", f.name)
			}
			names = append(names, f.name)
		}
	}
	for _, name := range noEffect {
		if !slices.Contains(names, name) {
			t.Errorf("noEffect has %q, which is no flag", name)
		}
	}
}
