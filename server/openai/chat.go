package openai

import (
	"strconv"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/openai/jinja"
)

// toolUse has the fields of a chat that concern tools.
type toolUse struct {
	list     jsontext.Value
	some     bool   // the list is present
	choice   string // none, auto, required, "function" for a named one, or "" if absent
	function string
}

func (t *toolUse) read(f *fields) {
	if t.list, t.some = f.field("tools"); t.some {
		f.checkTools(t.list)
	}
	choice, given := f.field("tool_choice")
	if !given {
		return
	}
	if s, err := choice.Text(); err == nil {
		if t.choice = oneOf(s, "none", "auto", "required"); t.choice == "" {
			f.wrong("tool_choice", choice, "literal_error", "Input should be 'none', 'auto' or 'required'")
		}
		return
	}
	t.choice = "function"
	if named, ok := f.inside("tool_choice", choice); ok {
		named.field("type")
		if function, ok := named.required("function"); ok {
			if inner, ok := named.inside("function", function); ok {
				t.function = inner.name("name", inner.requiredText)
			}
		}
	}
}

// oneOf returns the word that equals s, or "".
func oneOf(s jsontext.String, words ...string) string {
	for _, word := range words {
		if s.Is(word) {
			return word
		}
	}
	return ""
}

// each calls visit with each element of a list that is an object.
func (f *fields) each(name string, list jsontext.Value, visit func(inner *fields)) {
	elements, err := list.Elements()
	if err != nil {
		f.wrong(name, list, "list_type", "Input should be a valid list")
		return
	}
	i := 0
	for e, ok := elements.Next(); ok; e, ok = elements.Next() {
		if f.full() {
			return
		}
		if inner, ok := f.inside(name+"."+strconv.Itoa(i), e); ok {
			visit(inner)
		}
		i++
	}
	if i == 0 {
		f.wrongWith(name, list, "too_short", "List should have at least 1 item after validation, not 0",
			[]byte(`{"field_type":"List","min_length":1,"actual_length":0}`))
	}
}

func (f *fields) checkTools(list jsontext.Value) {
	f.each("tools", list, func(tool *fields) {
		var kind, text jsontext.String
		if tool.requiredText("type", &kind) && !kind.Is("function") {
			tool.wrong("type", tool.object.Member("type"), "literal_error", "Input should be 'function'")
		}
		if v, ok := tool.required("function"); ok {
			if function, ok := tool.inside("function", v); ok {
				function.requiredText("name", &text)
				function.optionalText("description", &text)
			}
		}
	})
}

// checkMessages requires at least one message, each of a known role.
func (f *fields) checkMessages(list jsontext.Value) {
	f.each("messages", list, func(m *fields) {
		var role, text jsontext.String
		if !m.requiredText("role", &role) {
			return
		}
		content, hasContent := m.field("content")
		switch oneOf(role, "system", "user", "assistant", "tool", "function") {
		case "system", "tool":
			m.requiredText("content", &text)
			if role.Is("tool") {
				m.requiredText("tool_call_id", &text)
			}
		case "function":
			m.requiredText("name", &text)
			m.required("content")
			m.optionalText("content", &text)
		case "user":
			if !hasContent {
				m.required("content")
				if content.Exists() {
					m.wrong("content", content, "string_type", "Input should be a valid string")
				}
			} else if content.IsArray() {
				m.checkParts(content)
			} else {
				m.text("content", content, &text)
			}
		case "assistant":
			m.optionalText("content", &text)
			if calls, ok := m.field("tool_calls"); ok {
				m.checkCalls(calls)
			}
		default:
			m.wrong("role", m.object.Member("role"), "literal_error", "Input should be 'system', 'user', 'assistant', 'tool' or 'function'")
		}
	})
}

func (f *fields) checkParts(list jsontext.Value) {
	f.each("content", list, func(part *fields) {
		var kind, text jsontext.String
		if !part.requiredText("type", &kind) {
			return
		}
		switch oneOf(kind, "text", "image_url") {
		case "text":
			part.requiredText("text", &text)
		case "image_url":
			part.required("image_url")
		default:
			part.wrong("type", part.object.Member("type"), "literal_error", "Input should be 'text' or 'image_url'")
		}
	})
}

func (f *fields) checkCalls(list jsontext.Value) {
	f.each("tool_calls", list, func(call *fields) {
		var text jsontext.String
		call.requiredText("id", &text)
		call.requiredText("type", &text)
		if v, ok := call.required("function"); ok {
			if function, ok := call.inside("function", v); ok {
				function.requiredText("name", &text)
				function.requiredText("arguments", &text)
			}
		}
	})
}

// checkChat rejects unsupported fields of a chat, in Triton's order.
func (g *generation) checkChat(s *sampling, tools *toolUse, bias, options bool, messages jsontext.Value) error {
	if g.h.template == nil {
		return errNoTokenizer
	}
	if err := oneChoice(s.n); err != nil {
		return err
	}
	switch {
	case bias:
		return refuse("logit bias is not currently supported")
	case s.wantLogprobs && !g.isVLLM():
		return errLogprobs
	case !s.wantLogprobs && s.topLogprobs.asked():
		return refuse("`top_logprobs` can only be used when `logprobs` is True")
	}
	if err := tools.check(); err != nil {
		return err
	}
	if options && !g.stream {
		return errOptions
	}
	elements, _ := messages.Elements()
	for m, ok := elements.Next(); ok; m, ok = elements.Next() {
		content := m.Member("content")
		if !content.Exists() || !content.IsArray() {
			continue
		}
		parts, _ := content.Elements()
		for part, ok := parts.Next(); ok; part, ok = parts.Next() {
			if kind, err := part.Member("type").Text(); err == nil && kind.Is("image_url") {
				return refuse("only text message is supported, but got image_url")
			}
		}
	}
	return nil
}

// check rejects tools if their calls would have to be parsed from the model's text.
func (t *toolUse) check() error {
	const unparsed = `calls of tools are not parsed: with tools, tool_choice must be "none"`
	switch {
	case t.choice == "required" && !t.some:
		return refuse(`"required" tool choice requires CreateChatCompletionRequest.tools to be provided`)
	case t.choice == "function" && !t.some:
		return refuse("Named tool choice requires CreateChatCompletionRequest.tools to be provided")
	case t.choice == "function" && !t.has(t.function):
		return refuse("Tool '%s' has not been passed in `tools`.", t.function)
	case t.choice == "auto", t.choice == "required", t.choice == "function", t.some && t.choice == "":
		return refuse(unparsed)
	}
	return nil
}

func (t *toolUse) has(name string) bool {
	elements, _ := t.list.Elements()
	for tool, ok := elements.Next(); ok; tool, ok = elements.Next() {
		if s, err := tool.Member("function").Member("name").Text(); err == nil && s.Is(name) {
			return true
		}
	}
	return false
}

// addChat renders the messages into a prompt and adds the inputs for it.
func (g *generation) addChat(r *http1.Request, list jsontext.Value, tools *toolUse, s *sampling, c *budget.Charge) error {
	chat := newChat(r, c)
	messages := chat.list(list, chat.message)
	prompt, err := g.h.template.render(chat, messages, chat.tools(tools))
	if err != nil {
		return err
	}
	return addInputs(g, plainText(prompt), s, c)
}

// message returns the parts of a message that templates see.
func (t *chatValues) message(m jsontext.Value) jinja.Value {
	role, _ := m.Member("role").Text() // checkMessages has looked
	d := t.dict(named{"role", m.Member("role")}, named{"content", m.Member("content")})
	switch {
	case role.Is("user"):
		if name := m.Member("name"); name.Exists() && !name.IsNull() {
			t.Set(d, "name", t.value(name))
		}
	case role.Is("tool"):
		t.Set(d, "tool_call_id", t.value(m.Member("tool_call_id")))
	case role.Is("assistant"):
		if calls := m.Member("tool_calls"); calls.Exists() && !calls.IsNull() {
			t.Set(d, "tool_calls", t.list(calls, t.call))
		}
	}
	return d
}

// call returns a call of a tool with its arguments decoded.
func (t *chatValues) call(c jsontext.Value) jinja.Value {
	text, _ := c.Member("function").Member("arguments").Text() // checkCalls has looked
	source := buffer{charge: t.charge, kind: budget.JSON}
	arguments := source.plain(text)
	if source.err != nil {
		t.Fail(source.err)
		return nil
	}
	doc, err := new(jsontext.Scanner).Scan(t.charge, arguments)
	if err != nil {
		t.Fail(infer.AsError(err))
		return nil
	}
	function := t.dict(named{"name", c.Member("function").Member("name")}, named{"arguments", doc.Root()})
	source.free()
	d := t.dict(named{"id", c.Member("id")}, named{"type", c.Member("type")})
	t.Set(d, "function", function)
	return d
}

// tools returns the tools as templates see them: with all members, null for absent ones.
func (t *chatValues) tools(use *toolUse) jinja.Value {
	if !use.some {
		return nil
	}
	return t.list(use.list, func(tool jsontext.Value) jinja.Value {
		from := tool.Member("function")
		d := t.dict(named{"type", tool.Member("type")})
		t.Set(d, "function", t.dict(named{"description", from.Member("description")}, named{"name", from.Member("name")},
			named{"parameters", from.Member("parameters")}))
		return d
	})
}
