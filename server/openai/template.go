package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/openai/jinja"
)

// chatTemplate renders the messages of a chat into a prompt, as a tokenizer defines it.
type chatTemplate struct {
	plain, withTools *jinja.Template
	tokens           map[string]jinja.Value // special ones, by the names of their variables
}

// tokenizerConfig has the parts of tokenizer_config.json that templates need.
type tokenizerConfig struct {
	ChatTemplate json.RawMessage `json:"chat_template"`
	tokens       map[string]json.RawMessage
}

// specialTokens are the names of template variables.
var specialTokens = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// loadTemplate reads the template of a tokenizer: a folder, or its tokenizer_config.json.
// file is a template that replaces the tokenizer's own. Without
// either it returns nil.
//
// bound: the operator's files
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
		// Newer tokenizers have the template in a file of its own.
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

// bound: the operator's file
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

// readTokens adds the special tokens. Each is a text, or an object with the text.
//
// bound: the operator's file
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
//
// bound: the operator's file
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

// mostRendered bounds the bytes of the values, the texts and the prompt of one chat.
const mostRendered = 256 << 20

// chatValues creates the values of one chat. It charges scans of JSON to charge.
type chatValues struct {
	*jinja.Meter
	charge *budget.Charge
}

// newChat returns the meter of the chat of r. It charges c, and stops when the client disconnects.
func newChat(r *http1.Request, c *budget.Charge) *chatValues {
	left := int64(mostRendered)
	return &chatValues{charge: c, Meter: jinja.NewMeter(jinja.Limits{
		Room: func(n int64) error {
			if left -= n; left < 0 {
				return refuse("messages: the chat's template needs more than %d bytes of memory for them", mostRendered)
			}
			return c.Take(budget.JSON, n)
		},
		Ended: func() error {
			if r.Context().Err() == nil {
				return nil
			}
			return infer.Errorf(infer.Unavailable, "the request has ended before its chat was rendered")
		},
	})}
}

// render returns the prompt of messages. A raise_exception of the template, and too many steps,
// are the client's errors, all others the template's.
func (t *chatTemplate) render(chat *chatValues, messages, tools jinja.Value) (string, error) {
	variables := map[string]jinja.Value{"messages": messages, "tools": tools, "documents": nil, "add_generation_prompt": true}
	for name, token := range t.tokens {
		variables[name] = token // bound: specialTokens
	}
	template := t.plain
	if tools != nil && t.withTools != nil {
		template = t.withTools
	}
	prompt, err := chat.Render(template, variables)
	return prompt, ofTemplate(err)
}

// ofTemplate returns the client's error for an error of a rendering.
func ofTemplate(err error) error {
	var raised *jinja.RaisedError
	var steps *jinja.StepsError
	switch {
	case errors.As(err, &raised):
		return refuse("%s", raised.Message)
	case errors.As(err, &steps):
		return refuse("messages: %v", steps)
	}
	return err
}

// named is a future member of a dict.
type named struct {
	name  string
	value jsontext.Value
}

// dict returns a dict of these members.
func (t *chatValues) dict(members ...named) *jinja.Dict {
	d := t.Dict()
	for _, one := range members {
		t.Set(d, one.name, t.value(one.value))
	}
	return d
}

// list returns a list with a value for each element of an array.
func (t *chatValues) list(array jsontext.Value, value func(jsontext.Value) jinja.Value) (list jinja.List) {
	elements, _ := array.Elements()
	for e, ok := elements.Next(); ok && t.Err() == nil; e, ok = elements.Next() {
		list = t.Append(list, value(e))
	}
	return list
}

// text returns a JSON string without its escapes.
func (t *chatValues) text(s jsontext.String) string {
	if !s.Escaped {
		return t.Text(s.Raw)
	}
	n := s.Len()
	if !t.Take(n) {
		return ""
	}
	return t.Text(s.AppendTo(make([]byte, 0, n))) // bound: taken
}

// value returns a JSON value as templates see it.
func (t *chatValues) value(v jsontext.Value) jinja.Value {
	switch {
	case !v.Exists() || v.IsNull():
		return nil
	case v.IsArray():
		return t.list(v, t.value)
	case v.IsObject():
		return t.object(v)
	}
	if s, err := v.Text(); err == nil {
		return t.text(s)
	}
	if b, err := v.Bool(); err == nil {
		return b
	}
	if n, err := v.Int(); err == nil {
		return n
	}
	if !t.Take(len(v.Raw())) { // Float copies a long number
		return nil
	}
	x, _ := v.Float()
	return x
}

func (t *chatValues) object(v jsontext.Value) jinja.Value {
	d, members := t.Dict(), v.Members()
	for name, value, ok := members.Next(); ok && t.Err() == nil; name, value, ok = members.Next() {
		key := t.text(name)
		t.Set(d, key, t.value(value))
	}
	return d
}

var errNoTokenizer = &refusal{status: http.StatusInternalServerError, text: "Unknown tokenizer"}
