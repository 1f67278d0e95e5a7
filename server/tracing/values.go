package tracing

import (
	"github.com/nereid-serving/nereid/infer"
)

// Mode is the destination of traces.
type Mode string

// The modes, as clients and flags name them.
const (
	Triton        Mode = "triton"        // to a file
	OpenTelemetry Mode = "opentelemetry" // to a collector
)

// Level is a set of kinds of entries to record.
type Level uint8

// The levels. Off records nothing.
const (
	Off        Level = 0
	Timestamps Level = 1
	Tensors    Level = 2
)

// ParseLevel returns the level of a name, and whether it exists.
func ParseLevel(name string) (Level, bool) {
	switch name {
	case "OFF":
		return Off, true
	case "TIMESTAMPS":
		return Timestamps, true
	case "TENSORS":
		return Tensors, true
	}
	return Off, false
}

// Names returns the levels of the set, as clients see them.
func (l Level) Names() []string {
	if l == Off {
		return []string{"OFF"}
	}
	var names []string
	if l&Timestamps != 0 {
		names = append(names, "TIMESTAMPS")
	}
	if l&Tensors != 0 {
		names = append(names, "TENSORS")
	}
	return names
}

// values are the values of a setting; count is the number of remaining traces.
type values struct {
	level     Level
	rate      uint32 // every rate-th request; 0: only requests with a trace context
	count     int32  // below 0: no limit
	frequency uint32 // traces in each indexed file; 0: one file
}

// Update is a change of one value.
type Update[T any] struct {
	Given bool
	Clear bool // the value falls back to the global one or the one at startup
	Value T
}

// Change has a client's changes of settings.
type Change struct {
	Level     Update[Level]
	Rate      Update[uint32]
	Count     Update[int32]
	Frequency Update[uint32]
}

// overrides has the values that do not fall back; nil if they do.
type overrides struct {
	level     *Level
	rate      *uint32
	count     *int32
	frequency *uint32
}

func (o overrides) changed(c *Change) overrides {
	apply(&o.level, c.Level)
	apply(&o.rate, c.Rate)
	apply(&o.count, c.Count)
	apply(&o.frequency, c.Frequency)
	return o
}

func apply[T any](to **T, u Update[T]) {
	switch {
	case u.Given && u.Clear:
		*to = nil
	case u.Given:
		*to = &u.Value
	}
}

// over returns the values in force, given the fallback.
func (o overrides) over(fallback values) values {
	v := fallback
	set(&v.level, o.level)
	set(&v.rate, o.rate)
	set(&v.count, o.count)
	set(&v.frequency, o.frequency)
	return v
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// refuse returns the reason why a setting with these values would trace nothing although its level
// is not off. As in Triton there is no reason if the count is used up.
func (t *Tracer) refuse(v values) error {
	reason := ""
	switch {
	case v.level == Off:
		return nil
	case v.rate == 0:
		reason = "sample rate must be non-zero"
	case t.config.Mode == Triton && t.path == "":
		reason = "trace file name is not given"
	case v.count != 0:
		return nil
	}
	return infer.Errorf(infer.InvalidArg, "Attempting to set invalid trace setting :%s", reason)
}
