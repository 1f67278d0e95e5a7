package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// chartValues are those of deploy/helm/nereid/values.yaml that the loop depends on.
type chartValues struct {
	Server struct {
		ExitDelaySeconds   float64 `yaml:"exitDelaySeconds"`
		ExitTimeoutSeconds float64 `yaml:"exitTimeoutSeconds"`
	}
	PodMonitor  struct{ Interval string } `yaml:"podMonitor"`
	Autoscaling struct {
		HPA struct {
			MinReplicas  int    `yaml:"minReplicas"`
			MaxReplicas  int    `yaml:"maxReplicas"`
			Metric       string `yaml:"metric"`
			AverageValue string `yaml:"averageValue"`
			BusyShare    string `yaml:"busyShare"`
			Behavior     struct {
				ScaleUp   chartRules `yaml:"scaleUp"`
				ScaleDown chartRules `yaml:"scaleDown"`
			}
		}
		KEDA struct {
			MinReplicas     int     `yaml:"minReplicas"`
			MaxReplicas     int     `yaml:"maxReplicas"`
			PollingInterval float64 `yaml:"pollingInterval"`
			CooldownPeriod  float64 `yaml:"cooldownPeriod"`
			Threshold       string  `yaml:"threshold"`
			BusyShare       string  `yaml:"busyShare"`
		}
	}
}

// chartRules are what may be left out of a behavior.
type chartRules struct {
	StabilizationWindowSeconds *float64 `yaml:"stabilizationWindowSeconds"`
	Policies                   []struct {
		Type          string  `yaml:"type"`
		Value         float64 `yaml:"value"`
		PeriodSeconds float64 `yaml:"periodSeconds"`
	}
}

func (r chartRules) or(rules Rules) Rules {
	if r.StabilizationWindowSeconds != nil {
		rules.StabilizationWindowSeconds = *r.StabilizationWindowSeconds
	}
	if len(r.Policies) > 0 {
		rules.Policies = nil
		for _, p := range r.Policies {
			rules.Policies = append(rules.Policies, Policy(p))
		}
	}
	return rules
}

// readChart reads the values of a chart.
func readChart(path string) (v chartValues, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	if err := yaml.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	if v.Autoscaling.HPA.Metric != "nv_inference_pending_request_count" {
		return v, fmt.Errorf("%s: autoscaling.hpa.metric is %q, want nv_inference_pending_request_count: the simulation has no other", path, v.Autoscaling.HPA.Metric)
	}
	return v, nil
}

// quantity reads a number of Kubernetes: 4, 0.7, 700m.
func quantity(text string) (float64, error) {
	digits, thousandths := strings.CutSuffix(text, "m")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is no positive quantity", text)
	}
	if thousandths {
		n /= 1000
	}
	return n, nil
}

// params makes the parameters of a run: the chart's, by its HPA or by KEDA's, for a model, with pods that take so long to be ready.
func (v chartValues) params(keda bool, model Model, start float64) (p Params, err error) {
	h, k := v.Autoscaling.HPA, v.Autoscaling.KEDA
	pending, busy := h.AverageValue, h.BusyShare
	p = Params{
		Model: model, Start: start, Window: 120, Unlisted: 2, ExitDelay: v.Server.ExitDelaySeconds, Grace: v.Server.ExitTimeoutSeconds,
		Pods: 1, Seconds: 3600, Seed: 1,
		HPA: HPA{Min: h.MinReplicas, Max: h.MaxReplicas, ScaleUp: h.Behavior.ScaleUp.or(defaultUp()), ScaleDown: h.Behavior.ScaleDown.or(defaultDown())},
	}
	if keda {
		p.HPA.Min, p.HPA.Max = max(1, k.MinReplicas), k.MaxReplicas
		p.KEDA = &KEDA{k.PollingInterval, k.CooldownPeriod, k.MinReplicas == 0}
		pending, busy = k.Threshold, k.BusyShare
	}
	for _, t := range []struct {
		signal Signal
		value  string
	}{{Pending, pending}, {Busy, busy}} {
		if t.value == "" {
			continue
		}
		value, err := quantity(t.value)
		if err != nil {
			return p, fmt.Errorf("target of %v: %w", t.signal, err)
		}
		p.HPA.Targets = append(p.HPA.Targets, Target{t.signal, value, keda})
	}
	seconds, ok := strings.CutSuffix(v.PodMonitor.Interval, "s")
	if p.Scrape, err = strconv.ParseFloat(seconds, 64); err != nil || !ok {
		return p, fmt.Errorf("podMonitor.interval is %q, want seconds, such as 15s", v.PodMonitor.Interval)
	}
	return p, nil
}
