package server

import (
	"net/http"
	"sort"
	"strconv"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// serveStatistics serves GET …/stats.
func (h *HTTP) serveStatistics(w *http1.Reply, model string, version int64) error {
	list, err := h.core.Statistics(model, version)
	if err != nil {
		return err
	}
	w.Send(http.StatusOK, appendStatistics(nil, list))
	return nil
}

// appendStatistics appends the JSON of statistics. Every member is there, in
// this order, since clients read them without asking.
func appendStatistics(b []byte, list []*kserve.ModelStatistics) []byte {
	b = append(b, `{"model_stats":[`...)
	for i, m := range list {
		b = appendComma(b, i)
		b = jsontext.AppendString(append(b, `{"name":`...), m.GetName())
		b = jsontext.AppendString(append(b, `,"version":`...), m.GetVersion())
		b = strconv.AppendUint(append(b, `,"last_inference":`...), m.GetLastInference(), 10)
		b = strconv.AppendUint(append(b, `,"inference_count":`...), m.GetInferenceCount(), 10)
		b = strconv.AppendUint(append(b, `,"execution_count":`...), m.GetExecutionCount(), 10)
		s := m.GetInferenceStats()
		b = appendDurations(append(b, `,"inference_stats":`...), []namedDuration{
			{"success", s.GetSuccess()}, {"fail", s.GetFail()}, {"queue", s.GetQueue()},
			{"compute_input", s.GetComputeInput()}, {"compute_infer", s.GetComputeInfer()}, {"compute_output", s.GetComputeOutput()},
			{"cache_hit", s.GetCacheHit()}, {"cache_miss", s.GetCacheMiss()},
		})
		b = appendResponseStatistics(append(b, `,"response_stats":`...), m.GetResponseStats())
		b = append(b, `,"batch_stats":[`...)
		for i, s := range m.GetBatchStats() {
			b = appendComma(b, i)
			b = strconv.AppendUint(append(b, `{"batch_size":`...), s.GetBatchSize(), 10)
			at := len(b)
			b = appendDurations(b, []namedDuration{{"compute_input", s.GetComputeInput()},
				{"compute_infer", s.GetComputeInfer()}, {"compute_output", s.GetComputeOutput()}})
			b[at] = ',' // the durations are members of the same object
		}
		b = append(b, `],"memory_usage":[`...)
		for i, u := range m.GetMemoryUsage() {
			b = appendComma(b, i)
			b = jsontext.AppendString(append(b, `{"type":`...), u.GetType())
			b = strconv.AppendInt(append(b, `,"id":`...), u.GetId(), 10)
			b = strconv.AppendUint(append(b, `,"byte_size":`...), u.GetByteSize(), 10)
			b = append(b, '}')
		}
		b = append(b, ']', '}')
	}
	return append(b, ']', '}')
}

type namedDuration struct {
	name string
	d    *kserve.StatisticDuration
}

func appendDurations(b []byte, list []namedDuration) []byte {
	b = append(b, '{')
	for i, one := range list {
		b = appendComma(b, i)
		b = jsontext.AppendString(b, one.name)
		b = strconv.AppendUint(append(b, `:{"count":`...), one.d.GetCount(), 10)
		b = strconv.AppendUint(append(b, `,"ns":`...), one.d.GetNs(), 10)
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendResponseStatistics appends the statistics by response index, which is
// the key, in the order of the keys as texts.
func appendResponseStatistics(b []byte, stats map[string]*kserve.InferResponseStatistics) []byte {
	keys := make([]string, 0, len(stats))
	for key := range stats {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	b = append(b, '{')
	for i, key := range keys {
		b = appendComma(b, i)
		s := stats[key]
		b = appendDurations(append(jsontext.AppendString(b, key), ':'), []namedDuration{
			{"compute_infer", s.GetComputeInfer()}, {"compute_output", s.GetComputeOutput()}, {"success", s.GetSuccess()},
			{"fail", s.GetFail()}, {"empty_response", s.GetEmptyResponse()}, {"cancel", s.GetCancel()},
		})
	}
	return append(b, '}')
}

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}
