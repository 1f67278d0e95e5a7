package rest

import (
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// textPerByte is about how many bytes of JSON a byte of a tensor becomes.
const textPerByte = 4

// reply writes the response: JSON, then the binary outputs in their order.
func (c *inferCall) reply(w *http1.Reply, r *http1.Request) error {
	resp := c.answer.first
	var few [8][]byte
	blobs := few[:0]
	b := append(c.out[:0], '{')
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
		form := c.form(out.Name)
		if form.classes > 0 {
			classes, err := server.Classify(out, form.classes, c.target.Info().Config.GetMaxBatchSize() > 0, c.target.Info().Labels[out.Name])
			if err != nil {
				return err
			}
			out = &classes
		}
		b = appendOutputHead(b, out)
		if form.binary {
			b = strconv.AppendInt(append(b, `,"parameters":{"binary_data_size":`...), int64(len(out.Data)), 10)
			b = append(b, '}', '}')
			if len(out.Data) > 0 {
				blobs = append(blobs, out.Data)
			}
			continue
		}
		if err := server.CheckOutputSize(out); err != nil {
			return err
		}
		if len(out.Data) > smallBody {
			if err := c.charge.Take(memory.JSON, int64(len(out.Data))*textPerByte); err != nil {
				return err
			}
		}
		var err error
		if b, err = appendJSONData(append(b, `,"data":`...), out); err != nil {
			return err
		}
		b = append(b, '}')
	}
	b = append(b, ']', '}')
	c.out = b
	w.ContentType = typeJSON
	if len(blobs) > 0 {
		w.ContentType, w.Extra = typeBinary, http1.Number{Name: headerLengthName, Value: len(b)}
	}
	if coding := r.AcceptedCoding(); coding != http1.Identity && c.canPack(b, blobs) {
		if packed, err := c.h.codecs.Compress(nil, coding, append([][]byte{b}, blobs...)...); err == nil {
			w.Coding = coding
			w.Send(http.StatusOK, packed)
			return nil
		}
	}
	w.Send(http.StatusOK, b, blobs...)
	return nil
}

// canPack charges for a reply's compressed bytes. Where there is no memory for them
// the reply goes out as it is, which every client takes.
func (c *inferCall) canPack(head []byte, blobs [][]byte) bool {
	size := int64(len(head))
	for _, blob := range blobs {
		size += int64(len(blob))
	}
	return size <= smallBody || c.charge.Take(memory.Decompression, size) == nil
}

func appendOutputHead(b []byte, out *infer.Tensor) []byte {
	b = jsontext.AppendString(append(b, `{"name":`...), out.Name)
	b = append(b, `,"datatype":"`...)
	b = append(b, out.DataType.String()...)
	return appendShape(append(b, `","shape":`...), 0, out.Shape)
}

func appendParameters(b []byte, params []infer.Parameter) []byte {
	b = append(b, '{')
	for i := range params {
		if i > 0 {
			b = append(b, ',')
		}
		p := &params[i]
		b = append(jsontext.AppendString(b, p.Name), ':')
		switch p.Kind {
		case infer.IntParameter:
			b = strconv.AppendInt(b, p.Int, 10)
		case infer.BoolParameter:
			b = strconv.AppendBool(b, p.Bool)
		case infer.DoubleParameter:
			b = jsontext.AppendFloat(b, p.Double)
		default:
			b = jsontext.AppendString(b, p.String)
		}
	}
	return append(b, '}')
}
