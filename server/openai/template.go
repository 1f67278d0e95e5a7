package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/openai/jinja"
)

// chatTemplate turns the messages of a chat into a prompt, as a tokenizer says.
type chatTemplate struct {
	plain, withTools *jinja.Template
	tokens           map[string]jinja.Value // special ones, by the names of their variables
}

// tokenizerConfig is what tokenizer_config.json has that matters here.
type tokenizerConfig struct {
	ChatTemplate json.RawMessage `json:"chat_template"`
	tokens       map[string]json.RawMessage
}

// specialTokens are variables of templates.
var specialTokens = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// loadTemplate reads the template of a tokenizer: a folder, or its tokenizer_config.json.
// file is a template that takes the place of the tokenizer's own. Without both there is
// none.
func loadTemplate(tokenizer, file string) (*chatTemplate, error) {
	if tokenizer == "" && file == "" {
		return nil, nil
	}
	t := &chatTemplate{tokens: map[string]jinja.Value{}}
	sources := map[string]string{}
	if tokenizer != "" {
		folder := tokenizer
		if info, err := os.Stat(tokenizer); err == nil && info.IsDir() {
			tokenizer = filepath.Join(tokenizer, "tokenizer_config.json")
		} else {
			folder = filepath.Dir(tokenizer)
		}
		config, err := readTokenizer(tokenizer)
		if err != nil {
			return nil, err
		}
		config.readTokens(t.tokens)
		if err := config.readSources(sources); err != nil {
			return nil, fmt.Errorf("%s: %w", tokenizer, err)
		}
		// Newer tokenizers have it in a file of its own.
		switch own, err := os.ReadFile(filepath.Join(folder, "chat_template.jinja")); {
		case err == nil:
			sources["default"] = string(own)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("read chat template: %w", err)
		}
	}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read chat template: %w", err)
		}
		sources = map[string]string{"default": string(text)}
	}
	plain, ok := sources["default"]
	if !ok {
		return nil, fmt.Errorf("%s has no chat_template", tokenizer)
	}
	var err error
	if t.plain, err = jinja.Parse(plain); err != nil {
		return nil, fmt.Errorf("parse chat template: %w", err)
	}
	if withTools, ok := sources["tool_use"]; ok {
		if t.withTools, err = jinja.Parse(withTools); err != nil {
			return nil, fmt.Errorf("parse chat template tool_use: %w", err)
		}
	}
	return t, nil
}

func readTokenizer(path string) (*tokenizerConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w", err)
	}
	c := &tokenizerConfig{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("read tokenizer %s: %w", path, err)
	}
	if err := json.Unmarshal(text, &c.tokens); err != nil {
		return nil, fmt.Errorf("read tokenizer %s: %w", path, err)
	}
	return c, nil
}

// readTokens adds the special tokens: a text each, or an object with it.
func (c *tokenizerConfig) readTokens(tokens map[string]jinja.Value) {
	for _, name := range specialTokens {
		var text string
		var object struct{ Content string }
		switch raw := c.tokens[name]; {
		case raw == nil || string(raw) == "null":
		case json.Unmarshal(raw, &text) == nil:
			tokens[name] = text
		case json.Unmarshal(raw, &object) == nil:
			tokens[name] = object.Content
		}
	}
}

// readSources adds the template, or the list of templates by their names.
func (c *tokenizerConfig) readSources(sources map[string]string) error {
	var one string
	var list []struct{ Name, Template string }
	switch {
	case c.ChatTemplate == nil || string(c.ChatTemplate) == "null":
	case json.Unmarshal(c.ChatTemplate, &one) == nil:
		sources["default"] = one
	default:
		if err := json.Unmarshal(c.ChatTemplate, &list); err != nil {
			return fmt.Errorf("chat_template: %w", err)
		}
		for _, t := range list {
			sources[t.Name] = t.Template
		}
	}
	return nil
}

// render returns the prompt of messages. What a template refuses by raise_exception is the
// client's error, all else the template's.
func (t *chatTemplate) render(messages, tools jinja.Value, c *memory.Charge) (string, error) {
	variables := map[string]jinja.Value{"messages": messages, "tools": tools, "documents": nil, "add_generation_prompt": true}
	for name, token := range t.tokens {
		variables[name] = token
	}
	template := t.plain
	if tools != nil && t.withTools != nil {
		template = t.withTools
	}
	prompt, err := template.Render(variables, jinja.Limits{Room: func(n int64) error { return c.Take(memory.JSON, n) }})
	var raised *jinja.RaisedError
	if errors.As(err, &raised) {
		return "", refuse("%s", raised.Message)
	}
	return prompt, err
}

// templateValue makes a value for templates of one in JSON.
func templateValue(v jsontext.Value) jinja.Value {
	if !v.Exists() || v.IsNull() {
		return nil
	}
	if s, err := v.Text(); err == nil {
		return s.String()
	}
	if b, err := v.Bool(); err == nil {
		return b
	}
	if n, err := v.Int(); err == nil {
		return n
	}
	if v.IsArray() {
		list := jinja.List{}
		elements, _ := v.Elements()
		for e, ok := elements.Next(); ok; e, ok = elements.Next() {
			list = append(list, templateValue(e))
		}
		return list
	}
	if v.IsObject() {
		d := &jinja.Dict{}
		for m := v.Members(); ; {
			name, value, ok := m.Next()
			if !ok {
				return d
			}
			d.Set(name.String(), templateValue(value))
		}
	}
	x, _ := v.Float()
	return x
}

var errNoTokenizer = &refusal{status: http.StatusInternalServerError, text: "Unknown tokenizer"}
