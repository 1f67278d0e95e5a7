package metrics

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/metrics/exposition"
)

// Kind is the kind of a custom metric, numbered as in pb_utils.MetricKind. It is an alias, as
// Operation is, so that the SDK describes a Holder without importing this package.
type Kind = int

// The kinds of custom metrics.
const (
	Counter   Kind = 0
	Gauge     Kind = 1
	Histogram Kind = 2
)

// Operation is a change of a custom metric. The numbers cross the wire.
type Operation = uint32

// The operations on custom metrics.
const (
	Increment Operation = 1
	Set       Operation = 2
	Observe   Operation = 3
)

// Limits of one custom family and metric. Config limits the number of series.
const (
	maxCustomName        = 1 << 10  // bytes of a family's name
	maxCustomDescription = 64 << 10 // bytes
	maxCustomLabels      = 64       // of a metric
	maxCustomLabel       = 8 << 10  // bytes of a label's name, and of its value
	maxCustomBuckets     = 1 << 10  // of a histogram
)

// Default limits of the number of custom series.
const (
	DefaultModelSeries = 10_000
	DefaultSeries      = 100_000
)

// DefaultModelBytes is the default limit of the names, descriptions, labels and buckets of one
// model's custom metrics.
const DefaultModelBytes = 32 << 20

// maxCustomBytes limits the same of all models together, unless one alone may have more. Unloaded
// models leave theirs.
const maxCustomBytes = 128 << 20

// ErrMisuse is the error for a request that a stub's own classes never send.
var ErrMisuse = errors.New("custom metrics are misused")

func misuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMisuse}, args...)...) // bound: the arguments
}

// custom contains the families of models.
type custom struct {
	off           bool
	perModel, all int             // series
	modelBytes    int             // of one model
	reserved      map[string]bool // bound: the server's own names

	mu       sync.Mutex
	families map[string]*customFamily // bound: maxCustomBytes
	accounts map[string]*account      // by the model's name; bound: the loaded models, and maxCustomBytes
	series   int                      // total cost
	bytes    int                      // of all accounts
}

// customFamily is a family that a MetricFamily object refers to, or that an unloaded model has
// left.
type customFamily struct {
	name, description string
	kind              Kind
	refs              int
	series            map[string]*series // by their labels; bound: custom.all
}

// account is the total of all lives of one model.
type account struct {
	model      string
	cost       int // series
	bytes      int
	lives      int
	series     map[*series]int        // number of holds; bound: perModel
	families   map[*customFamily]int  // bound: modelBytes
	kept       map[*series]bool       // left by an unloaded model; bound: custom.perModel
	keptFamily map[*customFamily]bool // bound: custom.modelBytes
}

// Holder holds the custom metrics of one life of a stub, by increasing numbers that the stub
// chooses. Its methods are not for concurrent use; different holders are.
//
// A series is shown while an instance holds it. Instances that create equal families and labels
// share it.
type Holder struct {
	custom   *custom
	account  *account
	families map[uint64]*heldFamily // bound: custom.perModel
	metrics  map[uint64]*series     // bound: twice custom.perModel
	newest   uint64                 // the highest number of a metric
	ended    bool
}

type heldFamily struct {
	*customFamily
	metrics []uint64 // bound: Holder.metrics
}

// Custom returns a Holder for a new life of a model's stub.
func (r *Registry) Custom(model string) *Holder {
	c := r.custom
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.accounts[model]
	if a == nil {
		a = &account{
			model: model, series: make(map[*series]int), families: make(map[*customFamily]int),
			kept: make(map[*series]bool), keptFamily: make(map[*customFamily]bool),
		}
		c.accounts[model] = a
	}
	a.lives++
	return &Holder{custom: c, account: a, families: make(map[uint64]*heldFamily), metrics: make(map[uint64]*series)}
}

// Refusal is the error that a model gets for a family or a metric; it is Triton's text if there is
// one.
type Refusal struct{ Text string }

func (e *Refusal) Error() string { return e.Text }

func refused(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// NewFamily creates a family, or refers to an existing one, which keeps its description. The error
// is a *Refusal or ErrMisuse.
func (h *Holder) NewFamily(number uint64, name, description string, kind Kind) error {
	c, a := h.custom, h.account
	switch {
	case kind < Counter || kind > Histogram:
		return misuse("kind %d", kind)
	case h.families[number] != nil:
		return misuse("family %d exists", number)
	case c.off:
		return refused("metrics not supported")
	case len(name) > maxCustomName || len(description) > maxCustomDescription:
		return refused("the name of a metric family has %d bytes and its description %d, at most %d and %d are allowed",
			len(name), len(description), maxCustomName, maxCustomDescription)
	case !validWord(name, true):
		return refused("Invalid metric name")
	case !utf8.ValidString(description):
		return misuse("description is not UTF-8")
	case c.reserved[name]:
		return refused("Family name already exists: '%s' is a metric of the server itself", name)
	case len(h.families) >= c.perModel:
		return refused("%s", a.limit(len(h.families), "metric families in one process", c.perModel))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makeRoomLocked(0, (&customFamily{name: name, description: description}).bytes())
	f := c.families[name]
	if f != nil && f.kind != kind {
		return refused("Family name already exists with different type")
	}
	if f == nil {
		f = &customFamily{name: name, description: description, kind: kind, series: make(map[string]*series)}
	}
	if a.families[f] == 0 {
		if err := a.take(0, f.bytes(), c); err != nil {
			return err
		}
	}
	c.families[name] = f
	f.refs++
	a.families[f]++
	h.families[number] = &heldFamily{customFamily: f}
	return nil
}

// NewMetric creates a metric of a family, or refers to the series with these labels. Labels are
// pairs of name and value with distinct names. Only histograms have buckets, given by their upper
// bounds. Errors are those of NewFamily.
func (h *Holder) NewMetric(family, number uint64, labels [][2]string, buckets []float64) error {
	c, a := h.custom, h.account
	f := h.families[family]
	switch {
	case f == nil:
		return misuse("family %d is unknown", family)
	case h.metrics[number] != nil || number == 0:
		return misuse("metric %d exists", number)
	case f.kind != Histogram && len(buckets) > 0:
		return misuse("metric of kind %d has buckets", f.kind)
	case len(labels) > maxCustomLabels:
		return refused("a metric has %d labels, at most %d are allowed", len(labels), maxCustomLabels)
	}
	labels = slices.Clone(labels) // bound: maxCustomLabels
	if err := checkLabels(f.kind, labels); err != nil {
		return err
	}
	if err := checkBuckets(buckets); err != nil {
		return err
	}
	text := exposition.Labels(labels...)

	c.mu.Lock()
	defer c.mu.Unlock()
	another := newSeries(f.customFamily, text, buckets)
	c.makeRoomLocked(another.cost(), another.bytes())
	s := f.series[text]
	fresh := s == nil
	if fresh {
		s = another
		if c.series+s.cost() > c.all {
			return refused("custom metrics of all models have %d series, %d more would be beyond the limit (--metrics-config=custom_series=%d)",
				c.series, s.cost(), c.all)
		}
	}
	if a.series[s] == 0 {
		if err := a.take(s.cost(), s.bytes(), c); err != nil {
			return err
		}
	} else if len(h.metrics) >= c.perModel {
		return refused("%s", a.limit(len(h.metrics), "metrics in one process", c.perModel))
	}
	if fresh {
		c.series += s.cost()
		f.series[text] = s
	}
	s.refs++
	a.series[s]++
	h.metrics[number] = s
	h.newest = max(h.newest, number)
	f.metrics = append(f.metrics, number)
	return nil
}

// DropFamily ends a family object and all its metrics. An unknown family is ErrMisuse.
func (h *Holder) DropFamily(number uint64) error {
	f := h.families[number]
	if f == nil {
		return misuse("family %d is unknown", number)
	}
	delete(h.families, number)
	c := h.custom
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, metric := range f.metrics {
		c.releaseLocked(h.account, h.metrics[metric])
		delete(h.metrics, metric)
	}
	c.releaseFamilyLocked(h.account, f.customFamily)
	return nil
}

// Apply changes a metric. Operations that its kind does not allow, and numbers that were never
// used, are ErrMisuse. A dropped metric is ignored: another thread of the model may not know about
// the drop.
func (h *Holder) Apply(number uint64, operation Operation, value float64) error {
	s := h.metrics[number]
	if s == nil {
		if number == 0 || number > h.newest {
			return misuse("metric %d is unknown", number)
		}
		return nil
	}
	if !s.apply(operation, value) {
		return misuse("operation %d with %v on a metric of kind %d", operation, value, s.family.kind)
	}
	return nil
}

// Value returns the value of a counter or a gauge. known is false for a dropped metric.
func (h *Holder) Value(number uint64) (value float64, known bool, err error) {
	s := h.metrics[number]
	switch {
	case s == nil && (number == 0 || number > h.newest):
		return 0, false, misuse("metric %d is unknown", number)
	case s == nil:
		return 0, false, nil
	case s.family.kind == Histogram:
		return 0, false, misuse("value of histogram %d", number)
	}
	return s.value(), true, nil
}

// End ends the life. After a regular unload, series that were not dropped stay and continue after a
// reload, as in Triton. Otherwise they are removed, unless others hold them too. A second call has
// no effect.
func (h *Holder) End(keep bool) {
	c, a := h.custom, h.account
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	for _, s := range h.metrics {
		if keep && !a.kept[s] {
			a.kept[s] = true
			continue
		}
		c.releaseLocked(a, s)
	}
	for _, f := range h.families {
		if keep && !a.keptFamily[f.customFamily] {
			a.keptFamily[f.customFamily] = true
			continue
		}
		c.releaseFamilyLocked(a, f.customFamily)
	}
	h.metrics, h.families = nil, nil
	if a.lives--; a.lives == 0 && len(a.families) == 0 {
		delete(c.accounts, a.model)
	}
}

// mostBytes returns the limit of bytes.
func (c *custom) mostBytes() int { return max(maxCustomBytes, c.modelBytes) }

// makeRoomLocked removes the metrics that unloaded models have left if there is no room for more.
func (c *custom) makeRoomLocked(cost, bytes int) {
	if c.series+cost <= c.all && c.bytes+bytes <= c.mostBytes() {
		return
	}
	for model, a := range c.accounts {
		if a.lives > 0 {
			continue
		}
		for s := range a.kept {
			c.releaseLocked(a, s)
		}
		for f := range a.keptFamily {
			c.releaseFamilyLocked(a, f)
		}
		delete(c.accounts, model)
	}
}

func (c *custom) releaseLocked(a *account, s *series) {
	if a.series[s]--; a.series[s] == 0 {
		delete(a.series, s)
		a.cost -= s.cost()
		a.bytes -= s.bytes()
		c.bytes -= s.bytes()
	}
	if s.refs--; s.refs == 0 {
		delete(s.family.series, s.labels)
		c.series -= s.cost()
	}
}

func (c *custom) releaseFamilyLocked(a *account, f *customFamily) {
	if a.families[f]--; a.families[f] == 0 {
		delete(a.families, f)
		a.bytes -= f.bytes()
		c.bytes -= f.bytes()
	}
	if f.refs--; f.refs == 0 {
		delete(c.families, f.name)
	}
}

// take charges an account for additional cost and bytes. custom.mu is held.
func (a *account) take(cost, bytes int, c *custom) error {
	if a.cost+cost > c.perModel {
		return refused("%s", a.limit(a.cost, "series of custom metrics", c.perModel))
	}
	if most := c.mostBytes(); c.bytes+bytes > most {
		return refused("names, labels and buckets of the custom metrics of all models have %d bytes, %d more would be beyond the limit of %d",
			c.bytes, bytes, most)
	}
	if a.bytes+bytes > c.modelBytes {
		return refused("names, labels and buckets of the custom metrics of model '%s' have %d bytes, %d more would be beyond the limit of %d",
			a.model, a.bytes, bytes, c.modelBytes)
	}
	a.cost += cost
	a.bytes += bytes
	c.bytes += bytes
	return nil
}

func (a *account) limit(found int, what string, most int) string {
	return fmt.Sprintf("model '%s' has %d %s, more would be beyond the limit (--metrics-config=custom_series_per_model=%d)", a.model, found, what, most)
}

// bytes returns the charge for a family.
func (f *customFamily) bytes() int { return len(f.name) + len(f.description) + 256 }

// checkLabels sorts labels and rejects names that Prometheus does not allow.
func checkLabels(kind Kind, labels [][2]string) error {
	slices.SortFunc(labels, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	for i, l := range labels {
		name, value := l[0], l[1]
		switch {
		case len(name) > maxCustomLabel || len(value) > maxCustomLabel:
			return refused("a label of a metric has a name of %d bytes and a value of %d, at most %d are allowed", len(name), len(value), maxCustomLabel)
		case !validWord(name, false), kind == Histogram && name == "le": // the label of the buckets
			return refused("Invalid label name")
		case !utf8.ValidString(value):
			return misuse("value of label %q is not UTF-8", name)
		case i > 0 && name == labels[i-1][0]:
			return misuse("label %q appears twice", name)
		}
	}
	return nil
}

func checkBuckets(buckets []float64) error {
	if len(buckets) > maxCustomBuckets {
		return refused("a histogram has %d buckets, at most %d are allowed", len(buckets), maxCustomBuckets)
	}
	for i, b := range buckets {
		if math.IsNaN(b) || i > 0 && b <= buckets[i-1] {
			return refused("Bucket Boundaries must be strictly sorted")
		}
	}
	return nil
}

// validWord reports whether Prometheus allows a name of a family, or without colons of a label:
// letters, digits and "_", no digit first and no leading "__".
func validWord(name string, colon bool) bool {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == ':' && colon, '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return name != "" && (len(name) < 2 || name[:2] != "__")
}
