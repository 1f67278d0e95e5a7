package rest

import (
	"net/http"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest/openapi"
	"github.com/nereid-serving/nereid/server/rest/pages"
)

// maxDescribed bounds the models on the page and in the OpenAPI document, which are generated for
// each request.
const maxDescribed = 500

const (
	// The memory for a model, for a tensor, for a dimension and for a byte of a name in the OpenAPI
	// document.
	describedBytes, describedTensorBytes, describedDims, describedNames = 80 << 10, 9 << 10, 640, 60
	// The same for the page.
	shownBytes, shownTensorBytes, shownDims, shownNames = 2 << 10, 256, 160, 12
)

// servePage serves the resources outside of the protocol: the page at / and /docs, and
// /openapi.json. It reports false for other paths. As in Triton / does not exist for clients
// without an Accept header, such as probes.
func (h *Endpoints) servePage(w *http1.Reply, r *http1.Request) bool {
	path := r.Path()
	accept, says := r.Header("Accept")
	if path != "/openapi.json" && path != "/docs" && (path != "/" || !says) {
		return false
	}
	// The page contains data of each of these groups.
	for _, group := range []string{server.GroupMetadata, server.GroupModelRepository, server.GroupModelConfig} {
		if !h.Allow(w, r, group) {
			return true
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		RefuseMethod(w)
		return true
	}
	served, left, err := h.served()
	if err != nil {
		WriteError(w, err)
		return true
	}
	tensors, dims, names := 0, 0, 0
	for _, info := range served {
		names += len(info.Name) + len(openapi.Description(info))
		for _, in := range info.Config.GetInput() {
			names += len(in.GetName())
			dims += len(in.GetDims())
		}
		for _, out := range info.Config.GetOutput() {
			names += len(out.GetName())
			dims += len(out.GetDims())
		}
		tensors += len(info.Config.GetInput()) + len(info.Config.GetOutput())
	}
	if path == "/openapi.json" {
		taken := int64(describedBytes*(len(served)+1) + describedTensorBytes*tensors + describedDims*dims + describedNames*names)
		if err := w.Charge().Take(budget.Replies, taken); err != nil {
			WriteError(w, err)
			return true
		}
		document, err := openapi.Document(h.cfg.ServerVersion, served, left)
		if err != nil {
			WriteError(w, err)
			return true
		}
		w.Charge().Give(budget.Replies, max(taken-int64(len(document)), 0))
		w.ContentType = typeJSON
		w.Send(http.StatusOK, document)
		return true
	}
	if err := w.Charge().Take(budget.Replies, int64(shownBytes*(len(served)+1)+shownTensorBytes*tensors+shownDims*dims+shownNames*names)); err != nil {
		WriteError(w, err)
		return true
	}
	page := pages.Page{Addresses: h.cfg.Addresses, Left: left}
	for _, info := range served {
		m := pages.Model{Name: info.Name}
		for _, in := range info.Config.GetInput() {
			m.Inputs = append(m.Inputs, in.GetName()+" "+infer.DataType(in.GetDataType()).String()+" "+infer.ShapeString(in.GetDims())) // bound: charged
		}
		for _, out := range info.Config.GetOutput() {
			m.Outputs = append(m.Outputs, out.GetName()+" "+infer.DataType(out.GetDataType()).String()+" "+infer.ShapeString(out.GetDims())) // bound: charged
		}
		page.Models = append(page.Models, m) // bound: maxDescribed
	}
	if strings.Contains(accept, "text/html") {
		w.ContentType = "text/html; charset=utf-8"
		w.Lines += "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nX-Content-Type-Options: nosniff\r\n"
		w.Send(http.StatusOK, page.HTML())
		return true
	}
	w.ContentType = "text/plain; charset=utf-8"
	w.Send(http.StatusOK, page.Text())
	return true
}

// served lists the ready models, the latest version of each, in the order of the repository's
// index; left is the number of further ones.
func (h *Endpoints) served() (list []*models.Info, left int, err error) {
	index, err := h.parts.Core.Index(true)
	if err != nil {
		return nil, 0, err
	}
	seen := make(map[string]bool)
	for _, entry := range index {
		if seen[entry.GetName()] {
			continue
		}
		seen[entry.GetName()] = true // bound: the models of the repository
		if len(list) == maxDescribed {
			left++
			continue
		}
		// A model that was unloaded meanwhile, or whose name is in two repositories, is left out.
		if info, err := h.parts.Core.Model(entry.GetName(), infer.LatestVersion); err == nil {
			list = append(list, info) // bound: maxDescribed
		}
	}
	return list, left, nil
}
