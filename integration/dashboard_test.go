package integration

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
)

// dashboard is the part of docs/dashboard.json that the test reads.
type dashboard struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
}

// ofTarget matches labels that Prometheus adds to metrics scraped in a cluster. Elsewhere they are
// absent, which the .* that Grafana sends for "all" matches too.
const ofTarget = `namespace=~"$namespace",pod=~"$pod"`

// legendLabel is a label in a legend, such as {{model}}.
var legendLabel = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// TestDashboardQueriesNameExistingMetrics checks that all queries of docs/dashboard.json name
// existing metrics, labels and groupings. The server has a cache, and has had a success, a cache
// hit and a killed process.
func TestDashboardQueriesNameExistingMetrics(t *testing.T) {
	text, err := os.ReadFile("../docs/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	// The models stay on the CPU, but the GPUs have metrics anyway. If the fakes cannot be built,
	// there are no GPUs.
	var program []string
	if fakecuda.Buildable() {
		program = []string{"env", "LD_LIBRARY_PATH=" + fakecuda.Dir(t)}
	}
	s := launchBehind(t, program, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"kept/config.pbtxt": oneFloat + "response_cache { enable: true }\n", "kept/1/model.py": executing("pass"),
		"dies/config.pbtxt": oneFloat, "dies/1/model.py": executing("os._exit(1)"),
	}), "--cache-config=local,size=1048576", "--metrics-interval-ms=1", "--min-supported-compute-capability=99")
	s.waitReady()
	for range 2 {
		if status, body := s.infer("kept", 1); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, body)
		}
	}
	if status, body := s.infer("dies", -1); status == http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	s.until("the process has come again", func() bool { return strings.Contains(s.scrape(), `nereid_stub_restarts_total{model="dies"}`) })

	if program != nil {
		s.until("measuring GPUs", func() bool { return strings.Contains(s.scrape(), "nv_gpu_utilization{") })
	}
	all := parseSamples(t, s.scrape())
	queries := 0
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			if program == nil && strings.Contains(target.Expr, "nv_gpu_") {
				continue
			}
			queries++
			found, err := parsePromQL(strings.NewReplacer("{"+ofTarget+"}", "", ","+ofTarget, "", "$__rate_interval", "5m", "$model", ".*").Replace(target.Expr))
			if got, want := strings.Count(target.Expr, ofTarget), len(found.selectors); got != want {
				t.Errorf("panel %q: %d selectors of %d have %s", p.Title, got, want, ofTarget)
			}
			if err != nil {
				t.Errorf("panel %q: %v", p.Title, err)
				continue
			}
			labels := found.grouping
			for _, match := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if found.grouped && !slices.Contains(found.grouping, match[1]) {
					t.Errorf("panel %q: the legend names %s, which %q does not group by", p.Title, match[1], target.Expr)
				}
				labels = append(labels, match[1])
			}
			labels = slices.DeleteFunc(labels, func(label string) bool { return label == "pod" })
			for _, of := range found.selectors {
				if missing := all.missing(of); missing != "" {
					t.Errorf("panel %q: %s", p.Title, missing)
				}
				for _, label := range labels {
					if !slices.ContainsFunc(all[of.metric], func(has map[string]string) bool { return has[label] != "" }) {
						t.Errorf("panel %q: %s has no label %s", p.Title, of.metric, label)
					}
				}
			}
		}
	}
	if queries == 0 {
		t.Error("the dashboard has no query")
	}
	variable := regexp.MustCompile(`^label_values\((\w+)(?:\{[^}]*\})?, (\w+)\)$`)
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		match := variable.FindStringSubmatch(v.Query)
		if match == nil {
			t.Errorf("variable %s: %q asks for no values of a label", v.Name, v.Query)
			continue
		}
		of := selector{match[1], []matcher{{match[2], "=~", ".*"}}}
		if strings.Contains(ofTarget, match[2]+"=~") {
			of.matchers = nil
		}
		if missing := all.missing(of); missing != "" {
			t.Errorf("variable %s: %s", v.Name, missing)
		}
	}
	deployedSeries(t, all)
}

var (
	seriesName   = regexp.MustCompile(`\b(?:nv|nereid)_\w+`)
	adaptersName = regexp.MustCompile(`\bas: (\w+)`)
	groupedBy    = regexp.MustCompile(`\bby \(([\w, ]+)\) \((?:\w+\()*((?:nv|nereid)_\w+)`)
)

// deployedSeries checks the metrics and grouping labels in the chart's alerts, rules and queries,
// and in the examples for KServe.
func deployedSeries(t *testing.T, all sampled) {
	t.Helper()
	own := map[string]bool{} // metrics that the adapter creates
	for _, file := range []string{"helm/nereid/files/adapter-rules.yaml", "helm/nereid/files/alerts.yaml", "helm/nereid/templates/_helpers.tpl", "helm/nereid/templates/hpa.yaml", "helm/nereid/values.yaml", "kserve/inferenceservice.yaml"} {
		content, err := os.ReadFile("../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range adaptersName.FindAllSubmatch(content, -1) {
			own[string(match[1])] = true
		}
		names := seriesName.FindAllString(string(content), -1)
		if len(names) == 0 {
			t.Errorf("%s names no series", file)
		}
		for _, name := range names {
			if !own[name] && all[name] == nil {
				t.Errorf("%s: no metric %s", file, name)
			}
		}
		for _, match := range groupedBy.FindAllStringSubmatch(string(content), -1) {
			for label := range strings.SplitSeq(match[1], ", ") {
				if !strings.Contains(ofTarget, label+"=~") && !slices.ContainsFunc(all[match[2]], func(has map[string]string) bool { return has[label] != "" }) {
					t.Errorf("%s: %s has no label %s", file, match[2], label)
				}
			}
		}
	}
}

// TestDashboardPanelsDoNotOverlap checks that the panels fit Grafana's grid and do not overlap.
func TestDashboardPanelsDoNotOverlap(t *testing.T) {
	text, err := os.ReadFile("../docs/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	ids := make(map[int]bool)
	for i, a := range board.Panels {
		if ids[a.ID] || a.GridPos.X+a.GridPos.W > 24 || a.GridPos.W < 1 || a.GridPos.H < 1 {
			t.Errorf("panel %q: number %d at %+v is taken or lies beside the grid", a.Title, a.ID, a.GridPos)
		}
		ids[a.ID] = true
		for _, b := range board.Panels[i+1:] {
			if x, y := a.GridPos, b.GridPos; x.X < y.X+y.W && y.X < x.X+x.W && x.Y < y.Y+y.H && y.Y < x.Y+x.H {
				t.Errorf("panels %q and %q overlap", a.Title, b.Title)
			}
		}
	}
}
