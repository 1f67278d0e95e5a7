package rest

import (
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// The load report of ORCA (https://github.com/cncf/xds, "orca"): a header of a reply that reports
// the cache load of a language model to load balancers.
const (
	loadFormatHeader = "endpoint-load-metrics-format"
	loadReportHeader = "endpoint-load-metrics"
	// blocksFamily is the metric of the TensorRT-LLM backend, which any model may publish.
	blocksFamily = "nv_trt_llm_kv_cache_block_metrics"
	blocksLabel  = "kv_cache_block_type"
)

// reportLoad adds the load report to the head of a reply if the request asks for one. It is omitted
// if a metric is missing.
func (h *Endpoints) reportLoad(w *http1.Reply, r *http1.Request) {
	format, asked := r.Header(loadFormatHeader)
	if !asked {
		return
	}
	if format != "json" && format != "text" {
		h.log.Error().Msgf("%s is '%.64s', want 'json' or 'text': the reply has no load report", loadFormatHeader, format)
		return
	}
	var samples []metrics.Sample
	if h.parts.Samples != nil {
		samples = h.parts.Samples(blocksFamily)
	}
	load, missing := readBlocks(samples)
	if missing != "" {
		h.log.Error().Msgf("metric '%s' has no sample with %s '%s': the reply has no load report", blocksFamily, blocksLabel, missing)
		return
	}
	w.Header = http1.Field{Name: loadReportHeader, Value: load.encode(format)}
}

// cacheLoad is the load of a key-value cache.
type cacheLoad struct {
	utilization float64
	capacity    uint64 // tokens
}

// readBlocks reads the last sample of each kind of blocks. It returns a kind without a sample as
// missing.
func readBlocks(samples []metrics.Sample) (load cacheLoad, missing string) {
	var found [3]float64
	for i, kind := range [...]string{"tokens_per", "used", "max"} {
		has, label := false, ","+blocksLabel+`="`+kind+`"`
		for _, s := range samples {
			if !strings.Contains(","+s.Labels, label) { // quotes within values are escaped
				continue
			}
			if value, ok := plainDecimal(s.Number); ok {
				found[i], has = value, true
			}
		}
		if !has {
			return load, kind
		}
	}
	perBlock, used, most := found[0], found[1], found[2]
	if most > 0 {
		load.utilization = used / most
	}
	load.capacity = uint64(min(most*perBlock, 1<<63))
	return load, ""
}

// plainDecimal reads digits with an optional fraction. As in Triton signs and exponents are not
// read.
func plainDecimal(text string) (value float64, ok bool) {
	end := digitsIn(text)
	if end == 0 {
		return 0, false
	}
	if end < len(text) && text[end] == '.' {
		if n := digitsIn(text[end+1:]); n > 0 {
			end += 1 + n
		}
	}
	value, err := strconv.ParseFloat(text[:end], 64)
	return value, err == nil
}

func digitsIn(text string) (n int) {
	for n < len(text) && text[n]-'0' <= 9 {
		n++
	}
	return n
}

// encode formats the report.
func (l cacheLoad) encode(format string) string {
	var b []byte
	if format == "json" {
		b = append(b, `JSON {"named_metrics":{"kv_cache_utilization":`...)
		b = jsontext.AppendFloat(b, l.utilization)
		b = append(b, `,"max_token_capacity":`...)
		return string(append(strconv.AppendUint(b, l.capacity, 10), "}}"...))
	}
	b = append(b, "TEXT named_metrics.kv_cache_utilization="...)
	b = strconv.AppendFloat(b, l.utilization, 'f', 6, 64)
	b = append(b, ", named_metrics.max_token_capacity="...)
	return string(strconv.AppendUint(b, l.capacity, 10))
}
