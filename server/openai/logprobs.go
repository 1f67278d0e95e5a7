package openai

import (
	"strconv"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// logprobsPerByte is about how many bytes it takes to read a byte of probabilities and to
// write it as OpenAI does.
const logprobsPerByte = 16

// token is a candidate for a position of a text.
type token struct {
	text        jsontext.String
	probability []byte // a logarithm, as the model writes it
	rank        int64
}

// logprobs returns what a reply has in "logprobs": of the output of that name, the JSON
//
//	[{"<token id>": {"logprob": -0.1, "rank": 1, "decoded_token": " a"}, …}, …]
//
// with an object for each position, or null. The caller gives taken bytes of JSON back.
func (g *generation) logprobs(r *infer.Response) (text []byte, taken int64, err error) {
	out := g.output(r, "logprobs")
	if out == nil || !g.wantLogprobs {
		return nil, 0, nil
	}
	scan := infer.ScanBytes(out.Data, 2)
	if out.DataType != infer.Bytes || scan.Count != 1 || scan.Rest != 0 {
		return nil, 0, infer.Errorf(infer.Internal, "the model's logprobs are no single string")
	}
	taken = logprobsPerByte * int64(len(out.Data))
	if err := g.charge.Take(memory.JSON, taken); err != nil {
		return nil, 0, err
	}
	if text, err = g.readLogprobs(out.Data[4:]); err != nil {
		g.charge.Give(memory.JSON, taken)
		return nil, 0, err
	}
	return text, taken, nil
}

func (g *generation) readLogprobs(source []byte) ([]byte, error) {
	doc, err := new(jsontext.Scanner).Scan(&g.charge, source)
	if err != nil {
		return nil, wrongLogprobs(err)
	}
	root := doc.Root()
	if root.IsNull() {
		return nil, nil
	}
	positions, err := root.Elements()
	if err != nil {
		return nil, wrongLogprobs(err)
	}
	var list [][]token
	for p, ok := positions.Next(); ok; p, ok = positions.Next() {
		candidates, err := candidatesOf(p)
		if err != nil {
			return nil, wrongLogprobs(err)
		}
		if len(candidates) > 0 {
			list = append(list, candidates)
		}
	}
	if g.chat {
		return appendChatLogprobs(nil, list), nil
	}
	return g.appendTextLogprobs(nil, list), nil
}

func wrongLogprobs(err error) error {
	return infer.Errorf(infer.Internal, "the model's logprobs cannot be read: %v", err)
}

// candidatesOf returns the candidates for a position in the model's order, but that the
// chosen one, whose rank is the lowest, is first and stands there twice.
func candidatesOf(position jsontext.Value) ([]token, error) {
	if !position.IsObject() {
		return nil, infer.Errorf(infer.Internal, "a position is %s, want an object", position.Brief())
	}
	list := []token{{}}
	chosen := 1
	members := position.Members()
	for _, v, ok := members.Next(); ok; _, v, ok = members.Next() {
		var one token
		probability, rank, text := v.Member("logprob"), v.Member("rank"), v.Member("decoded_token")
		if !probability.Exists() {
			return nil, infer.Errorf(infer.Internal, "a token has no logprob")
		}
		if _, err := probability.Float(); err != nil {
			return nil, err
		}
		one.probability = probability.Raw()
		var err error
		if text.Exists() && !text.IsNull() {
			if one.text, err = text.Text(); err != nil {
				return nil, err
			}
		}
		if rank.Exists() && !rank.IsNull() {
			if one.rank, err = rank.Int(); err != nil {
				return nil, err
			}
		}
		if list = append(list, one); one.rank < list[chosen].rank {
			chosen = len(list) - 1
		}
	}
	if len(list) == 1 {
		return nil, nil
	}
	list[0] = list[chosen]
	return list, nil
}

// appendTextLogprobs appends those of a completion. Offsets count characters from the
// beginning of the text, over all chunks of a stream.
func (g *generation) appendTextLogprobs(b []byte, list [][]token) []byte {
	each := func(b []byte, name string, one func(b []byte, candidates []token) []byte) []byte {
		b = append(append(append(b, '"'), name...), `":[`...)
		for i, candidates := range list {
			if i > 0 {
				b = append(b, ',')
			}
			b = one(b, candidates)
		}
		return append(b, ']')
	}
	b = each(append(b, '{'), "text_offset", func(b []byte, candidates []token) []byte {
		b = strconv.AppendInt(b, g.offset, 10)
		g.offset += int64(utf8.RuneCountInString(candidates[0].text.String()))
		return b
	})
	b = each(append(b, ','), "token_logprobs", func(b []byte, candidates []token) []byte { return append(b, candidates[0].probability...) })
	b = each(append(b, ','), "tokens", func(b []byte, candidates []token) []byte { return appendText(b, candidates[0].text.String()) })
	b = each(append(b, ','), "top_logprobs", func(b []byte, candidates []token) []byte {
		b = append(b, '{')
		for i, c := range candidates[1:] {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(appendText(b, c.text.String()), ':'), c.probability...)
		}
		return append(b, '}')
	})
	return append(b, '}')
}

// appendChatLogprobs appends those of a chat.
func appendChatLogprobs(b []byte, list [][]token) []byte {
	b = append(b, `{"content":[`...)
	for i, candidates := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendChatToken(b, &candidates[0]), `,"top_logprobs":[`...)
		for j := range candidates[1:] {
			if j > 0 {
				b = append(b, ',')
			}
			b = append(appendChatToken(b, &candidates[1+j]), '}')
		}
		b = append(b, `]}`...)
	}
	return append(b, `]}`...)
}

// appendChatToken appends the object of a token without its end.
func appendChatToken(b []byte, t *token) []byte {
	text := t.text.String()
	b = appendText(append(b, `{"token":`...), text)
	b = append(append(b, `,"logprob":`...), t.probability...)
	b = append(b, `,"bytes":[`...)
	for i := range len(text) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(text[i]), 10)
	}
	return append(b, ']')
}

// appendLogprobs appends what logprobs has returned.
func appendLogprobs(b, logprobs []byte) []byte {
	b = append(b, `"logprobs":`...)
	if logprobs == nil {
		return append(b, "null"...)
	}
	return append(b, logprobs...)
}
