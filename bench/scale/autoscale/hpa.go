package main

import (
	"math"
	"slices"
)

// HPA is what a HorizontalPodAutoscaler has in its spec.
type HPA struct {
	Min, Max  int
	Targets   []Target
	ScaleUp   Rules
	ScaleDown Rules
}

// Target is a metric and what it should be on average over the pods.
type Target struct {
	Signal Signal
	Value  float64
	// Sum says that the metric comes as one number for all pods, as KEDA's does, and not for each.
	Sum bool
}

// Rules are behavior.scaleUp or behavior.scaleDown.
type Rules struct {
	StabilizationWindowSeconds float64
	Policies                   []Policy
}

// Policy is how much may change within a period.
type Policy struct {
	Type          string // Pods or Percent
	Value         float64
	PeriodSeconds float64
}

// Kubernetes' own defaults.
const (
	tolerance  = 0.1
	syncPeriod = 15
)

// defaultUp and defaultDown are the rules where the spec has none.
func defaultUp() Rules {
	return Rules{0, []Policy{{"Percent", 100, 15}, {"Pods", 4, 15}}}
}

func defaultDown() Rules {
	return Rules{300, []Policy{{"Percent", 100, 15}}}
}

// reading is what is known of a pod's metric.
type reading struct {
	value float64
	known bool
}

// wanted returns how many pods a metric asks for, as the autoscaler of Kubernetes computes it: pods without a sample count as idle when
// there are too few pods, and as on target when there are too many.
func (t Target) wanted(current int, pods []reading) int {
	sum, known := 0.0, 0
	for _, p := range pods {
		if p.known {
			sum += p.value
			known++
		}
	}
	if t.Sum {
		if current == 0 {
			return int(math.Ceil(sum / t.Value))
		}
		if near(sum / (t.Value * float64(current))) {
			return current
		}
		return int(math.Ceil(sum / t.Value))
	}
	if known == 0 {
		return current // no metric: nothing is changed
	}
	ratio := sum / float64(known) / t.Value
	missing := len(pods) - known
	if missing == 0 {
		if near(ratio) {
			return current
		}
		return int(math.Ceil(ratio * float64(known)))
	}
	if ratio < 1 {
		sum += float64(missing) * t.Value
	}
	adjusted := sum / float64(len(pods)) / t.Value
	if near(adjusted) || ratio < 1 && adjusted > 1 || ratio > 1 && adjusted < 1 {
		return current
	}
	wanted := int(math.Ceil(adjusted * float64(len(pods))))
	if adjusted < 1 && wanted > current || adjusted > 1 && wanted < current {
		return current
	}
	return wanted
}

func near(ratio float64) bool { return math.Abs(ratio-1) <= tolerance }

// controller is an HPA at work.
type controller struct {
	HPA
	recommended []dated // what metrics asked for
	changed     []dated // by how many pods it scaled
}

type dated struct {
	at float64
	n  int
}

// decide returns how many pods there shall be.
func (c *controller) decide(now float64, current int, pods func(Signal) []reading) int {
	wanted := 0
	for _, t := range c.Targets {
		wanted = max(wanted, t.wanted(current, pods(t.Signal)))
	}
	c.recommended = append(c.recommended, dated{now, wanted})
	result := c.limit(now, current, c.stabilize(now, current))
	if result != current {
		c.changed = append(c.changed, dated{now, result - current})
	}
	return result
}

// stabilize takes the smallest recommendation of the window for going up, and the largest one for going down.
func (c *controller) stabilize(now float64, current int) int {
	last := c.recommended[len(c.recommended)-1].n
	up, down := last, last
	longest := max(c.ScaleUp.StabilizationWindowSeconds, c.ScaleDown.StabilizationWindowSeconds)
	c.recommended = slices.DeleteFunc(c.recommended, func(d dated) bool { return d.at < now-longest })
	for _, d := range c.recommended {
		if d.at > now-c.ScaleUp.StabilizationWindowSeconds {
			up = min(up, d.n)
		}
		if d.at > now-c.ScaleDown.StabilizationWindowSeconds {
			down = max(down, d.n)
		}
	}
	return min(max(current, up), down)
}

// limit applies the policies, of which the one that allows most counts, and the bounds.
func (c *controller) limit(now float64, current, wanted int) int {
	switch {
	case wanted > current:
		most := math.Inf(-1)
		for _, p := range c.ScaleUp.Policies {
			start := c.startOf(now, p.PeriodSeconds, current)
			if p.Type == "Pods" {
				most = max(most, start+p.Value)
			} else {
				most = max(most, math.Ceil(start*(1+p.Value/100)))
			}
		}
		return min(wanted, max(int(most), current), max(c.Max, c.Min))
	case wanted < current:
		least := math.Inf(1)
		for _, p := range c.ScaleDown.Policies {
			start := c.startOf(now, p.PeriodSeconds, current)
			if p.Type == "Pods" {
				least = min(least, start-p.Value)
			} else {
				least = min(least, math.Floor(start*(1-p.Value/100)))
			}
		}
		return max(wanted, min(int(least), current), c.Min)
	}
	return current
}

// startOf returns how many pods there were a period ago, but for changes that others made.
func (c *controller) startOf(now, period float64, current int) float64 {
	for _, d := range c.changed {
		if d.at > now-period {
			current -= d.n
		}
	}
	return float64(current)
}
