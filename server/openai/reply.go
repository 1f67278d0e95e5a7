package openai

import (
	"strconv"

	"github.com/nereid-serving/nereid/infer"
)

// appendWhole appends the reply to a request that is not streamed.
func (g *generation) appendWhole(b []byte, r *infer.Response, text []byte) []byte {
	b = g.appendStart(b)
	if g.chat {
		b = append(b, `{"finish_reason":"stop","index":0,"message":{"content":`...)
		b = appendContent(b, text)
		b = append(b, `,"tool_calls":null,"role":"assistant","function_call":null},"logprobs":null}`...)
		b = g.appendRest(b, "chat.completion")
	} else {
		b = append(b, `{"finish_reason":"stop","index":0,"logprobs":null,"text":`...)
		b = append(appendContent(b, text), '}')
		b = g.appendRest(b, "text_completion")
	}
	in, counted := g.count(r, "num_input_tokens")
	out, also := g.count(r, "num_output_tokens")
	if !counted || !also {
		return append(b, "null}"...)
	}
	return append(appendUsage(b, in, out), '}')
}

// appendStart appends a body up to its first choice.
func (g *generation) appendStart(b []byte) []byte {
	b = append(append(b, `{"id":"`...), g.id...)
	return append(b, `","choices":[`...)
}

// appendRest appends what stands between the choices and the usage.
func (g *generation) appendRest(b []byte, object string) []byte {
	b = strconv.AppendInt(append(b, `],"created":`...), g.created, 10)
	b = appendText(append(b, `,"model":`...), g.model)
	b = append(append(b, `,"system_fingerprint":null,"object":"`...), object...)
	return append(b, `","usage":`...)
}

func appendUsage(b []byte, in, out int64) []byte {
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), in, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), in+out, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), out, 10)
	return append(b, '}')
}

// appendChunk appends the event of a piece of the text. The last one says why it ends.
func (g *generation) appendChunk(b, text []byte, last bool) []byte {
	reason := "null"
	if last {
		reason = `"stop"`
	}
	b = g.appendStart(append(b, "data: "...))
	if g.chat {
		b = appendContent(append(b, `{"delta":{"content":`...), text)
		b = append(b, `,"function_call":null,"role":null},"logprobs":null,"finish_reason":`...)
		b = append(append(b, reason...), `,"index":0}`...)
	} else {
		b = append(append(b, `{"finish_reason":`...), reason...)
		b = appendContent(append(b, `,"index":0,"logprobs":null,"text":`...), text)
		b = append(b, '}')
	}
	return append(g.appendRest(b, g.chunkObject()), "null}\n\n"...)
}

// appendRole appends the first event of a chat.
func (g *generation) appendRole(b []byte) []byte {
	b = g.appendStart(append(b, "data: "...))
	b = append(b, `{"delta":{"content":"","function_call":null,"role":"assistant"},"logprobs":null,"finish_reason":null,"index":0}`...)
	return append(g.appendRest(b, g.chunkObject()), "null}\n\n"...)
}

// appendUsageChunk appends the event that counts the tokens of the whole stream.
func (g *generation) appendUsageChunk(b []byte, in, out int64) []byte {
	b = g.appendRest(g.appendStart(append(b, "data: "...)), g.chunkObject())
	return append(appendUsage(b, in, out), "}\n\n"...)
}

func (g *generation) chunkObject() string {
	if g.chat {
		return "chat.completion.chunk"
	}
	return "text_completion"
}
