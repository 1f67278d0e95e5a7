package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const chart = "../../../deploy/helm/nereid/values.yaml"

// complaints judges parameters by runs of three models, up to the first complaint that contains a text: pods that come and go under a
// steady load, waits that do not end, pods that stay when they are not needed, requests that are lost.
func complaints(p Params, until string) (all []string) {
	p.Ignore = 1200
	for _, m := range []Model{{4, 0.8, false}, {2, 1, true}, {8, 2, false}} {
		p.Model = m
		found := false
		say := func(format string, arguments ...any) {
			all = append(all, fmt.Sprintf("%d instances of %v s (random: %v): ", m.Instances, m.Seconds, m.Random)+fmt.Sprintf(format, arguments...))
			found = found || strings.Contains(all[len(all)-1], until)
		}
		for _, pods := range []float64{0.9, 1.5, 2.4} {
			p.Seconds = 5400
			r := simulate(p, steady(pods*m.capacity()))
			if r.Turns() > 3 {
				say("%d turns in 70 minutes of %v pods' load", r.Turns(), pods)
			}
			// A pod more than what is needed at a share of 0.7, and one for noise.
			if most := pods/0.7 + 2; r.PodSeconds/(p.Seconds-p.Ignore) > most {
				say("%.1f pods on average for %v pods' load", r.PodSeconds/(p.Seconds-p.Ignore), pods)
			}
			if r.P99 > 15*m.Seconds {
				say("99 of 100 requests wait up to %.1f s under %v pods' load", r.P99, pods)
			}
			if r.Lost > 0 {
				say("%d requests lost under %v pods' load", r.Lost, pods)
			}
			if found {
				return all
			}
		}
		p.Seconds = 6000
		r := simulate(p, burst(0.4*m.capacity(), 2.5*m.capacity(), 1500, 2700))
		if r.Most < 3 {
			say("at most %d pods for the load of 2.5", r.Most)
		}
		if r.Longest > 150 {
			say("a wait of %.0f s after a step to 2.5 pods' load", r.Longest)
		}
		if !slices.ContainsFunc(r.Changes, func(c Change) bool { return c.To == 1 && c.At > 2700 && c.At <= 2700+900 }) {
			say("the load is small again for 15 minutes, and pods are %v", r.Changes)
		}
		if r.Lost > 0 {
			say("%d requests lost", r.Lost)
		}
		if found {
			return all
		}
	}
	return all
}

// TestChartsDefaultsScale judges the defaults of the chart, for pods that start in a minute.
func TestChartsDefaultsScale(t *testing.T) {
	v, err := readChart(chart)
	if err != nil {
		t.Fatal(err)
	}
	for _, keda := range []bool{false, true} {
		p, err := v.params(keda, Model{}, 60)
		if err != nil {
			t.Fatal(err)
		}
		if said := complaints(p, ""); len(said) > 0 {
			t.Errorf("KEDA: %v: with the chart's defaults there are\n%s", keda, strings.Join(said, "\n"))
		}
	}
}

// TestBadValuesAreFound: the judge finds what is wrong with other values.
func TestBadValuesAreFound(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*chartValues)
		want   string
	}{
		{"requests that wait alone", func(v *chartValues) { v.Autoscaling.HPA.BusyShare = "" }, "turns"},
		{"no window for going down", func(v *chartValues) {
			none := 0.0
			v.Autoscaling.HPA.BusyShare, v.Autoscaling.HPA.Behavior.ScaleDown.StabilizationWindowSeconds = "", &none
		}, "turns"},
		{"targets that are never reached", func(v *chartValues) {
			v.Autoscaling.HPA.BusyShare, v.Autoscaling.HPA.AverageValue = "7", "1000000"
		}, "at most 1 pods"},
		{"instances that shall be idle", func(v *chartValues) { v.Autoscaling.HPA.BusyShare = "50m" }, "pods on average"},
		{"a window of an hour", func(v *chartValues) {
			hour := 3600.0
			v.Autoscaling.HPA.Behavior.ScaleDown.StabilizationWindowSeconds = &hour
		}, "small again"},
		{"pods that go at once", func(v *chartValues) { v.Server.ExitDelaySeconds, v.Server.ExitTimeoutSeconds = 0, 0 }, "lost"},
	} {
		v, err := readChart(chart)
		if err != nil {
			t.Fatal(err)
		}
		test.change(&v)
		p, err := v.params(false, Model{}, 60)
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(complaints(p, test.want), "\n"); !strings.Contains(said, test.want) {
			t.Errorf("%s: got complaints\n%s\nwant one with %q", test.name, said, test.want)
		}
	}
}

// TestReportHasARowForEachLoad with the chart's values.
func TestReportHasARowForEachLoad(t *testing.T) {
	v, err := readChart(chart)
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.params(false, Model{4, 1, false}, 60)
	if err != nil {
		t.Fatal(err)
	}
	scenarios := loads(p.Model.capacity())
	var out strings.Builder
	if err := show(&out, p, scenarios); err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		if !strings.Contains(out.String(), "| "+s.what+" | ") {
			t.Errorf("no row of %q in\n%s", s.what, out.String())
		}
	}
}

// TestScalePageHasTheSimulation: the tables of docs/scale.md are what the program prints, and its parameters are the chart's.
func TestScalePageHasTheSimulation(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("elsewhere sums may be rounded otherwise, and so are random times")
	}
	page, err := os.ReadFile("../../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for line := range strings.Lines(string(page)) {
		rows[strings.TrimSpace(line)]++
	}
	v, err := readChart(chart)
	if err != nil {
		t.Fatal(err)
	}
	hpa, keda := &v.Autoscaling.HPA, v.Autoscaling.KEDA
	up, down := hpa.Behavior.ScaleUp, hpa.Behavior.ScaleDown
	if hpa.AverageValue != keda.Threshold || hpa.BusyShare != keda.BusyShare || hpa.MinReplicas != keda.MinReplicas || hpa.MaxReplicas != keda.MaxReplicas ||
		len(up.Policies) != 2 || up.Policies[0].PeriodSeconds != up.Policies[1].PeriodSeconds || up.Policies[0].Value != 100 || *up.StabilizationWindowSeconds != 0 {
		t.Errorf("the page has one row for what the chart's hpa and keda say, %+v and %+v", *hpa, keda)
	}
	for _, row := range []string{
		fmt.Sprintf("| requests that wait, for each pod | %s | `hpa.averageValue`, `keda.threshold` |", hpa.AverageValue),
		fmt.Sprintf("| share of time that instances are busy | %s | `hpa.busyShare`, `keda.busyShare` |", hpa.BusyShare),
		fmt.Sprintf("| going up | at once; doubled, or %v more, each %v s | `hpa.behavior.scaleUp` |", up.Policies[1].Value, up.Policies[1].PeriodSeconds),
		fmt.Sprintf("| going down | after %v s in which no larger number was asked for | `hpa.behavior.scaleDown` |", *down.StabilizationWindowSeconds),
		fmt.Sprintf("| pods | %d to %d | `minReplicas`, `maxReplicas` |", hpa.MinReplicas, hpa.MaxReplicas),
		fmt.Sprintf("| scrape, HPA's sync, tolerance | %s, %v s, a tenth | `podMonitor.interval`; Kubernetes |", strings.Replace(v.PodMonitor.Interval, "s", " s", 1), syncPeriod),
		fmt.Sprintf("| drain | %v s of service, then up to %v s | `exitDelaySeconds`, `exitTimeoutSeconds` |", v.Server.ExitDelaySeconds, v.Server.ExitTimeoutSeconds),
	} {
		if rows[row] != 1 {
			t.Errorf("the page lacks %s", row)
		}
	}
	for busy, shown := range map[string]int{hpa.BusyShare: 8, "": 4} {
		hpa.BusyShare = busy
		p, err := v.params(false, Model{4, 0.2, false}, 60) // as by the flags' defaults
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := show(&out, p, loads(p.Model.capacity())[:shown]); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if rows[strings.TrimSpace(line)] == 0 {
				t.Errorf("with a share of %q the page lacks %s", busy, line)
			}
		}
	}
}

func TestQuantities(t *testing.T) {
	for text, want := range map[string]float64{"4": 4, "0.7": 0.7, "700m": 0.7} {
		if got, err := quantity(text); err != nil || got != want {
			t.Errorf("quantity(%q): got %v and %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "0", "-1"} {
		if got, err := quantity(text); err == nil {
			t.Errorf("quantity(%q): got %v, want an error", text, got)
		}
	}
}
