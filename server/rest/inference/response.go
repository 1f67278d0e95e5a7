package inference

import (
	"context"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// Encode encodes the response: JSON, followed by the binary outputs in order. It writes outputs
// that belong in clients' regions there. Both results are valid until Release.
func (q *Request) Encode(ctx context.Context) (head []byte, blobs [][]byte, err error) {
	if q.single.Count != 1 {
		return nil, nil, infer.Errorf(infer.Internal, "expected a single response, got %d", q.single.Count)
	}
	resp := q.single.First
	if resp.Err != nil {
		return nil, nil, resp.Err
	}
	blobs = q.blobs[:0]
	b, err := q.grow(q.out[:0], headBytes+jsontext.TextBytes(resp.ID)+jsontext.TextBytes(resp.Model))
	if err != nil {
		return nil, nil, err
	}
	b = append(b, '{')
	if resp.ID != "" {
		b = jsontext.AppendString(append(b, `"id":`...), resp.ID)
		b = append(b, ',')
	}
	b = jsontext.AppendString(append(b, `"model_name":`...), resp.Model)
	b = strconv.AppendInt(append(b, `,"model_version":"`...), resp.Version, 10)
	b = append(b, '"')
	if len(resp.Parameters) > 0 {
		if b, err = q.appendParameters(append(b, `,"parameters":`...), resp.Parameters); err != nil {
			return nil, nil, err
		}
	}
	b = append(b, `,"outputs":[`...)
	for i := range resp.Outputs {
		out := &resp.Outputs[i]
		form := q.form(out.Name)
		if form.classes > 0 {
			classes, err := server.Classify(&q.charge, out, form.classes, q.target.Info().Config.GetMaxBatchSize() > 0, q.target.Info().Labels[out.Name])
			if err != nil {
				return nil, nil, err
			}
			out = &classes
		}
		if b, err = q.grow(b, headBytes+jsontext.TextBytes(out.Name)+dimBytes*len(out.Shape)); err != nil {
			return nil, nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendOutputHead(b, out)
		if form.region != nil {
			// A client that has disconnected may use its memory for something else.
			if !q.left && !out.InPlace() {
				if err := form.region.Write(ctx, out.Name, out.Data); err != nil {
					return nil, nil, err
				}
			}
			b = append(b, '}')
			continue
		}
		if form.binary {
			b = strconv.AppendInt(append(b, `,"parameters":{"binary_data_size":`...), int64(len(out.Data)), 10)
			b = append(b, '}', '}')
			if len(out.Data) > 0 {
				blobs = append(blobs, out.Data) // bound: as many as outputs, which the response has
			}
			continue
		}
		if err := server.CheckOutputSize(out); err != nil {
			return nil, nil, err
		}
		if b, err = values.AppendElements(&q.charge, append(b, `,"data":[`...), out); err != nil {
			return nil, nil, err
		}
		if b, err = q.grow(b, headBytes); err != nil {
			return nil, nil, err
		}
		b = append(b, ']', '}')
	}
	q.out, q.blobs = append(b, ']', '}'), blobs
	return q.out, q.blobs, nil
}

// headBytes bounds the JSON of a response, of an output or of a parameter without names, shapes and
// values.
const headBytes = 128

// grow returns b with room for n more bytes.
//
// bound: charged
func (q *Request) grow(b []byte, n int) ([]byte, error) {
	return budget.Grow(&q.charge, budget.JSON, b, n)
}

// Compress returns head and blobs as one compressed body, and charges for it. ok is false if there
// is no memory: the reply is then sent uncompressed, which every client accepts.
func (q *Request) Compress(coding http1.Coding, head []byte, blobs [][]byte) (packed []byte, ok bool) {
	size := int64(len(head))
	for _, blob := range blobs {
		size += int64(len(blob))
	}
	if size > SmallBody && q.charge.Take(budget.Decompression, size) != nil {
		return nil, false
	}
	packed, err := q.codec.codings.Compress(nil, coding, append([][]byte{head}, blobs...)...) // bound: the outputs; charged
	return packed, err == nil
}

func appendOutputHead(b []byte, out *infer.Tensor) []byte {
	b = jsontext.AppendString(append(b, `{"name":`...), out.Name)
	b = append(b, `,"datatype":"`...)
	b = append(b, out.DataType.String()...)
	return jsontext.AppendInts(append(b, `","shape":`...), out.Shape)
}

func (q *Request) appendParameters(b []byte, params []infer.Parameter) (_ []byte, err error) {
	b = append(b, '{')
	for i := range params {
		p := &params[i]
		if b, err = q.grow(b, headBytes+jsontext.TextBytes(p.Name)+jsontext.TextBytes(p.String)); err != nil {
			return b, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = values.AppendParameter(append(jsontext.AppendString(b, p.Name), ':'), p)
	}
	return append(b, '}'), nil
}
