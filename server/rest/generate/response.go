package generate

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// member is a member of a response's object.
type member struct {
	name string
	kind memberKind
	at   int // of the parameter or output
}

// memberKind also determines which of several members of one name is written: the lowest.
type memberKind uint8

const (
	memberID memberKind = iota
	memberModel
	memberVersion
	memberParameter
	memberOutput
)

// Append appends a response without an error as a JSON object, whose members are sorted by name.
// The text stays charged until Sent. After an error b is unchanged.
func (q *Request) Append(b []byte, r *infer.Response) ([]byte, error) {
	whole := b
	if err := q.listMembers(r); err != nil {
		return whole, err
	}
	b, err := q.grow(b, len("{"))
	if err != nil {
		return whole, err
	}
	b = append(b, '{')
	for i, m := range q.members {
		first := i == 0
		if !first && m.name == q.members[i-1].name {
			continue
		}
		if b, err = q.appendMember(b, r, m, first); err != nil {
			return whole, err
		}
	}
	if b, err = q.grow(b, len("}\n\n")); err != nil {
		return whole, err
	}
	return append(b, '}'), nil
}

// Sent releases the charge of the texts of Append and AppendEvent.
func (q *Request) Sent() { q.charge.Give(budget.JSON, q.charge.Taken(budget.JSON)) }

// listMembers lists the members of a response, sorted.
func (q *Request) listMembers(r *infer.Response) (err error) {
	const others = 3
	q.members, err = budget.Grow(&q.charge, budget.Bodies, q.members[:0], others+len(r.Parameters)+len(r.Outputs))
	if err != nil {
		return err
	}
	list := append(q.members, member{"model_name", memberModel, 0}, member{"model_version", memberVersion, 0}) // bound: there is room
	if r.ID != "" {
		list = append(list, member{"id", memberID, 0}) // bound: there is room
	}
	for i := range r.Parameters {
		list = append(list, member{r.Parameters[i].Name, memberParameter, i}) // bound: there is room
	}
	for i := range r.Outputs {
		list = append(list, member{r.Outputs[i].Name, memberOutput, i}) // bound: there is room
	}
	slices.SortStableFunc(list, func(a, b member) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind)) })
	q.members = list
	return nil
}

// grow returns b with room for n more bytes.
func (q *Request) grow(b []byte, n int) ([]byte, error) {
	return budget.Grow(&q.charge, budget.JSON, b, n)
}

// memberBytes bounds the JSON of a member without its name and texts.
const memberBytes = 64

// appendMember appends a member of the object of r.
func (q *Request) appendMember(b []byte, r *infer.Response, m member, first bool) ([]byte, error) {
	text := "" // of the value
	switch m.kind {
	case memberID:
		text = r.ID
	case memberModel:
		text = r.Model
	case memberParameter:
		text = r.Parameters[m.at].String
	}
	b, err := q.grow(b, memberBytes+jsontext.TextBytes(m.name)+jsontext.TextBytes(text))
	if err != nil {
		return b, err
	}
	if !first {
		b = append(b, ',')
	}
	b = append(jsontext.AppendString(b, m.name), ':')
	switch m.kind {
	case memberVersion:
		return append(strconv.AppendInt(append(b, '"'), r.Version, 10), '"'), nil
	case memberParameter:
		return values.AppendParameter(b, &r.Parameters[m.at]), nil
	case memberOutput:
		return q.appendOutput(b, &r.Outputs[m.at])
	default:
		return jsontext.AppendString(b, text), nil
	}
}

// appendOutput appends the only element of a tensor, or an array of all.
func (q *Request) appendOutput(b []byte, out *infer.Tensor) ([]byte, error) {
	if err := server.CheckOutputSize(out); err != nil {
		return b, err
	}
	if values.IsSingle(out) {
		return values.AppendElements(&q.charge, b, out)
	}
	b, err := values.AppendElements(&q.charge, append(b, '['), out)
	if err == nil {
		b, err = q.grow(b, len("]"))
	}
	return append(b, ']'), err
}

// AppendEvent appends the event of a response: its object, or its error.
func (q *Request) AppendEvent(b []byte, r *infer.Response) []byte {
	b = append(b, "data: "...)
	err := error(nil)
	if r.Err != nil {
		err = r.Err
	} else {
		b, err = q.Append(b, r)
	}
	if err != nil {
		b = q.AppendError(b, err)
	}
	return append(b, '\n', '\n')
}

// AppendError appends the object of an error.
func (q *Request) AppendError(b []byte, err error) []byte {
	text := infer.AsError(err).Message
	larger, refused := q.grow(b, memberBytes+jsontext.TextBytes(text))
	if refused != nil {
		larger, text = b, infer.AsError(refused).Message
	}
	return append(jsontext.AppendString(append(larger, `{"error":`...), text), '}')
}
