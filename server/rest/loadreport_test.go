package rest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

// blockSamples returns samples from alternating kinds and numbers.
func blockSamples(kindsAndNumbers ...string) (list []metrics.Sample) {
	for i := 0; i+1 < len(kindsAndNumbers); i += 2 {
		list = append(list, metrics.Sample{
			Labels: rest.BlocksLabel + `="` + kindsAndNumbers[i] + `",model="m",version="1"`, Number: kindsAndNumbers[i+1],
		})
	}
	return list
}

func TestLoadReportsHaveTheFormOfTriton(t *testing.T) {
	for _, c := range []struct {
		samples             []metrics.Sample
		json, text, missing string
	}{
		{blockSamples("used", "1", "max", "3", "tokens_per", "64"), "0.3333333333333333,192", "0.333333,192", ""},
		{blockSamples("used", "0", "max", "3", "tokens_per", "64", "free", "x"), "0.0,192", "0.000000,192", ""},
		{blockSamples("used", "1", "max", "0", "tokens_per", "64"), "0.0,0", "0.000000,0", ""},
		{blockSamples("used", "2", "max", "4", "tokens_per", "0.3"), "0.5,1", "0.500000,1", ""},
		{blockSamples("used", "1", "max", "3", "max", "2", "tokens_per", "1e+16"), "0.5,2", "0.500000,2", ""},
		{blockSamples("used", "1", "used", "-2", "max", "2", "tokens_per", "1"), "0.5,2", "0.500000,2", ""},
		{blockSamples("used", "-1", "max", "3", "tokens_per", "64"), "", "", "used"},
		{blockSamples("used", "1", "max", "Nan", "tokens_per", "64"), "", "", "max"},
		{blockSamples("used", "1", "max", "3"), "", "", "tokens_per"},
		{[]metrics.Sample{{Labels: `a=",` + rest.BlocksLabel + `=\"used\""`, Number: "1"}}, "", "", "tokens_per"},
		{nil, "", "", "tokens_per"},
	} {
		report, missing := rest.LoadReport(c.samples, "json")
		if missing != c.missing {
			t.Errorf("%v: got %q missing, want %q", c.samples, missing, c.missing)
		}
		if missing != "" {
			continue
		}
		utilization, capacity, _ := strings.Cut(c.json, ",")
		if want := `JSON {"named_metrics":{"kv_cache_utilization":` + utilization + `,"max_token_capacity":` + capacity + `}}`; report != want {
			t.Errorf("%v: got %s, want %s", c.samples, report, want)
		}
		utilization, capacity, _ = strings.Cut(c.text, ",")
		report, _ = rest.LoadReport(c.samples, "text")
		if want := "TEXT named_metrics.kv_cache_utilization=" + utilization + ", named_metrics.max_token_capacity=" + capacity; report != want {
			t.Errorf("%v: got %s, want %s", c.samples, report, want)
		}
	}
}

// TestGenerationsReportTheLoad checks that replies of the generate endpoints report the load in the
// requested format, and that requests that reach no model and other endpoints do not.
func TestGenerationsReportTheLoad(t *testing.T) {
	core := servertest.NewCore(Model("text", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1"))
	core.Panics = true // the log is not checked
	fails := Model("refuses", 0, "INPUT0 INT32 -1", "OUTPUT0 INT32 -1")
	fails.Infer = func(_ context.Context, _ *infer.Request, send infer.Sender) error {
		send(infer.ErrorResponse(infer.Errorf(infer.Unavailable, "it fails")))
		return nil
	}
	core.Models["refuses"] = fails
	samples := blockSamples("used", "1", "max", "2", "tokens_per", "64")
	s := StartHTTP(t, rest.Config{}, core, func(p *server.Parts, _ *servertest.Blocks) {
		p.Samples = func(family string) []metrics.Sample {
			if family != "nv_trt_llm_kv_cache_block_metrics" {
				t.Errorf("asked for %s", family)
			}
			return samples
		}
	})
	const text = "TEXT named_metrics.kv_cache_utilization=0.500000, named_metrics.max_token_capacity=128"
	for _, c := range []struct{ path, body, format, want string }{
		{"text/generate", `{"INPUT0":[1]}`, "text", text},
		{"text/generate_stream", `{"INPUT0":[1]}`, "text", text},
		{"text/generate_stream", `{"INPUT0":[1]}`, "json", `JSON {"named_metrics":{"kv_cache_utilization":0.5,"max_token_capacity":128}}`},
		{"text/generate", `{"INPUT0":[1]}`, "JSON", ""},
		{"text/generate", `{"INPUT0":[1]}`, "", ""},
		{"refuses/generate", `{"INPUT0":[1]}`, "text", text},
		{"refuses/generate_stream", `{"INPUT0":[1]}`, "text", text},
		{"text/generate", `{"INPUT0":"x"}`, "text", ""},
		{"none/generate", `{"INPUT0":[1]}`, "text", ""},
		{"text/infer", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}`, "text", ""},
	} {
		r, err := http.NewRequest(http.MethodPost, "http://"+s.Addr+"/v2/models/"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Endpoint-Load-Metrics-Format", c.format)
		r.Close = true
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := reply.Header.Get("endpoint-load-metrics"); got != c.want {
			text, _ := io.ReadAll(reply.Body)
			t.Errorf("%s %s in %q: got status %d with %q %s, want %q", c.path, c.body, c.format, reply.StatusCode, got, text, c.want)
		}
		_ = reply.Body.Close()
	}
}
