package metrics

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Figures are the totals of a version since its load, over all GPUs.
type Figures struct {
	Model, Namespace string
	Version          int64
	Succeeded        int64
	Failed           map[string]int64 // by the label of the reason, if above 0; bound: the reasons
	Inferences       int64
	Executions       int64
	Pending          int64 // requests without an instance
	Load             time.Duration
	CacheHits        int64
	CacheMisses      int64
	Stages           *Stages // nil without histograms of stages
}

// Stages are the histograms of a version, in the order of Durations.
type Stages [len(stages)]Times

// Times counts durations by the buckets of StageBounds; the last count is above all of them.
type Times struct {
	Counts [len(stageBounds) + 1]uint64
	Sum    time.Duration
}

// StageBounds returns the upper bounds of the buckets of stages, ascending.
func StageBounds() []time.Duration {
	bounds := make([]time.Duration, len(stageBounds))
	for i, ns := range stageBounds {
		bounds[i] = time.Duration(ns)
	}
	return bounds
}

// Figures returns the figures of all versions, by namespace, model and version. Versions that
// differ only in their tags are added up. It takes no lock that counting takes.
//
// bound: the versions and their GPUs
func (r *Registry) Figures() []Figures {
	r.mu.Lock()
	var models []*Model
	for _, m := range r.models {
		models = append(models, m)
		for _, g := range m.gpus {
			models = append(models, g)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(models, func(a, b *Model) int {
		return cmp.Or(strings.Compare(a.key.namespace, b.key.namespace), strings.Compare(a.key.name, b.key.name), cmp.Compare(a.key.version, b.key.version))
	})
	var list []Figures
	for _, m := range models {
		n := len(list) - 1
		if n < 0 || list[n].Model != m.key.name || list[n].Namespace != m.key.namespace || list[n].Version != m.key.version {
			list = append(list, Figures{Model: m.key.name, Namespace: m.key.namespace, Version: m.key.version})
			n++
		}
		m.addTo(&list[n])
	}
	return list
}

func (m *Model) addTo(f *Figures) {
	f.Succeeded += m.success.Load()
	for i, label := range reasonLabels {
		if n := m.failures[i].Load(); n > 0 {
			if f.Failed == nil {
				f.Failed = make(map[string]int64)
			}
			f.Failed[label] += n
		}
	}
	f.Inferences += m.inferences.Load()
	f.Executions += m.executions.Load()
	f.Pending += m.pending.Load()
	f.Load = max(f.Load, time.Duration(m.loadNanos.Load()))
	if c := m.cache.Load(); c != nil && !m.onGPU { // a GPU shares that of its version
		f.CacheHits += c.hits.Load()
		f.CacheMisses += c.misses.Load()
	}
	if m.stages == nil {
		return
	}
	if f.Stages == nil {
		f.Stages = new(Stages)
	}
	for i := range m.stages {
		for k := range m.stages[i].counts {
			f.Stages[i].Counts[k] += m.stages[i].counts[k].Load()
		}
		f.Stages[i].Sum += time.Duration(m.stages[i].ns.Load())
	}
}
