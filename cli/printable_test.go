package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/cli"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/terminal"
	"github.com/nereid-serving/nereid/server/recording"
)

// steering contains control sequences that write to a terminal's clipboard in three ways, ring its
// bell and reverse text. escaped is the same text as it must be shown.
const (
	steering = "a\x1b]52;c;QQ==\x07b\u009d52;c;QQ==\u009cc\x7f\u202e\u2066d\r"
	escaped  = `a\u001B]52;c;QQ==\u0007b\u009D52;c;QQ==\u009Cc\u007F\u202E\u2066d\u000D`
)

// obeyed matches the characters that control a terminal.
var obeyed = regexp.MustCompile(`[^\t\n\x{20}-\x{7E}\x{A0}-\x{10FFFF}]|[\x{061C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}]`)

// TestModelsSteerNoTerminal checks that control sequences in a model's name are escaped in the
// server's output, in a pipe and on a terminal.
func TestModelsSteerNoTerminal(t *testing.T) {
	repository := testkit.WriteFiles(t, t.TempDir(), map[string]string{steering + "/1/": "", steering + "/config.pbtxt": `backend: "python"`})
	args := []string{"nereid", "--model-repository=" + repository, "--allow-metrics=false"}
	var out, errs strings.Builder
	if status := cli.Run(append(args, "--log-error=false", "--log-warning=false"), cli.NoEnv, &out, &errs); status != 1 {
		t.Errorf("got status %d, want 1: %s", status, errs.String())
	}
	_, table, _ := strings.Cut(out.String(), "| Model ")
	for place, text := range map[string]string{"the table": table, "the end of the start": errs.String()} {
		if obeyed.MatchString(text) || !strings.Contains(text, escaped) {
			t.Errorf("%s has no %s alone: %q", place, escaped, text)
		}
	}
	tty, written := terminal.Open(t)
	cli.Run(args, cli.NoEnv, tty, tty)
	if text := written(); obeyed.MatchString(text) || !strings.Contains(text, escaped) {
		t.Errorf("the terminal got %q", text)
	}
}

// TestCommandsPassOnNothingThatSteersTerminals checks that commands escape control sequences from a
// repository, a recording and a server's responses.
func TestCommandsPassOnNothingThatSteersTerminals(t *testing.T) {
	model, err := json.Marshal(steering)
	if err != nil {
		t.Fatal(err)
	}
	const noProtocol = "noProtocol"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v2/health/ready":
			w.WriteHeader(http.StatusBadRequest)
		case strings.HasSuffix(r.URL.Path, "/index"):
			fmt.Fprintf(w, `[{"name":%s,"version":"1","state":"UNAVAILABLE","reason":%s}]`, model, model)
		case strings.Contains(r.URL.Path, noProtocol):
			http.Error(w, steering, http.StatusBadGateway)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":%s}`, model)
		case strings.HasSuffix(r.URL.Path, "/config"):
			_, _ = io.WriteString(w, `{"name":"m","backend":"python"}`)
		case strings.HasSuffix(r.URL.Path, "/stats"):
			_, _ = io.WriteString(w, `{"model_stats":[]}`)
		default:
			fmt.Fprintf(w, `{"name":%s,"version":%s,"versions":["1"],"platform":"python","inputs":[],"outputs":[],"extensions":[]}`, model, model)
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")

	repository, records := filepath.Join(t.TempDir(), "r"), t.TempDir()
	for _, directory := range []string{filepath.Join(repository, steering, "1"), filepath.Join(records, steering)} {
		if err := os.MkdirAll(directory, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(repository, steering, "config.pbtxt")
	if err := os.WriteFile(config, []byte("backend: \"python\"\nname: \""+strings.Repeat("x", 3)+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{steering, noProtocol} {
		f, err := os.Create(filepath.Join(records, steering, fmt.Sprintf("20260101T000000.000000000Z-00000%d%s", i, recording.Extension)))
		if err != nil {
			t.Fatal(err)
		}
		r := recording.Record{Model: name, Version: 1, Received: time.Now(), Answers: []recording.Message{{}}}
		if _, err := r.WriteTo(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}

	for _, args := range [][]string{
		{"check", repository},
		{"check", repository, "--json"},
		{"check", repository, "--model=" + steering + "x"},
		{"replay", records, "--url=" + address},
		{"replay", records, "--url=" + address, "--json"},
		{"bench", steering, "--url=" + address, "--duration=10ms", "--warm-up=0s"},
		{"health", "--ready", address},
		{"top", "--once", "--url=" + address, "--interval=100ms"},
		{"top", "--json", "--url=" + address, "--interval=100ms"},
	} {
		var out, errs strings.Builder
		cli.Run(append([]string{"nereid"}, args...), cli.NoEnv, &out, &errs)
		text := out.String() + errs.String()
		if obeyed.MatchString(text) || !strings.Contains(text, `a\u001`) {
			t.Errorf("%q: got %q", args, text)
		}
		if out.Len() > 0 && strings.Contains(strings.Join(args, " "), "--json") {
			if !json.Valid([]byte(out.String())) {
				t.Errorf("%q: got %q, want JSON", args, out.String())
			}
		}
	}
}
