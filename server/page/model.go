package page

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/page/form"
)

// mostConfig bounds the shown text of a configuration, in bytes.
const mostConfig = 256 << 10

// modelRequest has the parts of a model's page besides the model.
type modelRequest struct {
	name    string
	version int64
	status  int // of the reply; 0 is 200

	problem string       // error of a form's action
	fields  []form.Field // as sent; nil: proposals
	extra   extraFields
	answer  *outcome
}

// modelPage is the page of one model.
type modelPage struct {
	frame
	Model    string
	Path     string // of the model; its forms post below it
	Versions []row
	State    state
	Reason   string
	Problem  string
	Controls bool
	Ready    bool

	Shown     string // the version of figures, form and configuration
	Backend   string
	Platform  string
	Batch     int32
	Decoupled bool
	Sequences bool
	Closed    bool // the model is restricted
	Figures   *figures

	Form    bool
	Fields  []form.Field
	Outputs []tensor
	Extra   extraFields
	Answer  *outcome

	Config bool // configurations are not restricted
	File   string
	Read   text
	Whole  text
}

// tensor is an output in the configuration.
type tensor struct{ Name, Type, Dims string }

// text is a text that may have been cut.
type text struct {
	Text string
	Cut  bool
	None string // why it is missing
}

func (p *Pages) serveModel(w *http1.Reply, r *http1.Request, q *modelRequest) {
	page := modelPage{
		frame: p.frame(q.name, modelPath(q.name, q.version)), Model: q.name, Path: modelPath(q.name, q.version), Problem: q.problem,
		Controls: p.controls(), Closed: !p.open(server.GroupModelRepository), Config: p.open(server.GroupModelConfig), Answer: q.answer, Extra: q.extra,
	}
	if page.Closed {
		p.fail(w, http.StatusForbidden, "--http-restricted-api closes the group model-repository to browsers.")
		return
	}
	info, err := p.core.Model(q.name, q.version)
	page.Ready = err == nil
	now := p.snapshot(r.Context(), 0)
	if !p.versions(&page, q, info, &now) && !page.Ready {
		p.fail(w, http.StatusNotFound, "There is no such model in the repository, or no such version.")
		return
	}
	if page.Ready {
		page.describe(info, p.open)
		page.Fields = q.fields
		if q.fields == nil {
			page.Fields = form.Fields(info.Config)
		}
	}
	page.Figures = now.of(q.name, page.Shown)
	if page.Config {
		page.readConfig(p.files, info)
	}
	status := q.status
	if status == 0 {
		status = http.StatusOK
	}
	p.show(w, status, "model", page)
}

// versions lists the versions of the model and finds the state of the shown one; known reports
// whether the repository has that one.
func (p *Pages) versions(page *modelPage, q *modelRequest, info *models.Info, now *snapshot) (known bool) {
	index, err := p.index(now)
	if err != nil {
		page.Problem = infer.AsError(err).Message
	}
	for _, entry := range index {
		if entry.GetName() != q.name {
			continue
		}
		one := p.row(entry, &snapshot{})
		shown := page.State == state{}
		switch {
		case info != nil:
			shown = entry.GetVersion() == versionText(info.Version)
		case q.version != infer.LatestVersion:
			shown = entry.GetVersion() == versionText(q.version)
		}
		if shown {
			known = true
			page.State, page.Shown = one.State, entry.GetVersion()
			if one.Reason != "" {
				page.Reason = entry.GetReason()
			}
		}
		page.Versions = append(page.Versions, one) // bound: the versions of a model
	}
	if info != nil {
		page.Shown = versionText(info.Version)
		if page.State == (state{}) {
			page.State = ready
		}
	}
	return known
}

// describe adds fields of the configuration.
func (m *modelPage) describe(info *models.Info, open func(...string) bool) {
	config := info.Config
	m.Backend, m.Platform, m.Batch, m.Decoupled = config.GetBackend(), config.GetPlatform(), config.GetMaxBatchSize(), info.Decoupled()
	m.Sequences = config.GetSequenceBatching() != nil
	if !open(server.GroupMetadata) {
		return
	}
	m.Form = open(server.GroupInference)
	for _, out := range config.GetOutput() {
		m.Outputs = append(m.Outputs, tensor{out.GetName(), infer.DataType(out.GetDataType()).String(), infer.ShapeString(out.GetDims())}) // bound: the outputs of the config
	}
}

// readConfig adds the configuration, as it is in the repository and completed.
func (m *modelPage) readConfig(files Files, info *models.Info) {
	file, content, err := files.ConfigText(m.Model, mostConfig+1)
	m.File = file
	switch {
	case err != nil:
		m.Read.None = infer.AsError(err).Message
	case content == nil:
		m.Read.None = "There is no such file: the configuration is the model's own (auto_complete_config)."
	default:
		m.Read = cut(content)
	}
	if info == nil {
		m.Whole.None = "No version is ready."
		return
	}
	var b bytes.Buffer
	if len(info.JSON) > mostConfig || json.Indent(&b, info.JSON, "", "  ") != nil { // bound: mostConfig
		m.Whole = cut(info.JSON)
		return
	}
	m.Whole = cut(b.Bytes())
}

// cut shortens a long text.
func cut(content []byte) (t text) {
	if len(content) > mostConfig {
		content, t.Cut = content[:mostConfig], true
	}
	t.Text = strings.ToValidUTF8(string(content), string(utf8.RuneError))
	return t
}
