package openai

import (
	"errors"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// token is a candidate for a position of a text.
type token struct {
	text        jsontext.String
	probability []byte // a logarithm, as the model writes it
	rank        int64
}

// logprobs writes "logprobs" of a reply: of the output of that name, the JSON
//
//	[{"<token id>": {"logprob": -0.1, "rank": 1, "decoded_token": " a"}, …}, …]
//
// with an object for each position, or null. r may be nil.
func (g *generation) logprobs(b *buffer, r *infer.Response) {
	b.raw(`"logprobs":`)
	var out *infer.Tensor
	if r != nil && g.wantLogprobs {
		out = g.output(r, "logprobs")
	}
	if out == nil {
		b.raw("null")
		return
	}
	scan := infer.ScanBytes(out.Data, 2)
	if out.DataType != infer.Bytes || scan.Count != 1 || scan.Rest != 0 {
		b.fail(infer.Errorf(infer.Internal, "the model's logprobs are not a single string"))
		return
	}
	doc, err := new(jsontext.Scanner).Scan(b.charge, out.Data[4:])
	if refused := (*infer.Error)(nil); errors.As(err, &refused) { // by the account
		b.fail(refused)
		return
	}
	if err != nil {
		b.fail(wrongLogprobs(err))
		return
	}
	p := probabilities{buffer: b, positions: doc.Root(), unescaped: buffer{charge: b.charge, kind: b.kind}}
	defer p.unescaped.free()
	switch {
	case p.positions.IsNull():
		b.raw("null")
	case g.chat:
		p.ofChat()
	default:
		p.ofText(&g.offset)
	}
	b.fail(p.unescaped.err)
}

func wrongLogprobs(err error) error {
	return infer.Errorf(infer.Internal, "the model's logprobs cannot be read: %v", err)
}

// probabilities writes the model's log probabilities of the tokens of a text. It reads the model's
// JSON once for each list of the reply and keeps nothing.
type probabilities struct {
	*buffer
	positions jsontext.Value
	unescaped buffer
}

// list writes a list. one writes the element of each position that has a chosen token.
func (p *probabilities) list(one func(position jsontext.Value, chosen *token)) {
	p.raw("[")
	elements, err := p.positions.Elements()
	if err != nil {
		p.buffer.fail(wrongLogprobs(err))
		return
	}
	first := true
	for position, ok := elements.Next(); ok && p.err == nil; position, ok = elements.Next() {
		chosen, found, err := chosenToken(position)
		switch {
		case err != nil:
			p.buffer.fail(wrongLogprobs(err))
		case found:
			if !first {
				p.raw(",")
			}
			first = false
			one(position, &chosen)
		}
	}
	p.raw("]")
}

// each calls one for each candidate for a position, in the model's order, separated by commas.
func (p *probabilities) each(position jsontext.Value, one func(candidate *token)) {
	first := true
	members := position.Members()
	for _, v, ok := members.Next(); ok && p.err == nil; _, v, ok = members.Next() {
		candidate, err := tokenOf(v)
		if err != nil {
			p.buffer.fail(wrongLogprobs(err))
			return
		}
		if !first {
			p.raw(",")
		}
		first = false
		one(&candidate)
	}
}

// chosenToken returns the candidate of the lowest rank for a position, if there is one.
func chosenToken(position jsontext.Value) (chosen token, found bool, err error) {
	if !position.IsObject() {
		return chosen, false, infer.Errorf(infer.Internal, "a position is %s, want an object", position.Brief())
	}
	members := position.Members()
	for _, v, ok := members.Next(); ok; _, v, ok = members.Next() {
		one, err := tokenOf(v)
		if err != nil {
			return chosen, false, err
		}
		if !found || one.rank < chosen.rank {
			chosen, found = one, true
		}
	}
	return chosen, found, nil
}

func tokenOf(v jsontext.Value) (one token, err error) {
	probability, rank, text := v.Member("logprob"), v.Member("rank"), v.Member("decoded_token")
	if !probability.Exists() {
		return one, infer.Errorf(infer.Internal, "a token has no logprob")
	}
	if _, err := probability.Float(); err != nil {
		return one, err
	}
	one.probability = probability.Raw()
	if text.Exists() && !text.IsNull() {
		if one.text, err = text.Text(); err != nil {
			return one, err
		}
	}
	if rank.Exists() && !rank.IsNull() {
		one.rank, err = rank.Int()
	}
	return one, err
}

func (p *probabilities) text(t *token) { quote(p.buffer, p.unescaped.plain(t.text)) }

// ofText writes the probabilities of a completion. Offsets count characters from the beginning of
// the text, over all chunks of a stream.
func (p *probabilities) ofText(offset *int64) {
	p.raw(`{"text_offset":`)
	p.list(func(_ jsontext.Value, chosen *token) {
		p.int(*offset)
		*offset += int64(utf8.RuneCount(p.unescaped.plain(chosen.text)))
	})
	p.raw(`,"token_logprobs":`)
	p.list(func(_ jsontext.Value, chosen *token) { p.bytes(chosen.probability) })
	p.raw(`,"tokens":`)
	p.list(func(_ jsontext.Value, chosen *token) { p.text(chosen) })
	p.raw(`,"top_logprobs":`)
	p.list(func(position jsontext.Value, _ *token) {
		p.raw("{")
		p.each(position, func(candidate *token) {
			p.text(candidate)
			p.raw(":")
			p.bytes(candidate.probability)
		})
		p.raw("}")
	})
	p.raw("}")
}

// ofChat writes the probabilities of a chat.
func (p *probabilities) ofChat() {
	p.raw(`{"content":`)
	p.list(func(position jsontext.Value, chosen *token) {
		p.token(chosen)
		p.raw(`,"top_logprobs":[`)
		p.each(position, func(candidate *token) {
			p.token(candidate)
			p.raw("}")
		})
		p.raw("]}")
	})
	p.raw("}")
}

// token writes the object of a token without its end.
func (p *probabilities) token(t *token) {
	text := p.unescaped.plain(t.text)
	p.raw(`{"token":`)
	quote(p.buffer, text)
	p.raw(`,"logprob":`)
	p.bytes(t.probability)
	p.raw(`,"bytes":[`)
	for i, c := range text {
		if i > 0 {
			p.raw(",")
		}
		if p.int(int64(c)); p.err != nil {
			break
		}
	}
	p.raw("]")
}
