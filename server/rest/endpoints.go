package rest

import (
	"net/http"
	"sort"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// serveLive serves GET /v2/health/live.
func (h *Endpoints) serveLive(w *http1.Reply, _ *http1.Request, _ target) error {
	live, err := h.parts.Core.Live()
	return writeHealth(w, live, err)
}

// serveReady serves GET /v2/health/ready.
func (h *Endpoints) serveReady(w *http1.Reply, r *http1.Request, _ target) error {
	ready, err := h.parts.Core.Ready(r.Context())
	return writeHealth(w, ready, err)
}

// writeHealth replies with a status and an empty body.
func writeHealth(w *http1.Reply, good bool, err error) error {
	switch {
	case err != nil:
		return err
	case good:
		w.Send(http.StatusOK, nil)
	default:
		w.Send(http.StatusBadRequest, nil)
	}
	return nil
}

// serveModelReady serves GET …/ready.
func (h *Endpoints) serveModelReady(w *http1.Reply, r *http1.Request, t target) error {
	ready, err := h.parts.Core.ModelReady(r.Context(), t.model, t.number)
	if err != nil {
		return err
	}
	if !ready {
		return infer.Errorf(infer.InvalidArg, "Model version not ready")
	}
	w.Send(http.StatusOK, nil)
	return nil
}

// serverMetadata returns the reply to GET /v2.
//
// bound: the server's name and extensions
func serverMetadata(name, version string) []byte {
	b := jsontext.AppendString([]byte(`{"name":`), name)
	b = jsontext.AppendString(append(b, `,"version":`...), version)
	b = append(b, `,"extensions":[`...)
	for i, e := range server.Extensions() {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsontext.AppendString(b, e)
	}
	return append(b, ']', '}')
}

// serveServerMetadata serves GET /v2.
func (h *Endpoints) serveServerMetadata(w *http1.Reply, _ *http1.Request, _ target) error {
	w.Send(http.StatusOK, h.serverJSON)
	return nil
}

// serveModelMetadata serves GET /v2/models/M. If the path has a version the reply lists only that
// one.
func (h *Endpoints) serveModelMetadata(w *http1.Reply, _ *http1.Request, t target) error {
	info, err := h.parts.Core.Model(t.model, t.number)
	if err != nil {
		return err
	}
	versions := []int64{t.number}
	if t.number == infer.LatestVersion {
		versions = h.parts.Core.ReadyVersions(t.model)
	}
	n := memberBytes + jsontext.TextBytes(info.Name) + jsontext.TextBytes(info.Platform()) + versionBytes*len(versions)
	for _, in := range info.Config.GetInput() {
		n += memberBytes + jsontext.TextBytes(in.GetName()) + versionBytes*len(in.GetDims())
	}
	for _, out := range info.Config.GetOutput() {
		n += memberBytes + jsontext.TextBytes(out.GetName()) + versionBytes*len(out.GetDims())
	}
	b, err := Room(w, n)
	if err != nil {
		return err
	}
	b = jsontext.AppendString(append(b, `{"name":`...), info.Name)
	b = append(b, `,"versions":[`...)
	for i, v := range versions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(append(b, '"'), v, 10), '"')
	}
	b = jsontext.AppendString(append(b, `],"platform":`...), info.Platform())
	var batch []int64 // the first dimension
	if info.Config.GetMaxBatchSize() > 0 {
		batch = []int64{-1}
	}
	b = append(b, `,"inputs":[`...)
	for i, in := range info.Config.GetInput() {
		b = appendTensorMetadata(b, i, in.GetName(), in.GetDataType(), batch, in.GetDims())
	}
	b = append(b, `],"outputs":[`...)
	for i, out := range info.Config.GetOutput() {
		b = appendTensorMetadata(b, i, out.GetName(), out.GetDataType(), batch, out.GetDims())
	}
	w.Send(http.StatusOK, append(b, ']', '}'))
	return nil
}

// versionBytes bounds the JSON of a version or a dimension in a list.
const versionBytes = 24

func appendTensorMetadata(b []byte, i int, name string, d kserve.DataType, batch, dims []int64) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	b = jsontext.AppendString(append(b, `{"name":`...), name)
	b = append(b, `,"datatype":"`...)
	b = append(b, infer.DataType(d).String()...)
	b = jsontext.AppendInts(append(b, `","shape":`...), batch, dims)
	return append(b, '}')
}

// serveModelConfig serves GET …/config.
func (h *Endpoints) serveModelConfig(w *http1.Reply, _ *http1.Request, t target) error {
	info, err := h.parts.Core.Model(t.model, t.number)
	if err != nil {
		return err
	}
	w.Send(http.StatusOK, info.JSON)
	return nil
}

// serveStatistics serves GET …/stats.
func (h *Endpoints) serveStatistics(w *http1.Reply, _ *http1.Request, t target) error {
	list, err := h.parts.Core.Statistics(t.model, t.number)
	if err != nil {
		return err
	}
	n := 0
	for _, m := range list {
		n += modelStatisticsBytes + jsontext.TextBytes(m.GetName()) + durationsBytes*len(m.GetBatchStats())
		for key := range m.GetResponseStats() {
			n += durationsBytes + jsontext.TextBytes(key)
		}
		for _, u := range m.GetMemoryUsage() {
			n += memberBytes + jsontext.TextBytes(u.GetType())
		}
	}
	return SendJSON(w, n, func(b []byte) []byte { return appendStatistics(b, list) })
}

const (
	// durationsBytes bounds the JSON of the statistics of a response index or a batch size.
	durationsBytes = 6 * 80
	// modelStatisticsBytes bounds the rest of the statistics of a model, without its name.
	modelStatisticsBytes = 256 + 8*80
)

// appendStatistics appends the JSON of statistics. It has every member, in this order, since
// clients read them unconditionally.
//
// bound: the caller has room
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

// bound: durationsBytes
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

// appendResponseStatistics appends the statistics by response index, sorted by the index as text.
//
// bound: the caller has room
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

// serveLogging serves GET and POST /v2/logging.
func (h *Endpoints) serveLogging(w *http1.Reply, r *http1.Request, _ target) error {
	if r.Method == http.MethodPost {
		err := h.bodies.Small(r, func(text []byte, c *budget.Charge) error {
			doc, err := body.Parse(c, new(jsontext.Scanner), text)
			if err != nil {
				return err
			}
			h.parts.Logging.ChangeLogSettings(func(s *server.LogSettings) { err = readLogSettings(doc.Root(), s) })
			return err
		})
		if err != nil {
			return err
		}
	}
	w.Send(http.StatusOK, appendLogSettings(nil, h.parts.Logging.LogSettings()))
	return nil
}

// readLogSettings changes s by the members of v, in a fixed order. The members before a wrong one
// take effect.
func readLogSettings(v jsontext.Value, s *server.LogSettings) error {
	given := func(name string) (jsontext.Value, bool) {
		m := v.Member(name)
		return m, m.Exists() && !m.IsNull()
	}
	if _, ok := given("log_file"); ok {
		return server.ErrLogFile
	}
	for _, field := range [...]struct {
		name string
		on   *bool
	}{{"log_info", &s.Info}, {"log_warning", &s.Warning}, {"log_error", &s.Error}} {
		if m, ok := given(field.name); ok {
			on, err := m.Bool()
			if err != nil {
				return err
			}
			*field.on = on
		}
	}
	if m, ok := given("log_verbose_level"); ok {
		level, err := m.Uint()
		if err != nil {
			return err
		}
		s.VerboseLevel = uint32(level)
	}
	if m, ok := given("log_format"); ok {
		text, err := m.Text()
		if err != nil {
			return err
		}
		format := text.String() // bound: a small body
		if format != server.LogFormatDefault && format != server.LogFormatISO8601 {
			return infer.Errorf(infer.Unavailable, "invalid argument for --log_format, got: %s", format)
		}
		s.Format = format
	}
	return nil
}

func appendLogSettings(b []byte, s server.LogSettings) []byte {
	b = jsontext.AppendString(append(b, `{"log_file":`...), s.File)
	b = strconv.AppendBool(append(b, `,"log_info":`...), s.Info)
	b = strconv.AppendBool(append(b, `,"log_warning":`...), s.Warning)
	b = strconv.AppendBool(append(b, `,"log_error":`...), s.Error)
	b = strconv.AppendUint(append(b, `,"log_verbose_level":`...), uint64(s.VerboseLevel), 10)
	b = jsontext.AppendString(append(b, `,"log_format":`...), s.Format)
	return append(b, '}')
}
