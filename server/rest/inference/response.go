package inference

import (
	"context"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// textPerByte is about how many bytes of JSON a byte of a tensor becomes.
const textPerByte = 4

// Encode writes the one response that Infer has taken: JSON, and behind it the binary
// outputs in their order. Outputs that are wanted in clients' regions are written there. Both are valid until Release.
func (q *Request) Encode(ctx context.Context) (head []byte, blobs [][]byte, err error) {
	if q.single.Count != 1 {
		return nil, nil, infer.Errorf(infer.Internal, "expected a single response, got %d", q.single.Count)
	}
	resp := q.single.First
	if resp.Err != nil {
		return nil, nil, resp.Err
	}
	blobs = q.blobs[:0]
	b := append(q.out[:0], '{')
	if resp.ID != "" {
		b = jsontext.AppendString(append(b, `"id":`...), resp.ID)
		b = append(b, ',')
	}
	b = jsontext.AppendString(append(b, `"model_name":`...), resp.Model)
	b = strconv.AppendInt(append(b, `,"model_version":"`...), resp.Version, 10)
	b = append(b, '"')
	if len(resp.Parameters) > 0 {
		b = appendParameters(append(b, `,"parameters":`...), resp.Parameters)
	}
	b = append(b, `,"outputs":[`...)
	for i := range resp.Outputs {
		if i > 0 {
			b = append(b, ',')
		}
		out := &resp.Outputs[i]
		form := q.form(out.Name)
		if form.classes > 0 {
			classes, err := server.Classify(out, form.classes, q.target.Info().Config.GetMaxBatchSize() > 0, q.target.Info().Labels[out.Name])
			if err != nil {
				return nil, nil, err
			}
			out = &classes
		}
		b = appendOutputHead(b, out)
		if form.place != nil {
			// A client that has given up may use its memory for something else.
			if !q.left && !out.InPlace() {
				if err := form.place.Write(ctx, out.Name, out.Data); err != nil {
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
				blobs = append(blobs, out.Data)
			}
			continue
		}
		if err := server.CheckOutputSize(out); err != nil {
			return nil, nil, err
		}
		if len(out.Data) > SmallBody {
			if err := q.charge.Take(memory.JSON, int64(len(out.Data))*textPerByte); err != nil {
				return nil, nil, err
			}
		}
		if b, err = values.AppendElements(append(b, `,"data":[`...), out); err != nil {
			return nil, nil, err
		}
		b = append(b, ']', '}')
	}
	q.out, q.blobs = append(b, ']', '}'), blobs
	return q.out, q.blobs, nil
}

// Compress returns head and blobs as one in a coding. It charges for the compressed bytes;
// where there is no memory for them ok is false, and the reply goes out as it is, which
// every client takes.
func (q *Request) Compress(coding http1.Coding, head []byte, blobs [][]byte) (packed []byte, ok bool) {
	size := int64(len(head))
	for _, blob := range blobs {
		size += int64(len(blob))
	}
	if size > SmallBody && q.charge.Take(memory.Decompression, size) != nil {
		return nil, false
	}
	packed, err := q.codec.codings.Compress(nil, coding, append([][]byte{head}, blobs...)...)
	return packed, err == nil
}

func appendOutputHead(b []byte, out *infer.Tensor) []byte {
	b = jsontext.AppendString(append(b, `{"name":`...), out.Name)
	b = append(b, `,"datatype":"`...)
	b = append(b, out.DataType.String()...)
	return jsontext.AppendInts(append(b, `","shape":`...), out.Shape)
}

func appendParameters(b []byte, params []infer.Parameter) []byte {
	b = append(b, '{')
	for i := range params {
		if i > 0 {
			b = append(b, ',')
		}
		p := &params[i]
		b = values.AppendParameter(append(jsontext.AppendString(b, p.Name), ':'), p)
	}
	return append(b, '}')
}
