package generate

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// textPerByte is about how many bytes of JSON a byte of a tensor becomes.
const textPerByte = 4

// member is a member of the object that a response becomes.
type member struct {
	name string
	kind memberKind
	at   int // of the parameter or output
}

// memberKind also says which of members of one name is written: the lowest.
type memberKind uint8

const (
	memberID memberKind = iota
	memberModel
	memberVersion
	memberParameter
	memberOutput
)

// Append appends a response without an error as a JSON object, its members in the order of
// their names. After an error b is what it was.
func (q *Request) Append(b []byte, r *infer.Response) ([]byte, error) {
	whole := b
	defer q.charge.Give(memory.JSON, q.charge.Taken(memory.JSON))
	q.members = append(q.members[:0], member{"model_name", memberModel, 0}, member{"model_version", memberVersion, 0})
	if r.ID != "" {
		q.members = append(q.members, member{"id", memberID, 0})
	}
	for i := range r.Parameters {
		q.members = append(q.members, member{r.Parameters[i].Name, memberParameter, i})
	}
	for i := range r.Outputs {
		q.members = append(q.members, member{r.Outputs[i].Name, memberOutput, i})
	}
	slices.SortStableFunc(q.members, func(a, b member) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind)) })
	b = append(b, '{')
	for i, m := range q.members {
		if i > 0 {
			if m.name == q.members[i-1].name {
				continue
			}
			b = append(b, ',')
		}
		b = append(jsontext.AppendString(b, m.name), ':')
		switch m.kind {
		case memberID:
			b = jsontext.AppendString(b, r.ID)
		case memberModel:
			b = jsontext.AppendString(b, r.Model)
		case memberVersion:
			b = append(strconv.AppendInt(append(b, '"'), r.Version, 10), '"')
		case memberParameter:
			b = values.AppendParameter(b, &r.Parameters[m.at])
		case memberOutput:
			var err error
			if b, err = q.appendOutput(b, &r.Outputs[m.at]); err != nil {
				return whole, err
			}
		}
	}
	return append(b, '}'), nil
}

// appendOutput appends the only element of a tensor, or an array of all.
func (q *Request) appendOutput(b []byte, out *infer.Tensor) ([]byte, error) {
	if err := server.CheckOutputSize(out); err != nil {
		return b, err
	}
	if size := int64(len(out.Data)); size > server.InlineTensor {
		if err := q.charge.Take(memory.JSON, size*textPerByte); err != nil {
			return b, err
		}
	}
	if values.IsSingle(out) {
		return values.AppendElements(b, out)
	}
	b, err := values.AppendElements(append(b, '['), out)
	return append(b, ']'), err
}

// AppendEvent appends the event that a response becomes: its object, or its error.
func (q *Request) AppendEvent(b []byte, r *infer.Response) []byte {
	b = append(b, "data: "...)
	err := error(nil)
	if r.Err != nil {
		err = r.Err
	} else {
		b, err = q.Append(b, r)
	}
	if err != nil {
		b = AppendError(b, err)
	}
	return append(b, '\n', '\n')
}

// AppendError appends the object that an error becomes.
func AppendError(b []byte, err error) []byte {
	b = jsontext.AppendString(append(b, `{"error":`...), infer.AsError(err).Message)
	return append(b, '}')
}
