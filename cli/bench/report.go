package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nereid-serving/nereid/kserve"
)

// report holds all results, as --json writes them.
type report struct {
	Model        string    `json:"model"`
	Version      string    `json:"version,omitempty"` // the requested version
	Server       string    `json:"server"`
	URL          string    `json:"url"`
	Protocol     string    `json:"protocol"`
	Batch        int64     `json:"batch"`
	SharedMemory string    `json:"shared_memory"`
	Started      time.Time `json:"started"`
	Levels       []*row    `json:"levels"`
}

// row is the result of one level. Times are in microseconds.
type row struct {
	level
	Seconds   float64    `json:"seconds"`
	Requests  uint64     `json:"requests"` // answered without an error
	Responses uint64     `json:"responses"`
	Errors    uint64     `json:"errors"`
	Texts     []string   `json:"error_texts,omitempty"`
	RequestPS float64    `json:"requests_per_second"`
	InferPS   float64    `json:"inferences_per_second"`
	Spread    float64    `json:"spread"` // of the requests per second: half the range, divided by the mean
	Latency   quantiles  `json:"latency_us"`
	First     *quantiles `json:"first_response_us,omitempty"`
	Where     *where     `json:"server_us,omitempty"`
	// Elsewhere is the time outside the server: network and client.
	Elsewhere float64 `json:"elsewhere_us,omitempty"`
}

type quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Most float64 `json:"max"`
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func quantilesOf(h *histogram) quantiles {
	return quantiles{
		micros(h.mean()), micros(h.quantile(.5)), micros(h.quantile(.9)), micros(h.quantile(.95)), micros(h.quantile(.99)),
		micros(h.quantile(.999)), micros(h.most),
	}
}

// where is how the server spent its time, as a mean per request.
type where struct {
	Total      float64 `json:"total"`
	Queue      float64 `json:"queue"`
	Input      float64 `json:"compute_input"`
	Infer      float64 `json:"compute_infer"`
	Output     float64 `json:"compute_output"`
	CacheHit   float64 `json:"cache_hit"`
	CacheMiss  float64 `json:"cache_miss"`
	Executions float64 `json:"executions_per_second"`
	MeanBatch  float64 `json:"inferences_per_execution"`
}

// whereBetween compares statistics of all versions. It returns nil if the server has answered
// nothing meanwhile or its counters were reset.
func whereBetween(before, after []*kserve.ModelStatistics, seconds float64) *where {
	growth := func(of func(*kserve.ModelStatistics) uint64) float64 {
		n := int64(0)
		for _, v := range after {
			n += int64(of(v))
		}
		for _, v := range before {
			n -= int64(of(v))
		}
		return float64(n)
	}
	n := growth(func(v *kserve.ModelStatistics) uint64 { return v.GetInferenceStats().GetSuccess().GetCount() })
	if n <= 0 {
		return nil
	}
	mean := func(of func(*kserve.InferStatistics) *kserve.StatisticDuration) float64 {
		return growth(func(v *kserve.ModelStatistics) uint64 { return of(v.GetInferenceStats()).GetNs() }) / n / 1e3
	}
	executions := growth((*kserve.ModelStatistics).GetExecutionCount)
	w := &where{
		Total: mean((*kserve.InferStatistics).GetSuccess), Queue: mean((*kserve.InferStatistics).GetQueue), Input: mean((*kserve.InferStatistics).GetComputeInput),
		Infer: mean((*kserve.InferStatistics).GetComputeInfer), Output: mean((*kserve.InferStatistics).GetComputeOutput),
		CacheHit: mean((*kserve.InferStatistics).GetCacheHit), CacheMiss: mean((*kserve.InferStatistics).GetCacheMiss), Executions: executions / seconds,
	}
	if executions > 0 {
		w.MeanBatch = growth((*kserve.ModelStatistics).GetInferenceCount) / executions
	}
	return w
}

func rowOf(l level, t *results, seconds float64, batch int64) *row {
	r := &row{
		level: l, Seconds: seconds, Requests: t.requests, Responses: t.responses, Errors: t.errors, Texts: t.texts,
		RequestPS: float64(t.requests) / seconds, InferPS: float64(t.requests) * float64(batch) / seconds,
		Latency: quantilesOf(&t.latency),
	}
	if t.first.total > 0 {
		q := quantilesOf(&t.first)
		r.First = &q
	}
	if whole := int(seconds); whole > 1 && whole <= len(t.perSecond) {
		least, most := t.perSecond[0], t.perSecond[0]
		for _, n := range t.perSecond[:whole] {
			least, most = min(least, n), max(most, n)
		}
		r.Spread = float64(most-least) / 2 / r.RequestPS
	}
	return r
}

// write shows the results as a table, and for each level how the time was spent.
func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "%s at %s (%s) over %s", r.Model, r.URL, r.Server, r.Protocol)
	if r.Batch > 1 {
		fmt.Fprintf(w, ", batches of %d", r.Batch)
	}
	if r.SharedMemory != "none" {
		fmt.Fprintf(w, ", %s shared memory", r.SharedMemory)
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "load\tinfer/s\t±\tmean\tp50\tp90\tp95\tp99\tp99.9\tmax\terrors\t")
	for _, l := range r.Levels {
		q := l.Latency
		spread := "-" // a single second has no spread
		if l.Seconds >= 2 {
			spread = fmt.Sprintf("%.0f%%", l.Spread*100)
		}
		times := make([]string, 0, 7)
		for _, us := range []float64{q.Mean, q.P50, q.P90, q.P95, q.P99, q.P999, q.Most} {
			if l.Requests == 0 {
				times = append(times, "-")
			} else {
				times = append(times, span(us))
			}
		}
		fmt.Fprintf(table, "%s\t%.0f\t%s\t%s\t%d\t\n", l.level, l.InferPS, spread, strings.Join(times, "\t"), l.Errors) // bound: seven times
	}
	_ = table.Flush() // errors of w are not reported
	for _, l := range r.Levels {
		l.explain(w)
	}
}

// explain prints how the time was spent, and the errors.
func (r *row) explain(w io.Writer) {
	if r.First != nil {
		fmt.Fprintf(w, "%s: first response after %s (p50), %s (p99); %.1f responses per request\n",
			r.level, span(r.First.P50), span(r.First.P99), float64(r.Responses)/float64(max(1, r.Requests)))
	}
	if s := r.Where; s != nil && r.Requests > 0 {
		fmt.Fprintf(w, "%s: server %s (queue %s, input %s, execution %s, output %s", r.level, span(s.Total), span(s.Queue), span(s.Input), span(s.Infer), span(s.Output))
		if s.CacheHit+s.CacheMiss > 0 {
			fmt.Fprintf(w, ", cache %s", span(s.CacheHit+s.CacheMiss))
		}
		fmt.Fprintf(w, "), wire and client %s; %.1f inferences per execution\n", span(r.Elsewhere), s.MeanBatch)
	}
	for _, text := range r.Texts {
		fmt.Fprintf(w, "%s: error: %s\n", r.level, text)
	}
}

// span formats a time in microseconds with three digits.
func span(us float64) string {
	switch {
	case us < 9.995:
		return strconv.FormatFloat(us, 'f', 2, 64) + "µs"
	case us < 99.95:
		return strconv.FormatFloat(us, 'f', 1, 64) + "µs"
	case us < 9_995:
		return strconv.FormatFloat(us, 'f', 0, 64) + "µs"
	case us < 999_500:
		return strconv.FormatFloat(us/1e3, 'f', 1, 64) + "ms"
	}
	return strconv.FormatFloat(us/1e6, 'f', 2, 64) + "s"
}

// writeJSON writes the results to a file, or to w for "-".
//
// bound: client.MaxReply for the server's name, and a few texts of each level
func (r *report) writeJSON(path string, w io.Writer) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if path == "-" {
		_, err = w.Write(text)
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// readReport reads a file of writeJSON.
//
// bound: the operator's file
func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(r.Levels) == 0 {
		return nil, fmt.Errorf("%s has no levels: it was not written by nereid bench --json", path)
	}
	return r, nil
}

// compare shows ratios to an earlier run, for the levels of both.
func (r *report) compare(w io.Writer, before *report) {
	fmt.Fprintf(w, "compared with the run of %s (%s, %s):\n", before.Started.Local().Format(time.DateTime), before.Model, before.Protocol)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "load\tinfer/s\tmean\tp50\tp99\t")
	ratio := func(now, then float64) string {
		if then == 0 {
			return "-"
		}
		return "×" + strconv.FormatFloat(now/then, 'f', 2, 64)
	}
	for _, l := range r.Levels {
		for _, b := range before.Levels {
			if b.level == l.level {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t\n", l.level, ratio(l.InferPS, b.InferPS), ratio(l.Latency.Mean, b.Latency.Mean),
					ratio(l.Latency.P50, b.Latency.P50), ratio(l.Latency.P99, b.Latency.P99))
				break
			}
		}
	}
	_ = table.Flush() // as in write
}
