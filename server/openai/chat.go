package openai

import (
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/openai/jinja"
)

// toolUse is what a client says of tools.
type toolUse struct {
	list     jsontext.Value
	some     bool   // there is a list
	choice   string // none, auto, required, "function" for one by its name; "" if nothing is said
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
		switch t.choice = s.String(); t.choice {
		case "none", "auto", "required":
		default:
			f.wrong("tool_choice", choice, "literal_error", "Input should be 'none', 'auto' or 'required'")
		}
		return
	}
	t.choice = "function"
	if named, ok := f.inside("tool_choice", choice); ok {
		named.field("type")
		if function, ok := named.required("function"); ok {
			if inner, ok := named.inside("function", function); ok {
				inner.requiredText("name", &t.function)
			}
		}
	}
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
		if len(*f.faults) >= mostFaults {
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
		var kind, text string
		if tool.requiredText("type", &kind) && kind != "function" {
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

// checkMessages wants at least one message, each of a known role.
func (f *fields) checkMessages(list jsontext.Value) {
	f.each("messages", list, func(m *fields) {
		var role, text string
		if !m.requiredText("role", &role) {
			return
		}
		content, hasContent := m.field("content")
		switch role {
		case "system", "tool":
			m.requiredText("content", &text)
			if role == "tool" {
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
		var kind, text string
		if !part.requiredText("type", &kind) {
			return
		}
		switch kind {
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
		var text string
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

// checkChat refuses unsupported fields of a chat, in Triton's order.
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

// check refuses tools whose calls would have to be found in the model's text.
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

// valuesPerByte is about how many bytes the values of a template take for a byte of JSON.
const valuesPerByte = 8

// addChat makes the inputs of a chat: its prompt is what the template makes of the
// messages, of a body of so many bytes.
func (g *generation) addChat(list jsontext.Value, tools *toolUse, s *sampling, size int64) error {
	defer func() { g.charge.Give(memory.JSON, g.charge.Taken(memory.JSON)) }()
	if err := g.charge.Take(memory.JSON, valuesPerByte*size); err != nil {
		return err
	}
	messages := jinja.List{}
	elements, _ := list.Elements()
	for m, ok := elements.Next(); ok; m, ok = elements.Next() {
		one, err := templateMessage(m)
		if err != nil {
			return err
		}
		messages = append(messages, one)
	}
	prompt, err := g.h.template.render(messages, tools.value(), &g.charge)
	if err != nil {
		return err
	}
	return g.addInputs(jsontext.String{Raw: []byte(prompt)}, s)
}

// templateMessage has of a message what templates see.
func templateMessage(m jsontext.Value) (*jinja.Dict, error) {
	role, err := m.Member("role").Text()
	if err != nil {
		return nil, err // checkMessages has looked
	}
	d := &jinja.Dict{}
	d.Set("role", role.String())
	d.Set("content", templateValue(m.Member("content")))
	switch {
	case role.Is("user"):
		if name := m.Member("name"); name.Exists() && !name.IsNull() {
			d.Set("name", templateValue(name))
		}
	case role.Is("tool"):
		d.Set("tool_call_id", templateValue(m.Member("tool_call_id")))
	case role.Is("assistant"):
		calls := m.Member("tool_calls")
		if !calls.Exists() || calls.IsNull() {
			break
		}
		list := jinja.List{}
		elements, _ := calls.Elements()
		for c, ok := elements.Next(); ok; c, ok = elements.Next() {
			one, err := templateCall(c)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
		}
		d.Set("tool_calls", list)
	}
	return d, nil
}

// templateCall has a call of a tool with its arguments decoded.
func templateCall(c jsontext.Value) (*jinja.Dict, error) {
	text, err := c.Member("function").Member("arguments").Text()
	if err != nil {
		return nil, err // checkCalls has looked
	}
	doc, err := new(jsontext.Scanner).Scan(nil, []byte(text.String()))
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "%v", err)
	}
	function := &jinja.Dict{}
	function.Set("name", templateValue(c.Member("function").Member("name")))
	function.Set("arguments", templateValue(doc.Root()))
	d := &jinja.Dict{}
	d.Set("id", templateValue(c.Member("id")))
	d.Set("type", templateValue(c.Member("type")))
	d.Set("function", function)
	return d, nil
}

// value has the tools as templates see them: all members, null if they are absent.
func (t *toolUse) value() jinja.Value {
	if !t.some {
		return nil
	}
	list := jinja.List{}
	elements, _ := t.list.Elements()
	for tool, ok := elements.Next(); ok; tool, ok = elements.Next() {
		function := &jinja.Dict{}
		for _, name := range []string{"description", "name", "parameters"} {
			function.Set(name, templateValue(tool.Member("function").Member(name)))
		}
		d := &jinja.Dict{}
		d.Set("type", templateValue(tool.Member("type")))
		d.Set("function", function)
		list = append(list, d)
	}
	return list
}
