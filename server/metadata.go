package server

import (
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// serverMetadata returns the reply to GET /v2.
func serverMetadata(name, version string) []byte {
	b := jsontext.AppendString([]byte(`{"name":`), name)
	b = jsontext.AppendString(append(b, `,"version":`...), version)
	b = append(b, `,"extensions":[`...)
	for i, e := range Extensions() {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsontext.AppendString(b, e)
	}
	return append(b, ']', '}')
}

// serveModelMetadata serves GET /v2/models/M. A version in the path is the only
// one that the reply lists.
func (h *HTTP) serveModelMetadata(w *http1.Reply, model string, version int64) error {
	info, err := h.core.Model(model, version)
	if err != nil {
		return err
	}
	versions := []int64{version}
	if version == infer.LatestVersion {
		versions = h.core.ReadyVersions(model)
	}
	b := jsontext.AppendString([]byte(`{"name":`), info.Name)
	b = append(b, `,"versions":[`...)
	for i, v := range versions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(append(b, '"'), v, 10), '"')
	}
	b = jsontext.AppendString(append(b, `],"platform":`...), info.Platform())
	batch := int64(0) // the dimension in front
	if info.Config.GetMaxBatchSize() > 0 {
		batch = -1
	}
	b = append(b, `,"inputs":[`...)
	for i, in := range info.Config.GetInput() {
		b = appendTensorMetadata(b, i, in.GetName(), in.GetDataType(), batch, in.GetDims())
	}
	b = append(b, `],"outputs":[`...)
	for i, out := range info.Config.GetOutput() {
		b = appendTensorMetadata(b, i, out.GetName(), out.GetDataType(), batch, out.GetDims())
	}
	w.Send(http.StatusOK, append(b, ']', '}'))
	return nil
}

func appendTensorMetadata(b []byte, i int, name string, d kserve.DataType, batch int64, dims []int64) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	b = jsontext.AppendString(append(b, `{"name":`...), name)
	b = append(b, `,"datatype":"`...)
	b = append(b, infer.DataType(d).String()...)
	b = appendShape(append(b, `","shape":`...), batch, dims)
	return append(b, '}')
}

// serveModelConfig serves GET …/config.
func (h *HTTP) serveModelConfig(w *http1.Reply, model string, version int64) error {
	info, err := h.core.Model(model, version)
	if err != nil {
		return err
	}
	w.Send(http.StatusOK, info.JSON)
	return nil
}
