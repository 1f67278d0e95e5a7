package openai_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/openai"
	"github.com/nereid-serving/nereid/server/servertest"
	"github.com/nereid-serving/nereid/server/tracing"
)

var traceName = regexp.MustCompile(`HTTP_[A-Z_]+`)

// TestTracedRequestsAreStamped checks the timestamps of a traced request and a traced stream, with
// a core that does not trace.
func TestTracedRequestsAreStamped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	path := file + ".0" // the file of a count's traces
	var clock atomic.Int64
	tracer, err := tracing.New(tracing.Config{
		Level: tracing.Timestamps, Rate: 1, Count: 2, Now: func() int64 { return clock.Add(1) }, Log: zerolog.Nop(),
		Settings: []tracing.Pair{{Key: tracing.SettingFile, Value: file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tracer.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	s := serveTraced(t, openai.Config{}, tracer, textModel("m", "python", says("a"), "text_input"))
	for _, body := range []string{`{"model":"m","prompt":"p"}`, `{"model":"m","prompt":"p","stream":true}`} {
		if got := s.post("/v1/completions", body); !strings.HasPrefix(got, "200 ") {
			t.Errorf("%s: got %s", body, got)
		}
	}
	const one = "HTTP_RECV_START HTTP_RECV_END HTTP_SEND_START HTTP_SEND_END"
	testkit.Eventually(t, servertest.Patience, func() bool { // the client has its reply before the handler has ended
		content, _ := os.ReadFile(path)
		return strings.Join(traceName.FindAllString(string(content), -1), " ") == one+" "+one
	})
}
