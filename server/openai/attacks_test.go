package openai_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/openai"
	"github.com/nereid-serving/nereid/server/servertest"
)

// liveHeap returns the bytes of objects on the heap, including unswept ones.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// peaks returns by how much the heap grows while f runs, and the peak of the charges.
func (s *service) peaks(f func()) (heap, charged int64) {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	before := liveHeap()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(500 * time.Microsecond); ; {
			heap, charged = max(heap, liveHeap()-before), max(charged, s.blocks.Account.Total())
			select {
			case <-tick.C:
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return heap, charged
}

// send posts a body and returns the status and the beginning of the reply.
func (s *service) send(path, body string) string {
	s.t.Helper()
	reply, err := client.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	b := make([]byte, 4<<10)
	n, _ := io.ReadFull(reply.Body, b)
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		s.t.Error(err)
	}
	return fmt.Sprint(reply.StatusCode, " ", string(b[:n]))
}

// replies returns the Infer function of a model that sends one response with these outputs.
func replies(outputs ...infer.Tensor) func(context.Context, *infer.Request, infer.Sender) error {
	return func(_ context.Context, _ *infer.Request, send infer.Sender) error {
		send(&infer.Response{Outputs: outputs, Final: true})
		return nil
	}
}

// TestAttacksAreCharged sends large requests and lets models send large responses. The heap must
// grow by at most twice the charged bytes plus 32 MiB, and the server must reply.
func TestAttacksAreCharged(t *testing.T) {
	testkit.Story(t)
	const mib = 1 << 20
	chat := func(messages, more string) string { return `{"model":"m","messages":[` + messages + `]` + more + `}` }
	user := func(content string) string { return chat(`{"role":"user","content":`+content+`}`, "") }
	tools := func(parameters string) string {
		return chat(`{"role":"user","content":"p"}`, `,"tool_choice":"none","tools":[{"type":"function","function":{"name":"f","parameters":`+parameters+`}}]`)
	}
	times := func(what string, size int) string {
		return strings.TrimSuffix(strings.Repeat(what, size/len(what)), ",")
	}
	const chats, completions, embeddings = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
	for name, tt := range map[string]struct {
		path, template, body string
		outputs              []infer.Tensor
		want                 string
	}{
		"tools indented": {path: chats, template: "{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}",
			body: tools(strings.Repeat("[", 80) + times("0,", mib) + strings.Repeat("]", 80)), want: "503 "},
		"tools printed":   {path: chats, template: "{{ tools }}", body: tools("[" + times(`{"":0},`, 4*mib) + "]"), want: ""},
		"tools unused":    {path: chats, template: "x", body: tools("[" + times(`{"":0},`, 4*mib) + "]"), want: ""},
		"tools of dicts":  {path: chats, template: "x", body: tools("{" + times(`"a":{},`, 4*mib) + "}"), want: ""},
		"many tools":      {path: chats, template: "{{ tools }}", body: chat(`{"role":"user","content":"p"}`, `,"tool_choice":"none","tools":[`+times(`{"type":"function","function":{"name":""}},`, 4*mib)+"]"), want: ""},
		"many messages":   {path: chats, template: "{{ messages }}", body: chat(times(`{"role":"user","content":""},`, 4*mib), ""), want: ""},
		"many parts":      {path: chats, template: "{{ messages | tojson(indent=64) }}", body: user("[" + times(`{"type":"text","text":""},`, 4*mib) + "]"), want: ""},
		"arguments":       {path: chats, template: "{{ messages }}", body: chat(`{"role":"assistant","tool_calls":[{"id":"","type":"","function":{"name":"","arguments":"[`+times(`{\"\":1},`, 4*mib)+`]"}}]}`, ""), want: ""},
		"escaped content": {path: chats, template: "{{ messages[0].content }}", body: user(`"` + times(`\u00e9`, 4*mib) + `"`), want: "200 "},
		"split":           {path: chats, template: "{{ messages[0].content.split(' ') | length }}", body: user(`"` + times("a ", 4*mib) + `"`), want: "503 "},
		"slices":          {path: chats, template: "{{ (messages[0].content)[::-1] }}", body: user(`"` + times("a ", 4*mib) + `"`), want: ""},
		"items":           {path: chats, template: "{{ tools[0].function.parameters.items() | list | length }}", body: tools("{" + times(`"a":0,`, 4*mib) + "}"), want: "200 "},
		"words":           {path: chats, template: "{% for w in messages[0].content.split() | unique | sort %}{{ w | upper }}{% endfor %}", body: user(`"` + times("a ", 4*mib) + `"`), want: ""},
		"stop":            {path: completions, body: `{"model":"m","prompt":"p","stop":[` + times(`"",`, 4*mib) + `]}`, want: `422 {"detail":[{"type":"too_long","loc":["body","stop"],"msg":"List should have at most 16 items after validation, not 1398101",`},
		"one stop":        {path: completions, body: `{"model":"v","prompt":"p","stop":"` + times("\u00e9", 4*mib) + `"}`, want: "200 "},
		"prompt":          {path: completions, body: `{"model":"m","prompt":"` + times(`\n`, 4*mib) + `"}`, want: "200 "},
		"prompts":         {path: completions, body: `{"model":"m","prompt":[` + times(`"",`, 4*mib) + `]}`, want: "400 "},
		"model":           {path: completions, body: `{"model":"` + times("m", 4*mib) + `","prompt":"p"}`, want: `422 {"detail":[{"type":"string_too_long","loc":["body","model"],"msg":"String should have at most 4096 bytes, not 4194304",`},
		"user":            {path: completions, body: `{"model":"m","prompt":"p","user":"` + times("m", 4*mib) + `"}`, want: "422 "},
		"suffix":          {path: completions, body: `{"model":"m","prompt":"p","suffix":"` + times("m", 4*mib) + `"}`, want: "400 "},
		"numbers":         {path: completions, body: `{"model":"m","prompt":"p","max_tokens":"` + times("1", 4*mib) + `","stream":"` + times("1", 4*mib) + `"}`, want: "422 "},
		"unknown fields":  {path: completions, body: `{"model":"m","prompt":"p",` + times(`"`+strings.Repeat("x", 4<<10)+`":"`+strings.Repeat("y", 4<<10)+`",`, 4*mib) + `}`, want: "422 "},
		"wrong messages":  {path: chats, template: "x", body: chat(times(`{"role":0},`, 4*mib), ""), want: "422 "},
		"tokens":          {path: embeddings, body: `{"model":"v","input":[` + times("0,", 4*mib) + `]}`, want: "200 "},
		"vector":          {path: embeddings, body: `{"model":"v","input":"a"}`, outputs: []infer.Tensor{bytesTensor("text_output", "["+times("0,", 4*mib)+"]")}, want: "200 "},
		"packed vector": {path: embeddings, body: `{"model":"v","input":"a","encoding_format":"base64"}`,
			outputs: []infer.Tensor{bytesTensor("text_output", "["+times("0,", 4*mib)+"]")}, want: "200 "},
		"logprobs": {path: completions, body: `{"model":"v","prompt":"p","logprobs":5}`, outputs: []infer.Tensor{bytesTensor("text_output", ""),
			bytesTensor("logprobs", "["+times(`{"":{"logprob":0}},`, 4*mib)+"]")}, want: "200 "},
		"logprobs of a chat": {path: chats, template: "x", body: `{"model":"v","messages":[{"role":"user","content":""}],"logprobs":true}`, outputs: []infer.Tensor{
			bytesTensor("text_output", ""), bytesTensor("logprobs", `[{"":{"logprob":0,"decoded_token":"`+times(`\u0001`, 4*mib)+`"}}]`)}, want: ""},
		"text":          {path: completions, body: `{"model":"m","prompt":"p"}`, outputs: []infer.Tensor{bytesTensor("text_output", times("\x01", 4*mib))}, want: "200 "},
		"streamed text": {path: completions, body: `{"model":"m","prompt":"p","stream":true}`, outputs: []infer.Tensor{bytesTensor("text_output", times("\x01a\xff", 4*mib))}, want: "200 "},
	} {
		t.Run(name, func(t *testing.T) {
			run := replies(bytesTensor("text_output", "[1]"))
			if tt.outputs != nil {
				run = replies(tt.outputs...)
			}
			cfg := openai.Config{}
			if tt.template != "" {
				cfg.ChatTemplate = filepath.Join(folder(t, map[string]string{"t": tt.template}), "t")
			}
			m := textModel("m", "python", run, "text_input", "stop_words")
			m.Info.Config.Input[1].Dims = []int64{-1}
			s := serve(t, cfg, m, textModel("v", openai.FormatVLLM, run, "text_input", "sampling_parameters", "return_logprobs:BOOL", "embedding_request"))
			got := ""
			heap, charged := s.peaks(func() { got = s.send(tt.path, tt.body) })
			if heap > 2*charged+32*mib {
				t.Errorf("the heap grew by %d bytes, and %d were charged", heap, charged)
			}
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %.400s, want %s", got, tt.want)
			}
		})
	}
}

// TestUnreadRepliesStayCharged checks that a reply stays charged while its client does not read it.
func TestUnreadRepliesStayCharged(t *testing.T) {
	const size = 32 << 20
	s := serve(t, openai.Config{}, textModel("m", "python", replies(bytesTensor("text_output", strings.Repeat("a", size))), "text_input"))
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"model":"m","prompt":"p"}`
	if _, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1) // the reply has begun, and the rest is queued
	if _, err := io.ReadFull(c, first); err != nil {
		t.Fatal(err)
	}
	if charged := s.blocks.Account.Total(); charged < size {
		t.Errorf("%d bytes are charged for a reply of %d", charged, size)
	}
}

// TestLeavingClientEndsItsRendering checks that the rendering of a template ends when its client
// disconnects.
func TestLeavingClientEndsItsRendering(t *testing.T) {
	endless := "{% for i in range(100000) %}{% for j in range(100000) %}{% if messages[0].content is upper %}{% endif %}{% endfor %}{% endfor %}"
	s := serve(t, openai.Config{ChatTemplate: filepath.Join(folder(t, map[string]string{"t": endless}), "t")}, textModel("m", "python", says("a"), "text_input"))
	ctx, leave := context.WithCancel(t.Context())
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("A", 1<<20) + `"}]}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if reply, err := client.Do(r); err == nil {
			_ = reply.Body.Close()
			t.Errorf("got status %d, want none before the client leaves", reply.StatusCode)
		}
	}()
	testkit.Eventually(t, servertest.Patience, func() bool { return s.blocks.Account.Total() > 2<<20 }) // the range, behind body and text
	leave()
	<-gone
	testkit.Eventually(t, 10*time.Second, func() bool { return s.blocks.Account.Total() == 0 })
}

// TestErrorsTellClientFaultsFromServerFaults checks the statuses of errors: a client may retry
// after 503, but not after 400.
func TestErrorsTellClientFaultsFromServerFaults(t *testing.T) {
	fails := func(code infer.Code) func(context.Context, *infer.Request, infer.Sender) error {
		return func(context.Context, *infer.Request, infer.Sender) error { return infer.Errorf(code, "why") }
	}
	long := func(_ context.Context, _ *infer.Request, send infer.Sender) error {
		send(&infer.Response{Err: &infer.Error{Code: infer.Internal, Message: strings.Repeat("\x01", 64<<20)}})
		return nil
	}
	s := serve(t, openai.Config{}, textModel("busy", "python", fails(infer.Unavailable), "text_input"), textModel("broken", "python", fails(infer.InvalidArg), "text_input"),
		textModel("long", "python", long, "text_input"), textModel("m", "python", says("a"), "text_input"))
	name := strings.Repeat("n", 4<<10)
	for body, want := range map[string]string{
		`{"model":"busy","prompt":"p"}`:                                             `503 {"detail":"why","error":{"message":"why","type":"server_error"`,
		`{"model":"broken","prompt":"p"}`:                                           `500 {"detail":"why"`,
		`{"model":"long","prompt":"p"}`:                                             `500 {"detail":"\u0001`,
		`{"model":"` + name + `","prompt":"p"}`:                                     `400 {"detail":"Unknown model: nnn`,
		`{"model":"m","prompt":"p","stop":[` + strings.Repeat(`"a",`, 16) + `"a"]}`: `422 {"detail":[{"type":"too_long","loc":["body","stop"],"msg":"List should have at most 16 items after validation, not 17","input":["a",`,
	} {
		got := s.send("/v1/completions", body)
		if !strings.HasPrefix(got, want) {
			t.Errorf("%.80s: got %.300s, want %s", body, got, want)
		}
	}
}

// TestSmallValuesAreBounded checks that values of the maximum size are accepted and larger ones
// rejected, and that errors repeat at most 4 KiB of a client's text.
func TestSmallValuesAreBounded(t *testing.T) {
	m := textModel("m", "python", says("a"), "text_input", "stop_words")
	m.Info.Config.Input[1].Dims = []int64{-1}
	s := serve(t, openai.Config{}, m)
	of := func(n int) string { return strings.Repeat("x", n) }
	for _, test := range []struct {
		what, body, want string
	}{
		{"16 entries of stop", `{"model":"m","prompt":"p","stop":["a"` + strings.Repeat(`,"a"`, 15) + `]}`, `200 {"id"`},
		{"17 entries of stop", `{"model":"m","prompt":"p","stop":["a"` + strings.Repeat(`,"a"`, 16) + `]}`, `422 {"detail":[{"type":"too_long","loc":["body","stop"]`},
		{"a name of 4 KiB", `{"model":"` + of(4096) + `","prompt":"p"}`, `400 {"detail":"Unknown model: ` + of(4096) + `"`},
		{"a longer name", `{"model":"` + of(4097) + `","prompt":"p"}`, `422 {"detail":[{"type":"string_too_long","loc":["body","model"],"msg":"String should have at most 4096 bytes, not 4097"`},
		{"a wrong value of 4 KiB", `{"model":"m","prompt":"p","stream":true,"temperature":"` + of(4094) + `"}`, `422 {"detail":[{"type":"float_parsing","loc":["body","temperature"],"msg":"Input should be a valid number, unable to parse string as a number","input":"` + of(4094) + `"`},
		{"a longer wrong value", `{"model":"m","prompt":"p","stream":true,"temperature":"` + of(4095) + `"}`, `422 {"detail":[{"type":"float_parsing","loc":["body","temperature"]`},
	} {
		got := s.post("/v1/completions", test.body)
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got %.200s, want %.200s", test.what, got, test.want)
		}
		if strings.Contains(got, of(4097)) {
			t.Errorf("%s: the reply repeats more than 4 KiB", test.what)
		}
	}
}
