package openai_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/server/openai"
)

// folder writes files to a new directory.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const line = `{"model":"m","messages":[{"role":"user","content":"p"}]}`

// TestTemplatesOfTokenizers checks where templates are found and which special tokens they can use.
func TestTemplatesOfTokenizers(t *testing.T) {
	for name, tt := range map[string]struct {
		files          map[string]string
		file           string // of the template, by flag
		body, want     string
		tokenizer      bool
		path, tokenIsA string
	}{
		"of the configuration": {files: map[string]string{"tokenizer_config.json": `{"bos_token":"<b>","eos_token":{"content":"<e>"},"pad_token":null,` +
			`"chat_template":"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined }}{{ add_generation_prompt }}"}`},
			tokenizer: true, body: line, want: "<b>p<e>FalseTrue"},
		"by its name": {files: map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"tools {{ tools[0].function.name }}"},` +
			`{"name":"default","template":"default {{ tools is none }}"}]}`}, tokenizer: true, body: line, want: "default True"},
		"of tools": {files: map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"tools {{ tools[0].function.name }}"},` +
			`{"name":"default","template":"default"}]}`}, tokenizer: true,
			body: strings.Replace(line, `"messages"`, `"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none","messages"`, 1), want: "tools f"},
		"of a file beside it": {files: map[string]string{"tokenizer_config.json": `{"bos_token":"<b>"}`, "chat_template.jinja": "{{ bos_token }}own"},
			tokenizer: true, body: line, want: "<b>own"},
		"by flag": {files: map[string]string{"tokenizer_config.json": `{"bos_token":"<b>","chat_template":"not this"}`, "mine": "{{ bos_token }}mine"},
			tokenizer: true, file: "mine", body: line, want: "<b>mine"},
		"without a tokenizer": {files: map[string]string{"mine": "{{ bos_token }}mine"}, file: "mine", body: line, want: "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, tt.files)
			cfg := openai.Config{}
			if tt.tokenizer {
				cfg.Tokenizer = dir
			}
			if tt.file != "" {
				cfg.ChatTemplate = filepath.Join(dir, tt.file)
			}
			s := serve(t, cfg, textModel("m", "python", says("a"), "text_input"))
			if got := s.post("/v1/chat/completions", tt.body); !strings.HasPrefix(got, "200 ") {
				t.Fatal(got)
			}
			if got := textOf(s.core.Last().Inputs[0].Data); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWrongTokenizersAreRefused(t *testing.T) {
	dir := folder(t, map[string]string{"none.json": "{}", "broken.json": "{", "number.json": `{"chat_template":3}`, "syntax.json": `{"chat_template":"{% if %}"}`,
		"syntax": "{% foo %}"})
	for _, cfg := range []openai.Config{
		{Tokenizer: dir}, {Tokenizer: filepath.Join(dir, "none.json")}, {Tokenizer: filepath.Join(dir, "broken.json")},
		{Tokenizer: filepath.Join(dir, "number.json")}, {Tokenizer: filepath.Join(dir, "syntax.json")},
		{ChatTemplate: filepath.Join(dir, "syntax")}, {ChatTemplate: filepath.Join(dir, "missing")},
	} {
		if _, err := openai.LoadTemplate(cfg.Tokenizer, cfg.ChatTemplate); err == nil {
			t.Errorf("%s %s: no error", cfg.Tokenizer, cfg.ChatTemplate)
		}
	}
}

func TestChatsHaveTheFormOfTriton(t *testing.T) {
	dir := folder(t, map[string]string{"plain": "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}", "endless": "{% set ns = namespace(s='a') %}" +
		"{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "wrong": "{{ messages[0].content + 1 }}"})
	s := serve(t, openai.Config{ChatTemplate: filepath.Join(dir, "plain")}, textModel("m", "python", says("a", "b"), "text_input"), textModel("one", "python", says("a"), "text_input"))
	want := `200 {"id":"ID","choices":[{"finish_reason":"stop","index":0,"message":{"content":"a","tool_calls":null,"role":"assistant","function_call":null},` +
		`"logprobs":null}],"created":0,"model":"one","system_fingerprint":null,"object":"chat.completion","usage":{"prompt_tokens":4,"total_tokens":6,"completion_tokens":2}}`
	if got := s.post("/v1/chat/completions", strings.Replace(line, `"m"`, `"one"`, 1)); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	chunk := func(content, role, reason string) string {
		return `data: {"id":"ID","choices":[{"delta":{"content":"` + content + `","function_call":null,"role":` + role + `},"logprobs":null,"finish_reason":` + reason +
			`,"index":0}],"created":0,"model":"m","system_fingerprint":null,"object":"chat.completion.chunk","usage":null}` + "\n\n"
	}
	want = "200 " + chunk("", `"assistant"`, "null") + chunk("a", "null", "null") + chunk("b", "null", "null") + chunk("", "null", `"stop"`) + "data: [DONE]\n\n"
	if got := s.post("/v1/chat/completions", strings.Replace(line, `{`, `{"stream":true,`, 1)); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	for file, want := range map[string]string{
		"endless": `503 {"detail":"request needs `, "wrong": `500 {"detail":"line 1: unsupported operand type(s) for +: 'str' and 'int'"`, "": `500 {"detail":"Unknown tokenizer"`,
	} {
		cfg := openai.Config{}
		if file != "" {
			cfg.ChatTemplate = filepath.Join(dir, file)
		}
		s := serve(t, cfg, textModel("m", "python", says("a"), "text_input"))
		if got := s.post("/v1/chat/completions", line); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
}
