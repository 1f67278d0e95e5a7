package rest

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// serveIndex serves POST /v2/repository/index.
func (h *Endpoints) serveIndex(w *http1.Reply, r *http1.Request, _ target) error {
	return h.bodies.Small(r, body.JSON(func(v jsontext.Value, _ *budget.Charge) error {
		only := false
		if ready := v.Member("ready"); ready.Exists() {
			var err error
			if only, err = ready.Bool(); err != nil {
				return infer.Errorf(infer.InvalidArg, "Invalid value for 'ready': expected a boolean")
			}
		}
		list, err := h.parts.Core.Index(only)
		if err != nil {
			return err
		}
		n := len("[]")
		for _, m := range list {
			n += memberBytes + jsontext.TextBytes(m.GetName()) + jsontext.TextBytes(m.GetVersion()) + jsontext.TextBytes(m.GetState()) + jsontext.TextBytes(m.GetReason())
		}
		return SendJSON(w, n, func(b []byte) []byte { return appendIndex(b, list) })
	}))
}

// memberBytes bounds the JSON of an object of a reply without its texts and lists.
const memberBytes = 128

// appendIndex appends the JSON of an index. It omits empty members: a model that was never loaded
// has only a name.
//
// bound: the caller has room
func appendIndex(b []byte, list []*kserve.RepositoryIndexResponse_ModelIndex) []byte {
	b = append(b, '[')
	for i, m := range list {
		b = appendComma(b, i)
		b = jsontext.AppendString(append(b, `{"name":`...), m.GetName())
		for _, member := range [...]struct{ name, value string }{
			{`,"version":`, m.GetVersion()}, {`,"state":`, m.GetState()}, {`,"reason":`, m.GetReason()},
		} {
			if member.value != "" {
				b = jsontext.AppendString(append(b, member.name...), member.value)
			}
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// serveLoad serves POST /v2/repository/models/M/load. The load goes on if the client disconnects.
func (h *Endpoints) serveLoad(w *http1.Reply, r *http1.Request, t target) error {
	if t.repository != "" {
		return server.ErrRepositoryName
	}
	return h.bodies.Whole(r, body.JSON(func(v jsontext.Value, c *budget.Charge) error {
		config, files, err := readLoadParameters(v, c)
		if err != nil {
			return err
		}
		if err := h.parts.Core.Load(r.Lifetime(), t.model, config, files); err != nil {
			return err
		}
		w.Send(http.StatusOK, nil)
		return nil
	}))
}

// loadFileBytes is the memory for the entries of a file in lists and maps.
const loadFileBytes = 256

// readLoadParameters reads the config and the files.
func readLoadParameters(v jsontext.Value, c *budget.Charge) (config string, files map[string][]byte, err error) {
	parameters := v.Member("parameters")
	if !parameters.Exists() {
		return "", nil, nil
	}
	if !parameters.IsObject() {
		return "", nil, jsontext.ErrNotObject
	}
	var seen server.Names
	names := []string{}
	for m := parameters.Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			return config, files, nil
		}
		text, err := value.Text()
		if err != nil {
			return "", nil, err
		}
		if n := name.Len(); n > len(server.FilePrefix)+budget.MaxName {
			return "", nil, infer.Errorf(infer.InvalidArg, "the name of a load parameter has %d bytes, but at most %d are allowed", n, len(server.FilePrefix)+budget.MaxName)
		}
		key := name.String() // bound: checked above
		path, isFile := strings.CutPrefix(key, server.FilePrefix)
		if !isFile && key != "config" {
			return "", nil, infer.Errorf(infer.Internal, "unexpected error on creating Triton parameter")
		}
		if !seen.Add(key, len(names), func(i int) string { return names[i] }) {
			continue
		}
		if !isFile {
			if err := models.CheckOverride(c.Limits(), text.Len()); err != nil {
				return "", nil, err
			}
		} else if most := c.Limits().LoadFiles; len(files) == most {
			return "", nil, infer.Errorf(infer.InvalidArg, "the request has more than %d files", most)
		}
		if err := c.Take(budget.JSON, int64(len(text.Raw)+len(key)+loadFileBytes)); err != nil {
			return "", nil, err
		}
		names = append(names, key) // bound: charged
		if !isFile {
			config = cmp.Or(text.String(), server.EmptyConfig) // bound: charged
			continue
		}
		if files == nil {
			files = map[string][]byte{}
		}
		files[path] = decodeBase64(text) // bound: charged
	}
}

// decodeBase64 decodes the standard alphabet leniently: it skips other characters, and the text may
// end anywhere.
func decodeBase64(s jsontext.String) []byte {
	text := s.Raw
	if s.Escaped {
		text = s.AppendTo(make([]byte, 0, s.Len())) // bound: a part of the body
	}
	out := make([]byte, 0, len(text)/4*3+3) // bound: charged
	bits, n := uint32(0), 0
	for _, c := range text {
		var v byte
		switch {
		case 'A' <= c && c <= 'Z':
			v = c - 'A'
		case 'a' <= c && c <= 'z':
			v = c - 'a' + 26
		case '0' <= c && c <= '9':
			v = c - '0' + 52
		case c == '+':
			v = 62
		case c == '/':
			v = 63
		default:
			continue
		}
		bits = bits<<6 | uint32(v)
		if n += 6; n >= 8 {
			n -= 8
			out = append(out, byte(bits>>n))
		}
	}
	return out
}

// serveUnload serves POST /v2/repository/models/M/unload.
func (h *Endpoints) serveUnload(w *http1.Reply, r *http1.Request, t target) error {
	if t.repository != "" {
		return server.ErrRepositoryName
	}
	return h.bodies.Small(r, body.JSON(func(v jsontext.Value, _ *budget.Charge) error {
		dependents := false
		if d := v.Member("parameters").Member("unload_dependents"); d.Exists() {
			dependents, _ = d.Bool() // any other value counts as false
		}
		if err := h.parts.Core.Unload(r.Lifetime(), t.model, dependents); err != nil {
			return err
		}
		w.Send(http.StatusOK, nil)
		return nil
	}))
}

// wantInstances is the expected body of a change of instances.
const wantInstances = `{"count":<number>,"group":<name>}, of which the group may be absent`

// serveInstances serves POST /v2/repository/models/M/instances, which Triton does not have:
// {"count":N} or {"count":N,"group":"G"} changes the number of instances in a group of the model.
// The change goes on if the client disconnects.
func (h *Endpoints) serveInstances(w *http1.Reply, r *http1.Request, t target) error {
	if t.repository != "" {
		return server.ErrRepositoryName
	}
	var group string
	var count int
	err := h.bodies.Small(r, func(text []byte, c *budget.Charge) (err error) {
		group, count, err = readInstances(c, t.model, text)
		return err
	})
	if err != nil {
		return err
	}
	list, err := h.parts.Core.SetInstances(r.Lifetime(), t.model, group, count)
	if err != nil {
		return err
	}
	n := memberBytes + jsontext.TextBytes(t.model)
	for i := range list {
		n += memberBytes + jsontext.TextBytes(list[i].Name)
	}
	return SendJSON(w, n, func(b []byte) []byte { return appendInstances(b, t.model, list) })
}

// readInstances reads that body strictly: an unknown member might have been meant. An absent group
// is empty.
func readInstances(c *budget.Charge, model string, source []byte) (group string, count int, err error) {
	refuse := func(format string, args ...any) (string, int, error) {
		return "", 0, infer.Errorf(infer.InvalidArg, "instances of model '%s': "+format, append([]any{model}, args...)...) // bound: the arguments of a format
	}
	if len(source) == 0 {
		return refuse("the body is empty, want %s", wantInstances)
	}
	text, err := new(jsontext.Scanner).Scan(c, source)
	if refused := (*infer.Error)(nil); errors.As(err, &refused) { // by the account
		return "", 0, refused
	}
	if err != nil {
		return refuse("the body is not JSON: %v; want %s", err, wantInstances)
	}
	v := text.Root()
	if !v.IsObject() {
		return refuse("the body is %s, want %s", v.Brief(), wantInstances)
	}
	seen, most := map[string]bool{}, c.Limits().GroupInstances
	for m := v.Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			break
		}
		key := name.String() // bound: a small body
		switch {
		case key != "count" && key != "group":
			return refuse("'%s' is not known, want 'count' and 'group'", jsontext.Brief([]byte(key)))
		case seen[key]:
			return refuse("'%s' appears twice, want it once", key)
		case key == "count":
			n, err := value.Uint()
			if err != nil || n < 1 || n > uint64(most) {
				return refuse("'count' is %s, want a whole number from 1 to %d", value.Brief(), most)
			}
			count = int(n)
		default:
			text, err := value.Text()
			if group = text.String(); err != nil || group == "" { // bound: a small body
				return refuse("'group' is %s, want the name of an instance group", value.Brief())
			}
		}
		seen[key] = true // bound: two names
	}
	if !seen["count"] {
		return refuse("'count' is missing, want a whole number from 1 to %d", most)
	}
	return group, count, nil
}

// appendInstances appends the JSON of a model's instances.
//
// bound: the caller has room
func appendInstances(b []byte, model string, list []models.InstanceState) []byte {
	b = append(jsontext.AppendString(append(b, `{"name":`...), model), `,"instances":[`...)
	for i, in := range list {
		b = appendComma(b, i)
		b = append(strconv.AppendInt(append(b, `{"version":"`...), in.Version, 10), `","name":`...)
		b = jsontext.AppendString(b, in.Name)
		if in.Draining {
			b = append(b, `,"state":"DRAINING"}`...)
		} else {
			b = append(b, `,"state":"READY"}`...)
		}
	}
	return append(b, "]}"...)
}
